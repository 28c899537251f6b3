"""Training losses: InfoNCE aligns matching keypoints, the hyperspherical loss spreads those of one image.

    L = InfoNCE + HS(descriptors) + sum_k (L - k + 1) p HS(layer k),    p = 0.3

All are means over keypoints, so that their scale does not depend on how many points an image has.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

LAYER_STEP = 0.3  # p


def info_nce(similarity: Tensor, matches0: Tensor, mask0: Tensor, mask1: Tensor, temperature: Tensor | float) -> Tensor:
    """Symmetric InfoNCE of similarity (B, M, N) with true matches0 (B, M), -1 for none: both directions, then the mean.

        -log( exp(s_ij / t) / sum_l exp(s_il / t) )    for each true match (i, j), l over the valid points

    The published equation leaves the true match out of its denominator; with it in, this is the usual cross-entropy,
    bounded below by 0. A point without a partner is a negative for the others and has no term of its own.
    """
    logits = similarity / temperature
    rows = _matched_log_likelihood(logits, matches0, mask1)  # (B, M)
    columns = _matched_log_likelihood(logits.mT, inverse(matches0, mask1.shape[1]), mask0)  # (B, N)
    count = (matches0 >= 0).sum().clamp_min(1)
    return -(rows.sum() + columns.sum()) / (2 * count)


def inverse(matches0: Tensor, n: int) -> Tensor:
    """matches1 (B, N) from matches0 (B, M): the same matches, seen from the other image."""
    matches1 = matches0.new_full((matches0.shape[0], n + 1), -1)  # one more column takes in the unmatched
    here = torch.arange(matches0.shape[1], device=matches0.device).expand_as(matches0)
    return matches1.scatter(1, matches0.remainder(n + 1), here)[:, :n]  # -1 wraps to column n


def _matched_log_likelihood(logits: Tensor, matches: Tensor, mask: Tensor) -> Tensor:
    """Log-likelihood (B, M) of the true column in logits (B, M, N) over columns in mask (B, N); 0 for no partner."""
    likelihood = logits.masked_fill(~mask.unsqueeze(1), torch.finfo(logits.dtype).min).log_softmax(2)
    true = likelihood.gather(2, matches.clamp_min(0).unsqueeze(2)).squeeze(2)  # (B, M)
    return true.masked_fill(matches < 0, 0.0)


def hyperspherical(descriptors: Tensor, mask: Tensor) -> Tensor:
    """Mean over keypoints of the largest cosine to another keypoint of the same image; descriptors (B, N, D) are unit.

    Images with a single point have no other: they do not count.
    """
    cosine = descriptors @ descriptors.mT  # (B, N, N)
    others = mask.unsqueeze(1) & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)  # (B, N, N)
    nearest = cosine.masked_fill(~others, -2.0).amax(2)  # (B, N); a cosine is never -2
    counts = mask & others.any(2)
    return nearest.masked_fill(~counts, 0.0).sum() / counts.sum().clamp_min(1)


def layer_hyperspherical(layers: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Sum over layers k = 1..L of (L - k + 1) p HS(layer k): the first layers, least refined, weigh most."""
    terms = [(len(layers) - k) * LAYER_STEP * hyperspherical(x, mask) for k, x in enumerate(layers)]
    return torch.stack(terms).sum()


def cross_entropy(similarity: Tensor, matches0: Tensor, mask1: Tensor) -> Tensor:
    """The ablation: plain cross-entropy of the rows of the raw similarity, in one direction, without temperature."""
    rows = _matched_log_likelihood(similarity, matches0, mask1)
    return -rows.sum() / (matches0 >= 0).sum().clamp_min(1)


class MatchingLoss(nn.Module):
    """The whole loss, with its learnable temperature (kept positive by its logarithm).

    Args:
        temperature: where t starts.
        learn_temperature: whether it is learned.
        layer_loss: the layer-wise hyperspherical loss (the paper's ablation switches it off).
        contrastive: False replaces everything by plain cross-entropy (the paper's ablation).
    """

    def __init__(
        self,
        temperature: float = 0.1,
        learn_temperature: bool = True,
        layer_loss: bool = True,
        contrastive: bool = True,
    ) -> None:
        super().__init__()
        self.layer_loss, self.contrastive = layer_loss, contrastive
        self.log_temperature = nn.Parameter(torch.tensor(temperature).log(), requires_grad=learn_temperature)

    def forward(self, output: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Losses by name, `loss` being their sum.

        Args:
            output: of `NormMatch.describe`: similarity (B, M, N), layers0 (L, B, M, D), layers1 (L, B, N, D).
            batch: matches0 (B, M) with -1 for none, mask0 (B, M), mask1 (B, N).
        """
        matches0, mask0, mask1 = batch["matches0"], batch["mask0"], batch["mask1"]
        similarity = output["similarity"].float()
        if not self.contrastive:
            terms = {"cross_entropy": cross_entropy(similarity, matches0, mask1)}
        else:
            layers0, layers1 = output["layers0"].float().unbind(0), output["layers1"].float().unbind(0)
            terms = {
                "info_nce": info_nce(similarity, matches0, mask0, mask1, self.log_temperature.exp()),
                "hyperspherical": (hyperspherical(layers0[-1], mask0) + hyperspherical(layers1[-1], mask1)) / 2,
            }
            if self.layer_loss:
                terms["layers"] = (layer_hyperspherical(layers0, mask0) + layer_hyperspherical(layers1, mask1)) / 2
        return {"loss": torch.stack(list(terms.values())).sum(), **terms}
