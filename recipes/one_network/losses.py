"""The locating loss: where each point of one image lies in the other, or that it is not there.

    L = - sum_cells g(cell) log p(cell)      for a point that both images have, g a Gaussian around its place
    L = - a log p(absent)                    for a point that the other image lacks

The matching loss is the project's own.
"""

import torch
from torch import Tensor

from network import OneNetwork, cell_centers

CELL = 7.0  # pixels: the unit of sigma, whatever the resolution of the descriptors


def gaussian_targets(xy: Tensor, height: int, width: int, sigma: Tensor | float) -> Tensor:
    """Weights (B, N, h w) that sum to one, of the cells around places xy (B, N, 2); sigma is in cells."""
    offset = xy.unsqueeze(2) - cell_centers(height, width, xy.device)  # (B, N, h w, 2)
    distance = (offset * offset.new_tensor((width, height))).square().sum(-1)
    return (-distance / (2 * sigma**2)).softmax(-1)


def locating_loss(
    network: OneNetwork, queries: Tensor, dense: Tensor, batch: dict[str, Tensor], sigma: float
) -> Tensor:
    """The loss over both directions of all pairs, a mean over points and over the network's successive answers.

    Args:
        queries: (B, K, D) descriptors of all points of the images.
        dense: (B, D, h, w) descriptors of all places.
        batch: xy (B, K, 2), known (B, K), pairs (P, 2), same (P,).
        sigma: of the target, in cells of 7 px.
    """
    settings = network.settings
    source = torch.cat([batch["pairs"][:, 0], batch["pairs"][:, 1]])  # (2P,)
    target = torch.cat([batch["pairs"][:, 1], batch["pairs"][:, 0]])
    asked = batch["known"][source]  # (2P, K)
    if settings.subsets:
        share = torch.rand(len(source), 1, device=source.device)
        asked = asked & (torch.rand(asked.shape, device=source.device) < share.clamp_min(0.1))
    there = batch["known"][target] & batch["same"].repeat(2).unsqueeze(1)
    both, gone = asked & there, asked & ~there
    weight = both / both.sum(1, keepdim=True).clamp_min(1) if settings.evenly else both
    height, width = dense.shape[-2:]
    goal = gaussian_targets(batch["xy"][target], height, width, sigma * CELL * width / settings.size)
    answers = network.locate(queries[source], batch["xy"][source], asked, dense[target])
    losses = []
    for answer in answers:
        log_p = answer.float().log_softmax(-1)  # (2P, K, h w + 1)
        found = -(log_p[..., :-1] * goal).sum(-1)
        loss = (found * weight).sum() / weight.sum().clamp_min(1)
        losses.append(loss + settings.absent * (-log_p[..., -1] * gone).sum() / gone.sum().clamp_min(1))
    return torch.stack(losses).mean()
