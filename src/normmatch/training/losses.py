"""Training losses: InfoNCE aligns matching keypoints, the hyperspherical loss spreads those of one image.

    L = InfoNCE + HS(descriptors) + sum_k (L - k + 1) p HS(layer k),    p = 0.3

Two more terms, which are not in the paper, teach the same thing with more signal: the name loss sets every descriptor
against one learned vector for each keypoint name of its class, and the layer match is InfoNCE after the earlier layers.

A network that locates learns it from all points of both objects, in both directions:

    - sum_cells g(cell) log p(cell)     for a point that both images show, g a Gaussian of one cell around its place
    - a log p(absent)                   for a point that the other image does not show,    a = 0.2

All are means over keypoints, so that their scale does not depend on how many points an image has. Where a batch is
shared among processes, `count` says over how many: a share of the keypoints of the whole batch (see `count_points`).
InfoNCE and the hyperspherical loss take one layer (B, ...) or several (L, B, ...), and give a number for each.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normmatch.config import LossConfig

LAYER_STEP = 0.3  # p
ABSENT = 0.2  # a


def count_points(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Over how many keypoints the means are: true matches, points with another one beside them, points with names."""
    rows = {side: batch[f"mask{side}"].sum(1) for side in "01"}  # (B,)
    counts = {f"count_points{side}": n.masked_fill(n < 2, 0).sum() for side, n in rows.items()}
    counts["count_matches"] = (batch["gt_matches0"] >= 0).sum()
    if "name_ids0" in batch:
        counts["count_names"] = (batch["name_ids0"] >= 0).sum() + (batch["name_ids1"] >= 0).sum()
    if "present0" in batch:
        counts["count_shown"] = 2 * (batch["present0"] & batch["present1"]).sum()
        counts["count_absent"] = (batch["present0"] ^ batch["present1"]).sum()
    return {key: value.clamp_min(1) for key, value in counts.items()}


def info_nce(
    similarity: Tensor,
    gt_matches0: Tensor,
    mask0: Tensor,
    mask1: Tensor,
    temperature: Tensor | float,
    count: Tensor | None = None,
) -> Tensor:
    """Symmetric InfoNCE of similarity (..., B, M, N) and gt_matches0 (B, M), -1 for none: mean of both directions.

        -log( exp(s_ij / t) / sum_l exp(s_il / t) )    for each true match (i, j), l over the valid points

    The published equation leaves the true match out of its denominator; with it in, this is the usual cross-entropy,
    bounded below by 0. A point without a partner is a negative for the others and has no term of its own.
    """
    logits = similarity / temperature
    rows = _matched_log_likelihood(logits, gt_matches0, mask1)  # (..., B, M)
    columns = _matched_log_likelihood(logits.mT, inverse(gt_matches0, mask1.shape[1]), mask0)  # (..., B, N)
    count = (gt_matches0 >= 0).sum().clamp_min(1) if count is None else count
    return -(rows.sum((-2, -1)) + columns.sum((-2, -1))) / (2 * count)


def inverse(matches0: Tensor, n: int) -> Tensor:
    """matches1 (B, N) from matches0 (B, M): the same matches, seen from the other image."""
    matches1 = matches0.new_full((matches0.shape[0], n + 1), -1)  # one more column takes in the unmatched
    here = torch.arange(matches0.shape[1], device=matches0.device).expand_as(matches0)
    return matches1.scatter(1, matches0.remainder(n + 1), here)[:, :n]  # -1 wraps to column n


def _matched_log_likelihood(logits: Tensor, matches: Tensor, mask: Tensor) -> Tensor:
    """Log-likelihood (..., B, M) of the true column in logits (..., B, M, N) over columns in mask; 0 for no partner."""
    likelihood = logits.masked_fill(~mask.unsqueeze(1), torch.finfo(logits.dtype).min).log_softmax(-1)
    column = matches.clamp_min(0).expand(logits.shape[:-1]).unsqueeze(-1)  # (..., B, M, 1)
    true = likelihood.gather(-1, column).squeeze(-1)  # (..., B, M)
    return true.masked_fill(matches < 0, 0.0)


def hyperspherical(descriptors: Tensor, mask: Tensor, count: Tensor | None = None) -> Tensor:
    """Mean over keypoints of the largest cosine to another one of the same image; descriptors (..., B, N, D) are unit.

    Images with a single point have no other: they do not count.
    """
    cosine = descriptors @ descriptors.mT  # (..., B, N, N)
    others = mask.unsqueeze(1) & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)  # (B, N, N)
    nearest = cosine.masked_fill(~others, -2.0).amax(-1)  # (..., B, N); a cosine is never -2
    counts = mask & others.any(2)
    total = nearest.masked_fill(~counts, 0.0).sum((-2, -1))  # (...)
    return total / (counts.sum().clamp_min(1) if count is None else count)


def weigh_layers(terms: Tensor) -> Tensor:
    """Sum over layers k = 1..L of (L - k + 1) p HS(layer k), given HS (L,): the first, least refined, weigh most."""
    return LAYER_STEP * (torch.arange(len(terms), 0, -1, device=terms.device) * terms).sum()


def cross_entropy(similarity: Tensor, gt_matches0: Tensor, mask1: Tensor, count: Tensor | None = None) -> Tensor:
    """The ablation: plain cross-entropy of the rows of the raw similarity, in one direction, without temperature."""
    rows = _matched_log_likelihood(similarity, gt_matches0, mask1)
    return -rows.sum() / ((gt_matches0 >= 0).sum().clamp_min(1) if count is None else count)


def locating(output: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Tensor:
    """The locating loss; point v of image 0 is the same as point v of image 1.

    Args:
        output: located0, located1 (B, V, h w + 1): log-probabilities of where each point lies in the other image.
        batch: places0, places1 (B, V, 2) as shares of an image, present0, present1 (B, V).
    """
    log_p = torch.cat([output["located0"], output["located1"]])  # (2B, V, h w + 1)
    side = math.isqrt(log_p.shape[2] - 1)
    truth = torch.cat([batch["places1"], batch["places0"]])  # (2B, V, 2)
    asked = torch.cat([batch["present0"], batch["present1"]])  # (2B, V)
    shown = torch.cat([batch["present1"], batch["present0"]])
    centers = torch.arange(side, device=log_p.device) + 0.5
    along = (-(truth.unsqueeze(3) * side - centers).square() / 2).softmax(3)  # (2B, V, 2, side): g is a product
    x, y = along.unbind(2)
    found = -torch.einsum("bvij,bvi,bvj->bv", log_p[..., :-1].unflatten(2, (side, side)), y, x)
    both, gone = asked & shown, asked & ~shown
    found, absent = found.masked_fill(~both, 0.0).sum(), -log_p[..., -1].masked_fill(~gone, 0.0).sum()
    count_both = batch["count_shown"] if "count_shown" in batch else both.sum().clamp_min(1)
    count_gone = batch["count_absent"] if "count_absent" in batch else gone.sum().clamp_min(1)
    return found / count_both + ABSENT * absent / count_gone


class NameLoss(nn.Module):
    """Cross-entropy of each descriptor over learned unit vectors, one for each keypoint name of its class.

    A pair shows a keypoint one partner and a dozen wrong ones; its name is the same question with the partner replaced
    by what all partners have in common. The vectors are for training only.

    Args:
        classes: (T,) the class of each name.
        dim: D, of the descriptors.
    """

    classes: Tensor

    def __init__(self, classes: Tensor, dim: int) -> None:
        super().__init__()
        self.register_buffer("classes", classes, persistent=False)
        self.vectors = nn.Parameter(torch.randn(len(classes), dim) * dim**-0.5)

    def forward(
        self, descriptors: Tensor, names: Tensor, temperature: Tensor | float, count: Tensor | None = None
    ) -> Tensor:
        """Mean over the points of descriptors (B, N, D) whose number in names (B, N) is not -1."""
        logits = descriptors @ F.normalize(self.vectors, dim=1).mT / temperature  # (B, N, T)
        number = names.clamp_min(0)
        others = self.classes[number].unsqueeze(2) != self.classes  # (B, N, T): names of other classes
        likelihood = logits.masked_fill(others, torch.finfo(logits.dtype).min).log_softmax(2)
        true = likelihood.gather(2, number.unsqueeze(2)).squeeze(2)  # (B, N)
        known = names >= 0
        return -true.masked_fill(~known, 0.0).sum() / (known.sum().clamp_min(1) if count is None else count)


class MatchingLoss(nn.Module):
    """The whole loss, with its learnable temperature (kept positive by its logarithm).

    Args:
        config: the switches and weights.
        classes: (T,) the class of each keypoint name, for the name loss; without it there is none.
        dim: D, of the descriptors.
    """

    def __init__(self, config: LossConfig, classes: Tensor | None = None, dim: int = 0) -> None:
        super().__init__()
        self.config = config
        start = torch.tensor(config.temperature).log()
        self.log_temperature = nn.Parameter(start, requires_grad=config.learn_temperature and config.contrastive)
        named = config.contrastive and config.names > 0 and classes is not None
        self.names = NameLoss(classes, dim) if named and classes is not None else None

    def forward(self, output: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Losses by name, `loss` being their sum.

        Args:
            output: of `NormMatch.describe`: similarity (B, M, N), layers0 (L, B, M, D), layers1 (L, B, N, D); where the
                network locates also what `locating` takes.
            batch: gt_matches0 (B, M) with -1 for none, mask0 (B, M), mask1 (B, N), name_ids0 (B, M), name_ids1 (B, N);
                of a share of a batch also the counts of `count_points`, each divided by the number of shares.
        """
        matches, points0, points1, names = (
            batch.get(f"count_{name}") for name in ("matches", "points0", "points1", "names")
        )
        similarity = output["similarity"].float()
        if not self.config.contrastive:
            term = cross_entropy(similarity, batch["gt_matches0"], batch["mask1"], matches)
            return {"loss": term, "cross_entropy": term}
        layers0, layers1 = output["layers0"].float(), output["layers1"].float()
        mask0, mask1 = batch["mask0"], batch["mask1"]
        temperature = self.log_temperature.exp()
        terms = {"info_nce": info_nce(similarity, batch["gt_matches0"], mask0, mask1, temperature, matches)}
        spread = (hyperspherical(layers0, mask0, points0) + hyperspherical(layers1, mask1, points1)) / 2  # (L,)
        terms["hyperspherical"] = spread[-1]
        if self.config.layer_loss:
            terms["layers"] = weigh_layers(spread)
        if self.config.layer_match and len(layers0) > 1:
            earlier = layers0[:-1] @ layers1[:-1].mT  # (L - 1, B, M, N)
            each = info_nce(earlier, batch["gt_matches0"], mask0, mask1, temperature, matches)  # (L - 1,)
            terms["layer_match"] = self.config.layer_match * each.mean()
        if self.names is not None:
            descriptors = torch.cat([layers0[-1], layers1[-1]], 1)  # (B, M + N, D)
            numbers = torch.cat([batch["name_ids0"], batch["name_ids1"]], 1)  # (B, M + N)
            terms["names"] = self.config.names * self.names(descriptors, numbers, temperature, names)
        if "located0" in output and self.config.locate:
            terms["locate"] = self.config.locate * locating(output, batch)
        return {"loss": torch.stack(list(terms.values())).sum(), **terms}


@torch.no_grad()
def accuracy(similarity: Tensor, points: dict[str, Tensor]) -> Tensor:
    """The share of the true matches that a plain arg-max finds: Sinkhorn is for evaluation."""
    known = points["gt_matches0"] >= 0
    likely = similarity.masked_fill(~points["mask1"].unsqueeze(1), -2.0).argmax(2)
    right = known & (likely == points["gt_matches0"])
    return right.sum() / points.get("count_matches", known.sum().clamp_min(1))
