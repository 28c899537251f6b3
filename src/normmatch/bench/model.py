"""How fast a network matches: a pair, its head over points, throughput over batches, remembered images, files.

Each figure is also a ratio to the plain network, measured in the same process a moment before. Speed does not depend
on weights, so they are random.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image

from normmatch.bench.timing import Row, Timing, measure
from normmatch.config import PRESETS
from normmatch.errors import ConfigError, DeviceError
from normmatch.matching.backends.torch import TorchBackend
from normmatch.matching.decoding import decode
from normmatch.matching.matcher import Matcher
from normmatch.model.backbone import make_backbone
from normmatch.model.device import choose_precision
from normmatch.model.network import NormMatch

Part = Literal["pair", "points", "batches", "cached", "files"]
PARTS: tuple[Part, ...] = get_args(Part)
PHOTOGRAPH = (640, 480)  # width and height of the files
TOO_LARGE = (torch.OutOfMemoryError, DeviceError, UserWarning)


@dataclass(frozen=True)
class Variant:
    """A way to run a network. Plain is with timm's own attention: what every figure is compared with."""

    precision: str = "float32"  # of the backbone
    compile: bool = False
    plain: bool = False

    @property
    def name(self) -> str:
        return "plain" if self.plain else self.precision + (", compiled" if self.compile else "")


@dataclass(frozen=True)
class Sizes:
    """What the figures are measured on."""

    points: int = 20  # keypoints per image
    curve: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000, 2000)  # of the head
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    images: int = 100  # remembered ones, all matched with each other
    seconds: float = 1.0  # for each figure


def variants(device: torch.device, compile: bool, precisions: Sequence[str] = ()) -> list[Variant]:
    """The ways to measure on a device: each precision as it is, and compiled."""
    if not precisions:
        half = str(choose_precision("auto", device)).removeprefix("torch.")
        precisions = ("bfloat16", "float16") if device.type == "cuda" else tuple(dict.fromkeys(("float32", half)))
    return [Variant(name, compiled) for compiled in (False, True)[: 1 + compile] for name in precisions]


def make_model(preset: str, device: torch.device) -> NormMatch:
    """A network of a preset with random weights."""
    if preset not in PRESETS:
        raise ConfigError(f"the preset is {preset!r}, expected one of {', '.join(PRESETS)}")
    torch.manual_seed(0)
    return NormMatch(replace(PRESETS[preset], backbone_weights="random")).to(device).eval()


def make_plain(model: NormMatch) -> NormMatch:
    """The same network with the backbone as timm wrote it."""
    config = replace(model.config, backbone_weights="random")
    plain = NormMatch(config)
    plain.backbone = make_backbone(config.backbone, config.backbone_layers, config.image_size, "random", fused=False)
    plain.load_state_dict(model.state_dict())
    return plain.to(next(model.parameters()).device).eval()


@dataclass(frozen=True, eq=False)
class Bench:
    """A network to be timed, and how its figures are called."""

    preset: str
    model: NormMatch
    variant: Variant
    device: torch.device
    sizes: Sizes

    def time(self, function: Callable[[], Any], what: str, points: int, batch: int) -> Row:
        timing: Timing = measure(function, self.device, self.sizes.seconds)
        return timing.row(self.preset, self.variant.name, what, points, batch)

    def network(self) -> TorchBackend:
        return TorchBackend(self.model, str(self.device), self.variant.precision, self.variant.compile)

    def matcher(self, cache: int) -> Matcher:
        how = {"precision": self.variant.precision, "compile": self.variant.compile, "cache": cache}
        return Matcher(self.model, device=str(self.device), **how)  # type: ignore[arg-type]


def bench_model(
    preset: str,
    device: torch.device,
    variants: Sequence[Variant],
    sizes: Sizes = Sizes(),
    parts: Sequence[Part] = PARTS,
) -> Iterator[Row]:
    """All rows of a preset as they are measured; the plain network comes first, as the measure of the others."""
    model = make_model(preset, device)
    base: dict[tuple, float] = {}  # milliseconds of the plain network
    for variant in (Variant(plain=True), *variants):
        torch._dynamo.reset()  # what was compiled for the one before
        bench = Bench(preset, make_plain(model) if variant.plain else model, variant, device, sizes)
        for part in parts:
            for row in _measure(part, bench):
                key = row.what, row.points, row.batch
                if variant.plain:
                    base[key] = row.ms
                yield replace(row, ratio=base[key] / row.ms if key in base else None)


def _measure(part: Part, bench: Bench) -> Iterator[Row]:
    if part == "pair":
        once = partial(match_pairs, bench.network(), make_inputs(bench.model, bench.sizes.points, 1))
        return iter([bench.time(once, "pair", bench.sizes.points, 1)])
    if part == "points":
        return _points_curve(bench)
    if part == "batches":
        return _batch_curve(bench, bench.network())
    return iter([_cached(bench) if part == "cached" else _files(bench)])


@dataclass(frozen=True, eq=False)
class Pairs:
    """B pairs as a backend takes them: the images of all first sides, then of all second ones."""

    images: np.ndarray  # (2B, 3, S, S) uint8
    keypoints: list[np.ndarray]  # (N, 2) float32 each


def make_inputs(model: NormMatch, points: int, batch: int) -> Pairs:
    """Noise as images, and keypoints."""
    rng, size = np.random.default_rng(0), model.config.image_size
    image0, image1 = rng.integers(0, 256, (2, 1, 3, size, size), np.uint8)
    keypoints = [rng.uniform(0, size, (points, 2)).astype(np.float32) for _ in range(2 * batch)]
    return Pairs(np.concatenate([image0] * batch + [image1] * batch), keypoints)


def match_pairs(network: TorchBackend, pairs: Pairs, features: Sequence[Any] | None = None) -> np.ndarray:
    """Matches (B, N) as `Matcher` finds them, of images that are encoded here unless their features are given."""
    tokens = network.embed(network.encode(pairs.images) if features is None else features, pairs.keypoints)
    batch, points = len(tokens) // 2, len(pairs.keypoints[0])
    found = network.match(tokens[:batch], tokens[batch:])
    results = decode(*found, [(points, points)] * batch, one_to_one=False, mutual=False, min_score=0.0)
    return np.stack([result["matches0"] for result in results])


def _points_curve(bench: Bench) -> Iterator[Row]:
    """The head alone: everything after the backbone, over the number of points."""
    network = bench.network()
    for count in bench.sizes.curve:
        pairs = make_inputs(bench.model, count, 1)
        try:
            yield bench.time(partial(match_pairs, network, pairs, network.encode(pairs.images)), "head", count, 1)
        except TOO_LARGE:
            return


def _batch_curve(bench: Bench, network: TorchBackend) -> Iterator[Row]:
    """Throughput: pixels to matches. It ends where memory does, or growth."""
    best, points = 0.0, bench.sizes.points
    for batch in bench.sizes.batches:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", ".* at a time are too many")  # halved batches are not this batch
                pairs = make_inputs(bench.model, points, batch)
                row = bench.time(partial(match_pairs, network, pairs), "batch", points, batch)
        except TOO_LARGE:
            return
        yield row
        if row.pairs_per_second < 0.8 * best:
            return
        best = max(best, row.pairs_per_second)


def _cached(bench: Bench) -> Row:
    """All pairs of images that are remembered, by `Matcher`: pixels and keypoints in, the matches of every pair out."""
    count, points, size = bench.sizes.images, bench.sizes.points, bench.model.config.image_size
    matcher, rng = bench.matcher(count), np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (size, size, 3), np.uint8) for _ in range(count)]
    keypoints = [rng.uniform(0, size, (points, 2)) for _ in pictures]
    return bench.time(lambda: matcher.match_many(pictures, keypoints), "cached", points, count * (count - 1) // 2)


def _files(bench: Bench) -> Row:
    """Two files to matches, by `Matcher`: nothing is remembered."""
    matcher, rng, points = bench.matcher(0), np.random.default_rng(0), bench.sizes.points
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.jpg" for i in range(2)]
        for file in files:  # with some structure in them
            coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
            coarse.resize(PHOTOGRAPH, Image.Resampling.BICUBIC).save(file, quality=90)
        keypoints = [rng.uniform(0, PHOTOGRAPH, (points, 2)) for _ in files]
        return bench.time(lambda: matcher.match(*files, *keypoints), "files", points, 1)
