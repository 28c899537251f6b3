"""What `NormMatch` takes: everything that cannot be matched is refused with one sentence that names the argument."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normmatch.errors import InputError
from normmatch.geometry import OUTSIDE
from normmatch.model.backbone import Features


def check_pair(data: Any, backbone: Any) -> None:
    """Refuse what cannot be matched by a network of this backbone with one sentence that names the argument."""
    if not isinstance(data, Mapping):
        raise InputError(f"The data are {_describe(data)}, expected a mapping with image0, keypoints0 and the rest")
    sizes = []
    for i in "01":
        batch, size = _check_image_or_features(data, i, backbone)
        _check_points(data, i, batch, size, backbone)
        sizes.append(batch)
    if sizes[0] != sizes[1]:
        raise InputError(f"image0 holds {sizes[0]} images and image1 {sizes[1]}, expected the same number")


def _check_image_or_features(data: Mapping[str, Any], i: str, backbone: Any) -> tuple[int, tuple[int, int]]:
    """Batch size and image size of image i."""
    features = data.get(f"features{i}")
    if features is not None:
        if not isinstance(features, Features):
            raise InputError(f"features{i} is {_describe(features)}, expected what `encode` returns")
        if not _fit(features, backbone):
            raise InputError(
                f"features{i} are of another network or device, expected what `encode` of this one returns"
            )
        return features.pooled.shape[0], features.size
    image: Any = data.get(f"image{i}")
    check_image(image, f"image{i}", backbone)
    return image.shape[0], (image.shape[2], image.shape[3])


def _fit(features: Features, backbone: Any) -> bool:
    """Whether features can be those of a backbone, by their shapes."""
    parts = (*features.maps, features.pooled) if isinstance(features.maps, tuple) else ()
    if len(parts) != 3 or not all(_is_plain(part, backbone) and part.is_floating_point() for part in parts):
        return False
    shapes = [tuple(part.shape[:2]) for part in parts]
    batch = shapes[2][0] if shapes[2] else 0
    size = features.size if isinstance(features.size, tuple) else ()
    return (
        [part.ndim for part in parts] == [4, 4, 2]
        and shapes == [(batch, channels) for channels in (*backbone.channels, backbone.global_channels)]
        and all(part.numel() for part in parts)
        and len(size) == 2
        and all(isinstance(side, int) and side > 0 for side in size)
    )


def _is_plain(value: Any, backbone: nn.Module) -> bool:
    """Whether it is a tensor with all its values in order, where the network is."""
    if not isinstance(value, Tensor) or value.is_nested or value.is_quantized or value.layout != torch.strided:
        return False
    return value.device == next(backbone.parameters()).device


def check_image(image: Any, name: str, backbone: nn.Module) -> None:
    """Refuse what is no batch of images."""
    if not _is_plain(image, backbone) or image.ndim != 4 or image.shape[1] != 3 or 0 in image.shape:
        raise InputError(f"{name} is {_describe(image)}, expected a float tensor (B, 3, H, W) with values in [0, 1]")
    if not image.is_floating_point():
        raise InputError(f"{name} has dtype {image.dtype}, expected floats in [0, 1] (divide bytes by 255)")
    low, high = image.aminmax()
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # also true for NaN
        raise InputError(f"{name} has values from {low:.3g} to {high:.3g}, expected finite values in [0, 1]")


def _check_points(data: Mapping[str, Any], i: str, batch: int, size: tuple[int, int], backbone: nn.Module) -> None:
    keypoints: Any = data.get(f"keypoints{i}")
    mask, adjacency = data.get(f"mask{i}"), data.get(f"adjacency{i}")
    if not _is_plain(keypoints, backbone) or keypoints.ndim != 3 or keypoints.shape[2] != 2:
        raise InputError(f"keypoints{i} is {_describe(keypoints)}, expected a float tensor ({batch}, N, 2)")
    if keypoints.shape[0] != batch:
        raise InputError(f"keypoints{i} is for {keypoints.shape[0]} images, but there are {batch}")
    if keypoints.shape[1] == 0:
        raise InputError(f"keypoints{i} is empty, expected at least one point")
    if not keypoints.is_floating_point():
        raise InputError(f"keypoints{i} has dtype {keypoints.dtype}, expected floats")
    n = keypoints.shape[1]
    for name, value, shape in (("mask", mask, (batch, n)), ("adjacency", adjacency, (batch, n, n))):
        if value is not None and (not _is_plain(value, backbone) or value.dtype != torch.bool or value.shape != shape):
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
        if value.is_nested or value.is_quantized or value.layout != torch.strided:
            return "a tensor that is nested, quantized or sparse"
        return f"a {str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)} on {value.device}"
    return "missing" if value is None else f"a {type(value).__name__}"
