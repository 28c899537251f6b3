"""Where points of one image lie in another: unit descriptors of every place, a distribution over the target's cells.

    maps -> unit vectors -> 1x1 -> two residual 3x3 blocks -> twice the resolution -> unit descriptors (B, D, h, w)
    log p(cell | point) = log softmax over the cells, and "absent" beside them, of  s <d_point, d_cell>

Cell (i, j) of h x w cells is centred at ((j + 0.5) / w, (i + 0.5) / h) of the image, as in `sampling.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normmatch.model.backbone import Features
from normmatch.model.sampling import sample

WIDTH = 256  # of the head's inner maps
INPUT_SCALE = 20.0  # of the unit vectors, so that their entries, of 384 channels each, are about one
SCALE = 20.0  # s at the start
ABSENT_SCALE = 10.0  # lets the logit of "absent" move as fast as those of the cells
REACH = 1 / 12  # of the image: how far around the best cell an answer is averaged


class Located(NamedTuple):
    """Where points were found."""

    points: Tensor  # (B, N, 2) in pixels of the target
    scores: Tensor  # (B, N): the probability that the point lies near that place
    absent: Tensor  # (B, N): the probability that the target does not show it


class LocatingHead(nn.Module):
    """Feature maps to unit descriptors at twice the resolution of the finest of them.

    Args:
        channels: of the backbone's maps.
        dim: D, of the descriptors.
    """

    def __init__(self, channels: Sequence[int], dim: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(sum(channels), WIDTH, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GELU(), nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.GELU(), nn.Conv2d(WIDTH, WIDTH, 1))
            for _ in range(2)
        )
        self.up = nn.Sequential(nn.GELU(), nn.Conv2d(WIDTH, WIDTH, 3, padding=1))
        self.out = nn.Sequential(nn.GELU(), nn.Conv2d(WIDTH, dim, 1))
        self.skip = nn.Conv2d(sum(channels), dim, 1)
        self.log_scale = nn.Parameter(torch.tensor(SCALE).log())
        self.absent = nn.Linear(dim, 1)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Maps (B, C_l, h_l, w_l) to unit descriptors (B, D, 2h, 2w)."""
        size = maps[0].shape[-2:]  # the finest
        units = [F.normalize(m.float(), dim=1) for m in maps]
        x = torch.cat([m if m.shape[-2:] == size else _resize(m, size) for m in units], 1) * INPUT_SCALE
        y = self.enter(x)  # (B, WIDTH, h, w)
        for block in self.blocks:
            y = y + block(y)
        finer = 2 * size[0], 2 * size[1]
        dense = self.out(self.up(_resize(y, finer))) + _resize(self.skip(x), finer)  # (B, D, 2h, 2w)
        return F.normalize(dense.float(), dim=1)

    def log_probabilities(self, queries: Tensor, dense: Tensor) -> Tensor:
        """Of where points with descriptors (B, N, D) lie in dense (B, D, h, w): (B, N, h w + 1), "absent" last."""
        with torch.autocast(queries.device.type, enabled=False):  # bf16 has three digits, too few for unit vectors
            cells = (queries @ dense.flatten(2)) * self.log_scale.exp()  # (B, N, h w)
            return torch.cat([cells, self.absent(queries) * ABSENT_SCALE], 2).log_softmax(2)


def describe(dense: Tensor, keypoints: Tensor, size: tuple[int, int]) -> Tensor:
    """Unit descriptors (B, N, D) of keypoints (B, N, 2), given in pixels of an image of size (H, W)."""
    return F.normalize(sample(dense, keypoints, size), dim=-1)


def decode(log_probabilities: Tensor, cells: tuple[int, int], size: tuple[int, int]) -> Located:
    """The mean place of the cells around the best one, and the probability of all of them.

    Args:
        log_probabilities: (B, N, h w + 1), "absent" last.
        cells: (h, w).
        size: (H, W) of the target.
    """
    p = log_probabilities.exp()
    centers = cell_centers(*cells, p.device)  # (h w, 2)
    best = centers[p[..., :-1].argmax(2)]  # (B, N, 2)
    near = ((centers - best.unsqueeze(2)).abs() <= REACH).all(3)  # (B, N, h w)
    window = p[..., :-1].masked_fill(~near, 0.0)
    mass = window.sum(2)  # (B, N)
    pixels = centers.new_tensor((size[1], size[0]))
    return Located((window @ centers) / mass.clamp_min(1e-12).unsqueeze(2) * pixels, mass, p[..., -1])


def calibrated(scores: Tensor, knots: Sequence[float]) -> Tensor:
    """Scores as the probabilities that stand for them; `knots` are rising scores, then their probabilities."""
    if not knots:
        return scores
    known, p = scores.new_tensor(knots).chunk(2)
    low = (torch.searchsorted(known, scores.contiguous(), right=True) - 1).clamp(0, len(known) - 2)
    share = ((scores - known[low]) / (known[low + 1] - known[low]).clamp_min(1e-9)).clamp(0, 1)
    return torch.lerp(p[low], p[low + 1], share)


def cell_centers(height: int, width: int, device: torch.device) -> Tensor:
    """The centres (h w, 2) of cells, as shares of the image."""
    y = (torch.arange(height, device=device) + 0.5) / height
    x = (torch.arange(width, device=device) + 0.5) / width
    return torch.stack([x.expand(height, -1), y.unsqueeze(1).expand(-1, width)], -1).flatten(0, 1)


def dense_both(head: LocatingHead, features0: Features, features1: Features) -> tuple[Tensor, Tensor]:
    """Descriptors (B, D, h, w) of both images of B pairs, in one pass where their maps have one size."""
    if features0.size != features1.size:
        return head(features0.maps), head(features1.maps)
    both = head([torch.cat(maps) for maps in zip(features0.maps, features1.maps, strict=True)])
    dense0, dense1 = both.chunk(2)
    return dense0, dense1


def _resize(x: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    return F.interpolate(x, size=tuple(size), mode="bilinear", align_corners=False)
