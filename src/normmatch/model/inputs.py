"""What `NormMatch` takes: everything that cannot be matched is refused with one sentence that names the argument."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from normmatch.errors import InputError
from normmatch.geometry import OUTSIDE
from normmatch.model.backbone import Features


def check_pair(data: Mapping[str, Any]) -> None:
    """Refuse what cannot be matched with one sentence that names the argument."""
    sizes = []
    for i in "01":
        batch, size = _check_image_or_features(data, i)
        _check_points(data, i, batch, size)
        sizes.append(batch)
    if sizes[0] != sizes[1]:
        raise InputError(f"image0 holds {sizes[0]} images and image1 {sizes[1]}, expected the same number")


def _check_image_or_features(data: Mapping[str, Any], i: str) -> tuple[int, tuple[int, int]]:
    """Batch size and image size of image i."""
    if f"features{i}" in data:
        features = data[f"features{i}"]
        if not isinstance(features, Features):
            raise InputError(f"features{i} is {_describe(features)}, expected what `encode` returns")
        return features.pooled.shape[0], features.size
    image: Any = data.get(f"image{i}")
    check_image(image, f"image{i}")
    return image.shape[0], (image.shape[2], image.shape[3])


def check_image(image: Any, name: str) -> None:
    if not isinstance(image, Tensor) or image.ndim != 4 or image.shape[1] != 3 or 0 in image.shape:
        raise InputError(f"{name} is {_describe(image)}, expected a float tensor (B, 3, H, W) with values in [0, 1]")
    if not image.is_floating_point():
        raise InputError(f"{name} has dtype {image.dtype}, expected floats in [0, 1] (divide bytes by 255)")
    low, high = image.aminmax()
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # also true for NaN
        raise InputError(f"{name} has values from {low:.3g} to {high:.3g}, expected finite values in [0, 1]")


def _check_points(data: Mapping[str, Any], i: str, batch: int, size: tuple[int, int]) -> None:
    keypoints, mask, adjacency = (data.get(f"{name}{i}") for name in ("keypoints", "mask", "adjacency"))
    if not isinstance(keypoints, Tensor) or keypoints.ndim != 3 or keypoints.shape[2] != 2:
        raise InputError(f"keypoints{i} is {_describe(keypoints)}, expected a float tensor ({batch}, N, 2)")
    if keypoints.shape[0] != batch:
        raise InputError(f"keypoints{i} is for {keypoints.shape[0]} images, but there are {batch}")
    if keypoints.shape[1] == 0:
        raise InputError(f"keypoints{i} is empty, expected at least one point")
    if not keypoints.is_floating_point():
        raise InputError(f"keypoints{i} has dtype {keypoints.dtype}, expected floats")
    n = keypoints.shape[1]
    for name, value, shape in (("mask", mask, (batch, n)), ("adjacency", adjacency, (batch, n, n))):
        if value is not None and (not isinstance(value, Tensor) or value.dtype != torch.bool or value.shape != shape):
            raise InputError(f"{name}{i} is {_describe(value)}, expected a bool tensor {shape}")
    valid = keypoints if mask is None else keypoints[mask]
    if not valid.isfinite().all():
        raise InputError(f"keypoints{i} has NaN or infinite coordinates, expected finite pixels")
    limit = keypoints.new_tensor((size[1], size[0]))
    if ((valid < -OUTSIDE * limit) | (valid > (1 + OUTSIDE) * limit)).any():
        raise InputError(
            f"keypoints{i} has points far outside the image, expected xy within {size[1]} x {size[0]} pixels"
        )


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)}"
    return "missing" if value is None else f"a {type(value).__name__}"
