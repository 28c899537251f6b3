"""What is timed: networks of a preset, plain and fast, and made-up pairs for them. Speed does not depend on weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from normmatch.config import PRESETS
from normmatch.errors import ConfigError
from normmatch.matching.backends.torch import TorchBackend
from normmatch.model.backbone import make_backbone
from normmatch.model.compiled.compile import CompiledHead
from normmatch.model.device import choose_precision
from normmatch.model.network import NormMatch, equal_points

PHOTOGRAPH = (640, 480)  # width and height of the files


@dataclass(frozen=True)
class Variant:
    """A way to run a network."""

    precision: str  # of the backbone
    head: str = "float32"  # precision of the rest, where it is compiled
    compile: bool = False

    @property
    def name(self) -> str:
        head = "" if self.head == "float32" else f", head {self.head}"
        return f"{self.precision}{head}{', compiled' if self.compile else ''}"


@dataclass(frozen=True, eq=False)
class Pairs:
    """B pairs as a backend takes them: the images of all first sides, then of all second ones."""

    images: np.ndarray  # (2B, 3, S, S) uint8
    keypoints: list[np.ndarray]  # (N, 2) float32 each


PLAIN = "plain"  # eager float32, timm's own attention: what every figure is compared with


def variants(
    device: torch.device, compile: bool, precisions: Sequence[str] = (), heads: Sequence[str] = ("float32",)
) -> list[Variant]:
    """The ways to measure on a device: each precision as it is, and compiled with each precision of the head."""
    if not precisions:
        half = str(choose_precision("auto", device)).removeprefix("torch.")
        precisions = ("bfloat16", "float16") if device.type == "cuda" else tuple(dict.fromkeys(("float32", half)))
    compiled = [Variant(name, head, True) for name in precisions for head in heads] if compile else []
    return [*(Variant(name) for name in precisions), *compiled]


def make_model(preset: str, device: torch.device, weights: str | None = None) -> NormMatch:
    """A network of a preset with random weights, or the one of a weights file."""
    if weights:
        return NormMatch.from_pretrained(weights).to(device)
    if preset not in PRESETS:
        raise ConfigError(f"the preset is {preset!r}, expected one of {', '.join(PRESETS)}")
    torch.manual_seed(0)
    model = NormMatch(replace(PRESETS[preset], backbone_weights="random"))
    for name, parameter in model.backbone.named_parameters():
        if parameter.ndim == 1 and not name.endswith("bias"):
            nn.init.ones_(parameter)  # timm starts the scales of blocks near 0: no match would depend on the blocks
    return model.to(device).eval()


def make_plain(model: NormMatch) -> NormMatch:
    """The same network with the backbone as timm wrote it."""
    config = replace(model.config, backbone_weights="random")
    plain = NormMatch(config)
    plain.backbone = make_backbone(config.backbone, config.backbone_layers, config.image_size, "random", fused=False)
    plain.load_state_dict(model.state_dict())
    return plain.to(next(model.parameters()).device).eval()


def make_network(model: NormMatch, variant: Variant) -> TorchBackend:
    """The network as `Matcher` runs it; a head in half precision, which `Matcher` has not, where that is asked for."""
    network = TorchBackend(model, str(next(model.parameters()).device), variant.precision, variant.compile)
    if variant.compile and variant.head != "float32":
        dtype = choose_precision(variant.head, network.device)
        network.head = CompiledHead(network.head.plain, network.device, dtype)
    return network


def make_pairs(model: NormMatch, points: int, batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Images (B, 3, S, S) on the network's device, and keypoints with their graphs on the CPU, as training has them."""
    rng = torch.Generator().manual_seed(seed)
    size, device = model.config.image_size, next(model.parameters()).device
    keypoints = {f"keypoints{i}": torch.rand(batch, points, 2, generator=rng) * size for i in "01"}
    images = {f"image{i}": torch.rand(1, 3, size, size, generator=rng).to(device) for i in "01"}
    return {**{k: v.repeat(batch, 1, 1, 1) for k, v in images.items()}, **equal_points(keypoints)}


def make_inputs(model: NormMatch, points: int, batch: int, seed: int = 0) -> Pairs:
    """Noise as images, and keypoints."""
    rng, size = np.random.default_rng(seed), model.config.image_size
    image0, image1 = rng.integers(0, 256, (2, 1, 3, size, size), np.uint8)
    keypoints = [rng.uniform(0, size, (points, 2)).astype(np.float32) for _ in range(2 * batch)]
    return Pairs(np.concatenate([image0] * batch + [image1] * batch), keypoints)


def write_photographs(folder: Path, count: int) -> list[Path]:
    """JPEG files with some structure in them."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
        paths.append(folder / f"{i}.jpg")
        coarse.resize(PHOTOGRAPH, Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return paths
