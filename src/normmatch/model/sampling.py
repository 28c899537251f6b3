"""Reading feature maps at keypoints. This file owns the one coordinate convention.

x points right, y points down, and the centre of the first pixel is at 0.5: the image spans [0, W] x [0, H]. So resizing
by s maps x to s * x, mirroring maps x to W - x, and a coordinate means the same place in the image and in every feature
map after division by the size. `grid_sample(align_corners=False)` agrees with it.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Nodes(NamedTuple):
    """An encoded image read at its keypoints: all that is left of the maps once the keypoints are known."""

    features: Tensor  # (B, N, C)
    pooled: Tensor  # (B, G)


def sample(feature_map: Tensor, keypoints: Tensor, size: tuple[int, int]) -> Tensor:
    """Features (B, N, C) of a map (B, C, h, w) at keypoints (B, N, 2), given in pixels of an image of size (H, W).

    Bilinear between the centres of the map's cells; outside of them the border is repeated.
    """
    height, width = size
    x, y = keypoints.unbind(-1)  # (B, N) each; numbers, because a tensor of them would have to travel to the device
    grid = torch.stack((x * (2 / width), y * (2 / height)), -1) - 1  # (B, N, 2) in [-1, 1], as `grid_sample` wants it
    dtype = torch.promote_types(feature_map.dtype, grid.dtype)  # bf16 would move places by a third of a pixel
    features = F.grid_sample(
        feature_map.to(dtype), grid.unsqueeze(2).to(dtype), padding_mode="border", align_corners=False
    )  # (B, C, N, 1)
    return features.squeeze(3).mT.to(feature_map.dtype)  # (B, N, C)


def node_features(maps: tuple[Tensor, ...], keypoints: Tensor, size: tuple[int, int]) -> Tensor:
    """Concatenated features (B, N, sum C_l) of all maps, each location a unit vector before it is read."""
    return torch.cat([sample(F.normalize(m, dim=1), keypoints, size) for m in maps], dim=-1)
