"""Landmarks of a kind that no training has shown, read from a few annotated pictures: a linear solve, then shape.

    W = (S + tr(S)/d I)^-1 (f - m)      f: mean feature of each landmark, m and S: mean and covariance of all cells

The score of a cell x is W . (x - m), in deviations of its map; half a deviation is the unit of log-probability. The
moments are those of the references' own cells; those of the whole folder are 5 to 8 points worse with five references.
Shape is decided afterwards: the similarity that lays the references' shape best over the maps, then each landmark
given the others by a Gaussian. All of it is batched, so that hundreds of pictures take seconds.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from network import cell_centers

RIDGE = 1.0
AROUND = 0.8  # cells: deviation of the window that a landmark's feature is averaged over
UNIT = 0.5  # deviations of a map that one unit of log-probability is
SMOOTH, LENGTH, NOISE = 0.10, 0.35, 0.02  # of shape, in shares of the box
PRIOR = 4.0  # references that the smooth prior counts as
FLOOR = 6.0  # the most that a misplaced landmark costs, in units of log-probability
ROUNDS = 6
FINER = 4  # places along a side of a cell among which the answer is chosen


def unit_maps(maps: dict[int, Tensor], blocks: Sequence[int]) -> Tensor:
    """Maps of some blocks beside each other, each place a unit vector: (n, d, h, w)."""
    return torch.cat([F.normalize(maps[block].float(), dim=1) for block in blocks], 1)


def landmark_features(maps: Tensor, xy: Tensor, known: Tensor) -> Tensor:
    """The mean feature (K, d) of each landmark in references (r, d, h, w), xy (r, K, 2), known (r, K)."""
    height, width = maps.shape[-2:]
    offset = (xy.unsqueeze(2) - cell_centers(height, width, xy.device)) * xy.new_tensor((width, height))
    weight = (-offset.square().sum(-1) / (2 * AROUND**2)).softmax(-1) * known.unsqueeze(2)  # (r, K, h w)
    total = torch.einsum("rkp,rdp->kd", weight, maps.flatten(2))
    return total / known.sum(0).clamp_min(1).unsqueeze(1)


def moments(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (d,) and covariance (d, d) of all cells of maps (n, d, h, w)."""
    cells = maps.permute(0, 2, 3, 1).flatten(0, 2)
    mean = cells.mean(0)
    centred = cells - mean
    return mean, centred.mT @ centred / len(cells)


def ridge_maps(maps: Tensor, features: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """Log-probabilities (n, K, h, w) of landmarks whose mean features (K, d) are given."""
    dim = len(mean)
    whitener = covariance + RIDGE * covariance.trace() / dim * torch.eye(dim, device=mean.device)
    weights = torch.linalg.solve(whitener, (features - mean).mT).mT  # (K, d)
    scores = torch.einsum("kd,ndhw->nkhw", weights, maps) - (weights @ mean)[None, :, None, None]
    return _log_probabilities(scores)


def neighbour_maps(maps: Tensor, features: Tensor) -> Tensor:
    """The same from the cosine to the mean feature."""
    cosine = torch.einsum("kd,ndhw->nkhw", F.normalize(features, dim=1), F.normalize(maps, dim=1))
    return _log_probabilities(cosine)


def _log_probabilities(scores: Tensor) -> Tensor:
    flat = scores.flatten(2)
    flat = (flat - flat.mean(2, keepdim=True)) / flat.std(2, keepdim=True).clamp_min(1e-6) / UNIT
    return flat.log_softmax(2).view_as(scores)


def best_places(log_p: Tensor) -> Tensor:
    """The most likely places (n, K, 2) of maps (n, K, h, w), a fraction of a cell apart."""
    fine = F.interpolate(log_p, scale_factor=FINER, mode="bicubic")
    centers = cell_centers(*fine.shape[-2:], log_p.device)
    return centers[fine.flatten(2).argmax(2)]


def lay_over(log_p: Tensor, shapes: Tensor) -> Tensor:
    """The shape (n, K, 2), of shapes (s, K, 2), moved by a similarity, that fits maps (n, K, h, w) best.

    Each pair of landmarks' most likely places gives a similarity for each shape; a landmark that it puts where its map
    says no costs FLOOR at most.
    """
    n, count = log_p.shape[:2]
    peaks = torch.view_as_complex(best_places(log_p).contiguous())  # (n, K)
    forms = torch.view_as_complex(shapes.contiguous())  # (s, K)
    one, two = torch.triu_indices(count, count, 1, device=log_p.device)
    span = forms[:, one] - forms[:, two]  # (s, T)
    turn = (peaks[:, None, one] - peaks[:, None, two]) / torch.where(span.abs() > 0.1, span, 1e9)  # (n, s, T)
    upright = (turn.abs() > 0.5) & (turn.abs() < 1.6) & (turn.angle().abs() < 0.7)
    moved = turn.unsqueeze(3) * (forms[:, None] - forms[:, one].unsqueeze(2)) + peaks[:, None, one].unsqueeze(3)
    identity = forms[None, :, None].expand(n, -1, 1, -1)  # the box is a guess of its own
    places = torch.view_as_real(torch.cat([moved, identity], 2).flatten(1, 2))  # (n, H, K, 2)
    upright = torch.cat([upright, torch.ones_like(upright[:, :, :1])], 2).flatten(1)  # (n, H)
    limited = (log_p - log_p.amax((2, 3), keepdim=True)).clamp_min(-FLOOR)
    grid = (places.transpose(1, 2).flatten(0, 1) * 2 - 1).unsqueeze(1)  # (n K, 1, H, 2)
    fit = F.grid_sample(limited.flatten(0, 1).unsqueeze(1), grid, padding_mode="border", align_corners=False)
    outside = ((places < 0) | (places > 1)).any(3)  # (n, H, K)
    fit = fit.view(n, count, -1).mT.masked_fill(outside, -FLOOR).sum(2)  # (n, H)
    best = fit.masked_fill(~upright, -torch.inf).argmax(1)
    return places[torch.arange(n, device=log_p.device), best]


def decide_by_shape(log_p: Tensor, xy: Tensor, known: Tensor) -> Tensor:
    """Places (n, K, 2) of landmarks with maps (n, K, h, w), given references xy (r, K, 2), known (r, K)."""
    mean = (xy * known.unsqueeze(2)).sum(0) / known.sum(0).clamp_min(1).unsqueeze(1)  # (K, 2)
    filled = torch.where(known.unsqueeze(2), xy, mean)
    expected = lay_over(log_p, torch.cat([mean[None], filled]))  # (n, K, 2)
    distance = torch.cdist(mean, mean)
    prior = SMOOTH**2 * (-(distance**2) / (2 * LENGTH**2)).exp()
    residual = filled - mean  # (r, K, 2)
    seen = torch.einsum("rkc,rlc->kl", residual, residual) / 2
    covariance = (PRIOR * prior + seen) / (PRIOR + len(xy)) + NOISE**2 * torch.eye(len(mean), device=xy.device)
    precision = torch.linalg.inv(covariance)
    own = precision.diagonal()  # (K,)
    others = precision - torch.diag(own)
    fine = F.interpolate(log_p, scale_factor=FINER, mode="bicubic")
    centers, fine = cell_centers(*fine.shape[-2:], log_p.device), fine.flatten(2)
    places = expected
    for _ in range(ROUNDS):
        given = expected - torch.einsum("kl,nlc->nkc", others, places - expected) / own[:, None]  # (n, K, 2)
        away = (given.unsqueeze(2) - centers).square().sum(3) * own[:, None] / 2  # (n, K, fine cells)
        places = centers[(fine - away.clamp_max(FLOOR)).argmax(2)]
    return places


def read_with_references(maps: Tensor, xy: Tensor, known: Tensor, references: Tensor) -> dict[str, Tensor]:
    """Places (n, K, 2) by nearest neighbour, ridge, and ridge with shape, from the references (r,) among n pictures."""
    features = landmark_features(maps[references], xy[references], known[references])
    log_p = ridge_maps(maps, features, *moments(maps[references]))
    shaped = [decide_by_shape(part, xy[references], known[references]) for part in log_p.split(32)]
    return {
        "nearest": best_places(neighbour_maps(maps, features)),
        "ridge": best_places(log_p),
        "shape": torch.cat(shaped),
    }
