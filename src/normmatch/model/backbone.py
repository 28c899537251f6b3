"""Backbones: an image in, two feature maps and a pooled global vector out. Any timm model by name, or VGG16."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import timm
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from torchvision.models import VGG16_Weights, vgg16

from normmatch.errors import ConfigError, InputError, WeightsError
from normmatch.pretrained import load_weights

VGG16_LAST = 29  # relu5_3: what follows it in vgg16().features is the last pooling


class Features(NamedTuple):
    """What the head needs to know about an image; `NormMatch.encode` returns it."""

    maps: tuple[Tensor, Tensor]  # (B, C_l, h_l, w_l) each
    pooled: Tensor  # (B, G)
    size: tuple[int, int]  # height and width of the image, in whose pixels keypoints are given


class Backbone(nn.Module):
    """Two feature maps and the mean of the last one.

    Args:
        name: a timm model, or "vgg16" (torchvision's).
        layers: which two feature maps. Blocks of a ViT or stages of a hierarchical model, counted from 0;
            positions in `vgg16().features` for VGG16, where 20 is relu4_2 and 25 is relu5_1.
        image_size: what window-based models are built for; others take any size.
        weights: "hub", "random", or the path of a safetensors file with timm's (VGG16: torchvision's) keys.
    """

    def __init__(self, name: str, layers: tuple[int, int], image_size: int, weights: str = "hub") -> None:
        super().__init__()
        self.name, self.layers = name, layers
        self.net = _vgg16(weights) if name == "vgg16" else _timm_model(name, image_size, weights)
        if weights not in ("hub", "random"):
            load_weights(self.net, Path(weights))
        mean, std = self._statistics()
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)
        self.channels: tuple[int, int] = self._channels()

    def forward(self, image: Tensor) -> Features:
        """Read an image (B, 3, H, W) in [0, 1]."""
        size = (image.shape[-2], image.shape[-1])
        x = (image - self.mean) / self.std
        if self.name == "vgg16":
            first, second, last = self._vgg_maps(x)
        else:
            patch = self._patch()
            if size[0] % patch or size[1] % patch:
                raise InputError(f"image is {size[1]} x {size[0]}, expected multiples of {self.name}'s patch, {patch}")
            first, second = self.net.forward_intermediates(
                x, indices=list(self.layers), norm=True, intermediates_only=True
            )
            last = second
        return Features((first, second), last.mean((2, 3)), size)  # (B, C1, h1, w1), (B, C2, h2, w2), (B, G)

    @property
    def global_channels(self) -> int:
        return 512 if self.name == "vgg16" else self.channels[1]

    def _vgg_maps(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = []
        for i, layer in enumerate(self.net):  # type: ignore[arg-type]
            x = layer(x)
            if i in (*self.layers, VGG16_LAST):
                maps.append(x)
        return maps[0], maps[1], maps[-1]

    def _patch(self) -> int:
        """The patch of a ViT; 1 for models that take any size."""
        if not hasattr(self.net, "blocks"):
            return 1
        return int(self.net.patch_embed.patch_size[0])  # type: ignore[union-attr, index]

    def _statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        if self.name == "vgg16":
            return IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
        config = self.net.pretrained_cfg
        return config["mean"], config["std"]  # type: ignore[index, return-value]

    def _channels(self) -> tuple[int, int]:
        if self.name == "vgg16":
            count = len(self.net)  # type: ignore[arg-type]
            reductions = {i: 512 if i > 16 else 256 if i > 9 else 128 if i > 4 else 64 for i in range(count)}
        else:
            reductions = {i: int(f["num_chs"]) for i, f in enumerate(self.net.feature_info)}  # type: ignore[arg-type]
        if not all(i in reductions for i in self.layers):
            last = len(reductions) - 1
            raise ConfigError(f"model.backbone_layers is {self.layers}, expected numbers up to {last} for {self.name}")
        return reductions[self.layers[0]], reductions[self.layers[1]]


def _timm_model(name: str, image_size: int, weights: str) -> nn.Module:
    """A timm model without its classifier; ViTs and Swins at any image size."""
    if not timm.is_model(name):
        close = timm.list_models(f"*{name.split('_')[0]}*")[:3]
        hint = f", such as {', '.join(close)}" if close else ""
        raise ConfigError(f"model.backbone is {name!r}, expected vgg16 or the name of a timm model{hint}")
    options = next((o for key, o in _size_options(image_size) if name.startswith(key)), {})
    try:
        return timm.create_model(name, pretrained=weights == "hub", num_classes=0, **options)
    except (OSError, RuntimeError) as error:
        raise WeightsError(
            f"the weights of backbone {name} could not be had from the hub ({error}); "
            "pass a safetensors file as model.backbone_weights, or 'random'"
        ) from error


def _size_options(image_size: int) -> Iterator[tuple[str, dict[str, object]]]:
    yield "vit_", {"dynamic_img_size": True}  # the position grid is interpolated to the image
    yield "test_vit", {"dynamic_img_size": True}
    yield "swin", {"img_size": image_size}  # windows are laid out for the size


def _vgg16(weights: str) -> nn.Sequential:
    """VGG16's convolutions up to relu5_3."""
    try:
        features: nn.Sequential = vgg16(weights=VGG16_Weights.IMAGENET1K_V1 if weights == "hub" else None).features
    except OSError as error:
        raise WeightsError(
            f"the weights of backbone vgg16 could not be had from the hub ({error}); "
            "pass a safetensors file as model.backbone_weights, or 'random'"
        ) from error
    return features[: VGG16_LAST + 1]
