"""The locating loss: where each point of one image lies in the other, or that it is not there.

    L = - sum_cells g(cell) log p(cell)      for a point that both images have, g a Gaussian around its place
    L = - a log p(absent)                    for a point that the other image lacks

The matching loss is the project's own.
"""

import torch
from torch import Tensor

from network import DenseHead, cell_centers

CELL = 7.0  # pixels: the unit of sigma, whatever the resolution of the descriptors


def gaussian_targets(xy: Tensor, height: int, width: int, sigma: Tensor | float) -> Tensor:
    """Weights (B, N, h w) that sum to one, of the cells around places xy (B, N, 2); sigma is in cells."""
    offset = xy.unsqueeze(2) - cell_centers(height, width, xy.device)  # (B, N, h w, 2)
    distance = (offset * offset.new_tensor((width, height))).square().sum(-1)
    return (-distance / (2 * sigma**2)).softmax(-1)


def locating_loss(
    head: DenseHead,
    queries: Tensor,
    dense: Tensor,
    batch: dict[str, Tensor],
    absent: float,
    sigma: Tensor | float,
    size: int,
) -> Tensor:
    """The loss over both directions of all pairs, a mean over points.

    Args:
        queries: (B, K, D) descriptors of all points of the images.
        dense: (B, D, h, w) descriptors of all places.
        batch: xy (B, K, 2), known (B, K), pairs (P, 2), same (P,).
        absent: weight of the points that the other image lacks.
        sigma: of the target, in cells of 7 px of images of `size` px.
    """
    source = torch.cat([batch["pairs"][:, 0], batch["pairs"][:, 1]])  # (2P,)
    target = torch.cat([batch["pairs"][:, 1], batch["pairs"][:, 0]])
    there = batch["known"][target] & batch["same"].repeat(2).unsqueeze(1)
    both, gone = batch["known"][source] & there, batch["known"][source] & ~there  # (2P, K)
    log_p = head.logits(queries[source], dense[target]).float().log_softmax(-1)  # (2P, K, h w + 1)
    height, width = dense.shape[-2:]
    goal = gaussian_targets(batch["xy"][target], height, width, sigma * CELL * width / size)
    found = -(log_p[..., :-1] * goal).sum(-1)
    loss = (found * both).sum() / both.sum().clamp_min(1)
    return loss + absent * (-log_p[..., -1] * gone).sum() / gone.sum().clamp_min(1)
