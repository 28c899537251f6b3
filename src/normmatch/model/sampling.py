"""Reading feature maps at keypoints. This file owns the one coordinate convention.

x points right, y points down, and the centre of the first pixel is at 0.5: the image spans [0, W] x [0, H]. So resizing
by s maps x to s * x, mirroring maps x to W - x, and a coordinate means the same place in the image and in every feature
map after division by the size. `grid_sample(align_corners=False)` agrees with it.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from normmatch.model.backbone import Features


class Nodes(NamedTuple):
    """An image as its keypoints see it: all that is left of the backbone's maps once the keypoints are known."""

    features: Tensor  # (B, N, C)
    pooled: Tensor  # (B, G)


def sample(feature_map: Tensor, keypoints: Tensor, size: tuple[int, int]) -> Tensor:
    """Features (B, N, C) of a map (B, C, h, w) at keypoints (B, N, 2), given in pixels of an image of size (H, W).

    Bilinear between the centres of the map's cells; outside of them the border is repeated.
    """
    return _read(feature_map, _grid(keypoints, size))


def node_features(maps: tuple[Tensor, ...], keypoints: Tensor, size: tuple[int, int]) -> Tensor:
    """Concatenated features (B, N, sum C_l) of all maps, each location a unit vector before it is read."""
    grid = _grid(keypoints, size)
    return torch.cat([_read(F.normalize(m, dim=1), grid) for m in maps], dim=-1)


def _grid(keypoints: Tensor, size: tuple[int, int]) -> Tensor:
    """Keypoints (B, N, 2) as `grid_sample` wants them: from [0, W] x [0, H] to [-1, 1] x [-1, 1]."""
    height, width = size
    x, y = keypoints.unbind(-1)  # (B, N) each; numbers, because a tensor of them would have to travel to the device
    return torch.stack((x * (2 / width), y * (2 / height)), -1) - 1


def _read(feature_map: Tensor, grid: Tensor) -> Tensor:
    """Features (B, N, C) of a map (B, C, h, w) at grid (B, N, 2)."""
    dtype = torch.promote_types(feature_map.dtype, grid.dtype)  # bf16 would move places by a third of a pixel
    features = F.grid_sample(
        feature_map.to(dtype), grid.unsqueeze(2).to(dtype), padding_mode="border", align_corners=False
    )  # (B, C, N, 1)
    return features.squeeze(3).mT.to(feature_map.dtype)  # (B, N, C)


def read_nodes(features: Features | Nodes, keypoints: Tensor) -> Nodes:
    """Read an encoded image at keypoints (B, N, 2), unless that was done before."""
    if isinstance(features, Nodes):
        return features
    return Nodes(node_features(features.maps, keypoints, features.size), features.pooled)
