"""Backbones: an image in, two feature maps and a pooled global vector out. Any timm model by name, or VGG16."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
import torch.nn.functional as F
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import DropPath
from timm.models.swin_transformer_v2 import PatchMerging, SwinTransformerV2, SwinTransformerV2Block
from torch import Tensor, nn

from normmatch.config import ModelConfig
from normmatch.errors import ConfigError, InputError, WeightsError, first_line
from normmatch.model.window_attention import keep_biases, use_fused_attention
from normmatch.weights import check_tensors, read_tensors

VGG16_LAST = 29  # relu5_3: what follows it in vgg16().features is the last pooling
VGG16_STRIDE = 16  # of relu5_3
INTERPOLATING = ("vision_transformer", "deit", "eva")  # timm's files of ViTs that fit their position grid to the image


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
        """Images (B, 3, H, W) as floats in [0, 1], or as bytes."""
        if not image.is_floating_point():
            image = image.float() / 255
        return (image.to(self.mean.dtype) - self.mean) / self.std


class PatchProduct(nn.Conv2d):
    """A ViT's first layer as a matrix product: its patches do not overlap, and cuDNN is slow at that in bf16.

    A convolution with its kernel as stride, with another `forward`; its weights are the convolution's own.
    """

    def forward(self, image: Tensor) -> Tensor:
        """Patches of images (B, 3, H, W), whose sides are multiples of the patch, as (B, C, h, w)."""
        rows, columns = self.kernel_size
        patches = image.unflatten(3, (-1, columns)).unflatten(2, (-1, rows))  # (B, 3, h, rows, w, columns)
        patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(3)  # (B, h, w, 3 * rows * columns)
        return F.linear(patches, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


class TimmBackbone(nn.Module):
    """A timm model. `layers` are two blocks of a ViT or two stages of a hierarchical model, counted from 0.

    A stage's map is read before it is merged into the next stage's grid: for Swin that is a finer first map than the
    one that the paper's code reads after merging, and the same code for every kind of model.
    """

    def __init__(self, name: str, layers: tuple[int, int], image_size: int, pretrained: bool) -> None:
        super().__init__()
        self.name, self.layers = name, list(layers)
        options = _size_options(name, image_size)
        self.channels = _dry_run(name, layers, image_size, options)
        self.global_channels = self.channels[1]
        self.net = _create(name, pretrained, options)
        self.standardize = Standardize(self.net.pretrained_cfg["mean"], self.net.pretrained_cfg["std"])
        self.fixed_size = options.get("img_size")
        self.patch = self.net.patch_embed.patch_size[0] if "dynamic_img_size" in options else 1
        self.smallest = self.net.feature_info[layers[1]]["reduction"]
        self.step = 0 if self.fixed_size else self.patch if self.patch > 1 else self.smallest  # sizes are multiples

    def forward(self, image: Tensor) -> Features:
        """Read images (B, 3, H, W) in [0, 1]."""
        first, second = self.maps(image, self.layers)  # (B, C1, h1, w1), (B, C2, h2, w2)
        return Features((first, second), second.mean((2, 3)), (image.shape[-2], image.shape[-1]))

    def maps(self, image: Tensor, blocks: Sequence[int]) -> list[Tensor]:
        """The maps (B, C_l, h_l, w_l) of any blocks or stages up to the last of `layers`, in rising order."""
        height, width = image.shape[-2:]
        if self.fixed_size and (height, width) != (self.fixed_size, self.fixed_size):
            raise _wrong_size(image, f"the {self.fixed_size} x {self.fixed_size} that {self.name} was made for")
        if height % self.patch or width % self.patch:
            raise _wrong_size(image, f"multiples of {self.name}'s patch, {self.patch}")
        if min(height, width) < self.smallest:
            raise _wrong_size(image, f"at least {self.smallest} pixels a side for {self.name}")
        return self.net.forward_intermediates(
            self.standardize(image), indices=list(blocks), norm=True, intermediates_only=True
        )


class VGG16Backbone(nn.Module):
    """VGG16 as older matchers use it. `layers` are positions in `vgg16().features`: 20 is relu4_2, 25 is relu5_1."""

    step = VGG16_STRIDE

    def __init__(self, layers: tuple[int, int], pretrained: bool) -> None:
        super().__init__()
        self.layers = layers
        self.net = _create("vgg16", pretrained, {}).features[: VGG16_LAST + 1]
        for layer in self.net:
            if isinstance(layer, nn.ReLU):
                layer.inplace = False  # or it would change the map of the convolution before it
        self.standardize = Standardize(IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)
        _check_layers("vgg16", layers, len(self.net))
        widths = [layer.out_channels if isinstance(layer, nn.Conv2d) else 0 for layer in self.net]
        self.channels = (max(widths[: layers[0] + 1]), max(widths[: layers[1] + 1]))  # they only grow
        self.global_channels = max(widths)

    def forward(self, image: Tensor) -> Features:
        """Read images (B, 3, H, W) in [0, 1]."""
        if min(image.shape[-2:]) < VGG16_STRIDE:
            raise _wrong_size(image, f"at least {VGG16_STRIDE} pixels a side for vgg16")
        x, maps = self.standardize(image), []
        for i, layer in enumerate(self.net):
            x = layer(x)
            if i in self.layers:
                maps.append(x)  # (B, C_l, h_l, w_l)
        return Features((maps[0], maps[1]), x.mean((2, 3)), (image.shape[-2], image.shape[-1]))


def make_backbone(
    name: str, layers: tuple[int, int], image_size: int, weights: str, fused: bool = True
) -> TimmBackbone | VGG16Backbone:
    """A backbone by name, with weights from the hub ("hub"), none ("random"), or from a safetensors file (its path).

    A file has the keys of timm's model without classifier, or of torchvision's `vgg16().features`. Without `fused` a
    network runs as timm wrote it: the plain baseline.
    """
    pretrained = weights == "hub"
    if name == "vgg16":
        backbone: TimmBackbone | VGG16Backbone = VGG16Backbone(layers, pretrained)
    else:
        backbone = TimmBackbone(name, layers, image_size, pretrained)
    if weights not in ("hub", "random"):
        load_weights(backbone.net, Path(weights))
    if isinstance(backbone, TimmBackbone):
        _prune(backbone)
        if fused and isinstance(backbone.net, SwinTransformerV2):
            use_fused_attention(backbone.net)
        first = getattr(getattr(backbone.net, "patch_embed", None), "proj", None)
        if fused and type(first) is nn.Conv2d and first.kernel_size == first.stride:
            first.__class__ = PatchProduct  # what it holds stays what it was, so weights load as before
    return backbone


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a safetensors file into a module; every tensor must be there and fit."""
    tensors = read_tensors(path)
    check_tensors(path, tensors, {k: (tuple(v.shape), v.is_floating_point()) for k, v in module.state_dict().items()})
    module.load_state_dict({key: torch.from_numpy(value) for key, value in tensors.items()})


def prepare_for_inference(backbone: nn.Module, dtype: torch.dtype) -> None:
    """Keep position biases, and cast matrices once, where autocast would cast them for every image."""
    if isinstance(backbone, TimmBackbone) and isinstance(backbone.net, SwinTransformerV2):
        keep_biases(backbone.net)
    for module in backbone.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0  # for training only; but each block has its own, and would be compiled for it
        elif isinstance(module, nn.Linear | nn.Conv2d):
            module.to(dtype)


def check_fits_file(config: ModelConfig, file: Path) -> None:
    """Refuse a backbone with more parameters than a file has bytes, before it takes the memory of them."""
    with torch.device("meta"):
        backbone = make_backbone(config.backbone, config.backbone_layers, config.image_size, "random")
    count, size = sum(p.numel() for p in backbone.parameters()), file.stat().st_size
    if count > size:
        raise WeightsError(
            f"weights file {file} has {size:,} bytes, too few for the {count:,} parameters of {config.backbone}"
        )


def _prune(backbone: TimmBackbone) -> None:
    """Take away what comes after the second map: it is never run.

    A ViT's last norm is for all of its maps. That of a network in stages is for the last stage alone; timm would apply
    it to the last stage that is left, whose width is another.
    """
    stages = backbone.net.feature_info
    in_stages = len({stage["reduction"] for stage in stages}) > 1
    last_is_gone = max(backbone.layers) < len(stages) - 1
    backbone.net.prune_intermediate_layers(backbone.layers, prune_norm=in_stages and last_is_gone, prune_head=True)


def vit_blocks(backbone: nn.Module) -> list[nn.Module]:
    """The blocks of a ViT; none of any other backbone."""
    return list(backbone.net.blocks) if isinstance(backbone, TimmBackbone) and backbone.patch > 1 else []


def compiled_parts(backbone: nn.Module) -> list[nn.Module]:
    """What is compiled part by part: the blocks of a ViT or a SwinV2, which share their code, and the patches before.

    Others are compiled as a whole, and so is a SwinV2 that drops blocks in training: it does so at a rate for each, and
    code is made for a rate.
    """
    modules = list(backbone.modules())
    blocks = vit_blocks(backbone)
    if not any(isinstance(module, DropPath) and module.drop_prob for module in modules):
        blocks += [module for module in modules if isinstance(module, SwinTransformerV2Block | PatchMerging)]
    return [backbone.standardize, backbone.net.patch_embed, *blocks] if blocks else [backbone]  # type: ignore


def _size_options(name: str, image_size: int) -> dict[str, Any]:
    """What timm needs to know about the size of the images."""
    if not timm.is_model(name):
        close = timm.list_models(f"*{name.split('_')[0]}*")[:3]
        hint = f", such as {', '.join(close)}" if close else ""
        raise ConfigError(f"model.backbone is {name!r}, expected vgg16 or the name of a timm model{hint}")
    if timm.models.model_entrypoint(name).__module__.endswith(INTERPOLATING):
        return {"dynamic_img_size": True}  # any multiple of the patch
    if getattr(timm.models.get_pretrained_cfg(name.split(".")[0]), "fixed_input_size", False):
        return {"img_size": image_size}  # the windows of a Swin are laid out for one size
    return {}


def _dry_run(name: str, layers: tuple[int, int], image_size: int, options: dict[str, Any]) -> tuple[int, int]:
    """Channels of the two maps, by a run without weights or arithmetic: what cannot be is found before a download."""
    try:
        with torch.device("meta"):
            net: Any = timm.create_model(name, num_classes=0, **options).eval()
            if not hasattr(net, "forward_intermediates") or not hasattr(net, "feature_info"):
                raise TypeError("it has no forward_intermediates")
            _check_layers(name, layers, len(net.feature_info))
            image = torch.empty(1, 3, image_size, image_size)
            maps = net.forward_intermediates(image, indices=list(layers), norm=True, intermediates_only=True)
            if any(m.ndim != 4 for m in maps):
                raise TypeError(f"its intermediate results of shape {tuple(maps[0].shape)} are no maps (B, C, h, w)")
    except ConfigError:
        raise
    except Exception as error:  # timm raises whatever it stumbles on: AssertionError, AttributeError, RuntimeError ...
        raise ConfigError(
            f"model.backbone {name} gives no feature maps of images of model.image_size {image_size}: "
            f"{first_line(error)}"
        ) from error
    return maps[0].shape[1], maps[1].shape[1]


def _create(name: str, pretrained: bool, options: dict[str, Any]) -> Any:
    """A timm model without its classifier."""
    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=0, **options)
    except Exception as error:  # of the hub, of its http library, of the disk
        raise WeightsError(
            f"the weights of backbone {name} could not be had from the hub ({first_line(error)}); "
            "pass a safetensors file as model.backbone_weights, or 'random'"
        ) from error


def _check_layers(name: str, layers: tuple[int, int], count: int) -> None:
    if not all(0 <= i < count for i in layers):
        raise ConfigError(f"model.backbone_layers is {layers}, expected numbers from 0 to {count - 1} for {name}")


def _wrong_size(image: Tensor, expected: str) -> InputError:
    height, width = image.shape[-2:]
    return InputError(f"the image is {width} x {height}, expected {expected}")
