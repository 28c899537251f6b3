"""Backbones: an image in, two feature maps and a pooled global vector out. Any timm model by name, or VGG16."""

from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn
from torchvision.models import VGG16_Weights, vgg16

from normmatch.errors import ConfigError, InputError, WeightsError
from normmatch.pretrained import first_line, load_weights

VGG16_LAST = 29  # relu5_3: what follows it in vgg16().features is the last pooling


class Features(NamedTuple):
    """What the head needs to know about an image; `NormMatch.encode` returns it."""

    maps: tuple[Tensor, Tensor]  # (B, C_l, h_l, w_l) each
    pooled: Tensor  # (B, G)
    size: tuple[int, int]  # height and width of the image, in whose pixels keypoints are given


class Standardize(nn.Module):
    """From [0, 1] to the mean and deviation that a backbone was trained with."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        return (image - self.mean) / self.std


class TimmBackbone(nn.Module):
    """A timm model. `layers` are two blocks of a ViT or two stages of a hierarchical model, counted from 0."""

    def __init__(self, name: str, layers: tuple[int, int], image_size: int, pretrained: bool) -> None:
        super().__init__()
        self.name, self.layers = name, list(layers)
        self.net = _create(name, image_size, pretrained)
        self.standardize = Standardize(self.net.pretrained_cfg["mean"], self.net.pretrained_cfg["std"])
        channels = [info["num_chs"] for info in self.net.feature_info]
        _check_layers(name, layers, len(channels))
        self.channels = (channels[layers[0]], channels[layers[1]])
        self.global_channels = channels[layers[1]]
        self.patch = self.net.patch_embed.patch_size[0] if hasattr(self.net, "blocks") else 1

    def forward(self, image: Tensor) -> Features:
        """Read images (B, 3, H, W) in [0, 1]."""
        height, width = image.shape[-2:]
        if height % self.patch or width % self.patch:
            raise InputError(
                f"the image is {width} x {height}, expected multiples of {self.name}'s patch, {self.patch}"
            )
        first, second = self.net.forward_intermediates(
            self.standardize(image), indices=self.layers, norm=True, intermediates_only=True
        )  # (B, C1, h1, w1), (B, C2, h2, w2)
        return Features((first, second), second.mean((2, 3)), (height, width))


class VGG16Backbone(nn.Module):
    """VGG16 as older matchers use it. `layers` are positions in `vgg16().features`: 20 is relu4_2, 25 is relu5_1."""

    def __init__(self, layers: tuple[int, int], pretrained: bool) -> None:
        super().__init__()
        self.layers = layers
        try:
            weights = VGG16_Weights.IMAGENET1K_V1 if pretrained else None
            self.net = vgg16(weights=weights).features[: VGG16_LAST + 1]
        except OSError as error:
            raise _no_hub("vgg16", error) from error
        self.standardize = Standardize(IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)
        _check_layers("vgg16", layers, len(self.net))
        widths = [layer.out_channels if isinstance(layer, nn.Conv2d) else 0 for layer in self.net]
        self.channels = (max(widths[: layers[0] + 1]), max(widths[: layers[1] + 1]))  # they only grow
        self.global_channels = max(widths)

    def forward(self, image: Tensor) -> Features:
        """Read images (B, 3, H, W) in [0, 1]."""
        x, maps = self.standardize(image), []
        for i, layer in enumerate(self.net):
            x = layer(x)
            if i in self.layers:
                maps.append(x)  # (B, C_l, h_l, w_l)
        return Features((maps[0], maps[1]), x.mean((2, 3)), (image.shape[-2], image.shape[-1]))


def make_backbone(name: str, layers: tuple[int, int], image_size: int, weights: str) -> TimmBackbone | VGG16Backbone:
    """A backbone by name, with weights from the hub ("hub"), none ("random"), or from a safetensors file (its path).

    A file has the keys of timm's model without classifier, or of torchvision's `vgg16().features`.
    """
    pretrained = weights == "hub"
    if name == "vgg16":
        backbone: TimmBackbone | VGG16Backbone = VGG16Backbone(layers, pretrained)
    else:
        backbone = TimmBackbone(name, layers, image_size, pretrained)
    if weights not in ("hub", "random"):
        load_weights(backbone.net, Path(weights))
    return backbone


def _create(name: str, image_size: int, pretrained: bool) -> Any:
    """A timm model without its classifier, for images of any size where its kind allows that."""
    if not timm.is_model(name):
        close = timm.list_models(f"*{name.split('_')[0]}*")[:3]
        hint = f", such as {', '.join(close)}" if close else ""
        raise ConfigError(f"model.backbone is {name!r}, expected vgg16 or the name of a timm model{hint}")
    options: dict[str, Any] = {}
    if "vit_" in name or name.startswith("test_vit"):
        options["dynamic_img_size"] = True  # the position grid is interpolated to the image
    elif name.startswith("swin"):
        options["img_size"] = image_size  # the windows are laid out for one size
    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=0, **options)
    except (OSError, RuntimeError) as error:
        raise _no_hub(name, error) from error


def _check_layers(name: str, layers: tuple[int, int], count: int) -> None:
    if not all(0 <= i < count for i in layers):
        raise ConfigError(f"model.backbone_layers is {layers}, expected numbers from 0 to {count - 1} for {name}")


def _no_hub(name: str, error: Exception) -> WeightsError:
    return WeightsError(
        f"the weights of backbone {name} could not be had from the hub ({first_line(error)}); "
        "pass a safetensors file as model.backbone_weights, or 'random'"
    )
