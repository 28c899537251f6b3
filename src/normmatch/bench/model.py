"""How fast a network matches: latency, throughput, stages, scaling with points and batch, cached images, files.

A result is a list of rows; a row is one figure of one way to run the network, in milliseconds a pair, and how many
times faster that is than the plain network, measured in the same process a moment before.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from normmatch.bench.inputs import (
    PHOTOGRAPH,
    PLAIN,
    Pairs,
    Variant,
    make_inputs,
    make_model,
    make_network,
    make_plain,
    write_photographs,
)
from normmatch.bench.timing import Row, measure, peak_memory
from normmatch.errors import DeviceError
from normmatch.geometry import make_crop, pad_points, place_keypoints
from normmatch.matching.backends.torch import TorchBackend
from normmatch.matching.decoding import decode
from normmatch.matching.matcher import Matcher
from normmatch.model.compiled.compile import bucket, fastest, with_kernels
from normmatch.model.network import NormMatch
from normmatch.model.sampling import node_features
from normmatch.model.spline import pseudo_coordinates
from normmatch.model.transformer import norm

Part = Literal["pair", "stages", "points", "batches", "cached", "files"]
Tensors = tuple[Tensor, ...]
PARTS: tuple[Part, ...] = get_args(Part)
BY_MATCHER = ("cached", "files")  # measured with `Matcher`, whose head is float32


@dataclass(frozen=True)
class Sizes:
    """What the figures are measured on."""

    points: int = 20  # keypoints per image
    curve: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000, 2000)  # of the head
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    images: int = 100  # remembered ones, all matched with each other
    seconds: float = 1.0  # for each figure


def bench_model(
    preset: str,
    device: torch.device,
    variants: Sequence[Variant],
    sizes: Sizes = Sizes(),
    weights: str | None = None,
    parts: Sequence[Part] = PARTS,
) -> Iterator[Row]:
    """All rows of a preset as they are measured; the plain network comes first, as the measure of the others."""
    model = make_model(preset, device, weights)
    plain = make_plain(model)
    base: dict[tuple, float] = {}  # milliseconds of the plain network
    for variant in (None, *variants):
        torch._dynamo.reset()  # what was compiled for the one before
        name = variant.name if variant else PLAIN
        network = make_network(model, variant) if variant else make_network(plain, Variant("float32"))
        measured: dict[Part, Iterator[Row]] = {
            "pair": _latency(network, model, sizes),
            "stages": _stage_rows(network, model, sizes),
            "points": _points_curve(network, model, sizes),
            "batches": _batch_curve(network, model, sizes),
            "cached": _cached(model, variant, sizes),
            "files": _files(model, variant, sizes),
        }
        with _named_warnings(f"{preset}, {name}"):
            agreement = _agreement(network, make_network(plain, Variant("float32")), model, sizes.points)
        for part in parts:
            if part in BY_MATCHER and variant and variant.head != "float32":
                continue
            with _named_warnings(f"{preset}, {name}"):
                found = list(measured[part])
            for row in found:
                key = row["what"], row["points"], row["batch"]
                if not variant:
                    base[key] = row["ms"]
                ratio = base[key] / row["ms"] if key in base else None
                yield {"preset": preset, "variant": name, "agreement": agreement, **row, "ratio": ratio}


@contextmanager
def _named_warnings(name: str) -> Iterator[None]:
    """Say each warning once, and of which way to run the network it speaks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for note in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)):
        warnings.warn(f"{name}: {note}", stacklevel=3)


def match_pairs(network: TorchBackend, pairs: Pairs, features: Sequence[Any] | None = None) -> np.ndarray:
    """Matches (B, N) as `Matcher` finds them, of images that are encoded here unless their features are given."""
    tokens = network.embed(network.encode(pairs.images) if features is None else features, pairs.keypoints)
    batch, points = len(tokens) // 2, len(pairs.keypoints[0])
    found = network.match(tokens[:batch], tokens[batch:])
    results = decode(*found, [(points, points)] * batch, one_to_one=False, mutual=False, min_score=0.0)
    return np.stack([result["matches0"] for result in results])


def _latency(network: TorchBackend, model: NormMatch, sizes: Sizes) -> Iterator[Row]:
    """One pair: pixels and keypoints in, the graph made on the way, matches out."""
    once = partial(match_pairs, network, make_inputs(model, sizes.points, 1))
    timing = measure(once, network.device, sizes.seconds)
    yield timing.row("pair", sizes.points, 1, peak_memory(once, network.device))


def _stage_rows(network: TorchBackend, model: NormMatch, sizes: Sizes) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        files = write_photographs(Path(folder), 2)
        for name, function in stages(network, model, sizes.points, files).items():
            yield measure(function, network.device, sizes.seconds / 2).row(f"stage: {name}", sizes.points, 1)


def _points_curve(network: TorchBackend, model: NormMatch, sizes: Sizes) -> Iterator[Row]:
    """The head alone: everything after the backbone, over the number of points."""
    for count in sizes.curve:
        pairs = make_inputs(model, count, 1)
        try:
            once = partial(match_pairs, network, pairs, network.encode(pairs.images))
            timing, memory = measure(once, network.device, sizes.seconds / 2), peak_memory(once, network.device)
        except (torch.OutOfMemoryError, DeviceError):
            return
        yield timing.row("head", count, 1, memory)


def _batch_curve(network: TorchBackend, model: NormMatch, sizes: Sizes) -> Iterator[Row]:
    """Throughput: pixels to matches. It ends where memory does, or growth."""
    best = 0.0
    for batch in sizes.batches:
        try:
            once = partial(match_pairs, network, make_inputs(model, sizes.points, batch))
            with warnings.catch_warnings():
                warnings.filterwarnings("error", ".* at a time are too many")  # halved batches are not this batch
                timing, memory = measure(once, network.device, sizes.seconds), peak_memory(once, network.device)
        except (torch.OutOfMemoryError, DeviceError, UserWarning):
            return
        row = timing.row("batch", sizes.points, batch, memory)
        yield row
        if row["pairs_per_second"] < 0.8 * best:
            return
        best = max(best, row["pairs_per_second"])


def _cached(model: NormMatch, variant: Variant | None, sizes: Sizes) -> Iterator[Row]:
    """All pairs of images that are remembered, by `Matcher`: pixels and keypoints in, the matches of every pair out."""
    images = sizes.images
    if images < 2:
        return
    device, rng = next(model.parameters()).device, np.random.default_rng(0)
    matcher = _matcher(model, variant, cache=images)
    size = matcher.backend.image_size
    pictures = [rng.integers(0, 256, (size, size, 3), np.uint8) for _ in range(images)]
    keypoints = [rng.uniform(0, size, (sizes.points, 2)) for _ in pictures]
    timing = measure(lambda: matcher.match_many(pictures, keypoints), device, sizes.seconds)
    yield timing.row("cached", sizes.points, images * (images - 1) // 2)


def _files(model: NormMatch, variant: Variant | None, sizes: Sizes) -> Iterator[Row]:
    """Two files to matches, by `Matcher`: nothing is remembered."""
    device, rng = next(model.parameters()).device, np.random.default_rng(0)
    matcher = _matcher(model, variant, cache=0)
    with tempfile.TemporaryDirectory() as folder:
        files = write_photographs(Path(folder), 2)
        keypoints = [rng.uniform(0, PHOTOGRAPH, (sizes.points, 2)) for _ in files]
        timing = measure(lambda: matcher.match(*files, *keypoints), device, sizes.seconds)
    yield timing.row("files", sizes.points, 1)


def _matcher(model: NormMatch, variant: Variant | None, cache: int) -> Matcher:
    device = str(next(model.parameters()).device)
    precision, compile = (variant.precision, variant.compile) if variant else ("float32", False)
    return Matcher(model, device=device, precision=precision, compile=compile, cache=cache)


def _agreement(network: TorchBackend, plain: TorchBackend, model: NormMatch, points: int, pairs: int = 4) -> float:
    """The share of keypoints for which a way to run the network finds the match that the plain one finds."""
    given = [make_inputs(model, points, 1, seed) for seed in range(pairs)]
    return float(np.mean([match_pairs(network, pair) == match_pairs(plain, pair) for pair in given]))


@torch.inference_mode()
def stages(network: TorchBackend, model: NormMatch, points: int, files: list[Path]) -> dict[str, Callable[[], Any]]:
    """The stages of a match as functions, in the order of the network; each has what the ones before would give it.

    Where the network is compiled, each stage is compiled by itself; together they take a little longer than the whole.
    """
    n = bucket(points, 8) if network.compiled else points
    device, size = network.device, model.config.image_size
    pairs = make_inputs(model, points, 1)
    images, keypoints = pairs.images, pairs.keypoints
    padded = {key: torch.from_numpy(value).to(device) for key, value in pad_points(keypoints, n).items()}
    xy, mask, adjacency = (padded[key] for key in ("keypoints", "mask", "adjacency"))  # (2, n, 2), (2, n), (2, n, n)
    maps = network.encode(images)
    first, second, pooled = (torch.cat(parts) for parts in zip(*((*m.maps, m.pooled) for m in maps), strict=True))
    head = with_kernels(network.head.plain, device) if network.compiled else network.head

    def sample(first: Tensor, second: Tensor, xy: Tensor) -> Tensors:
        return (node_features((first, second), xy, maps[0].size),)

    def spline(nodes: Tensor, xy: Tensor, adjacency: Tensor) -> Tensors:
        return (head.spline(nodes, pseudo_coordinates(xy, adjacency), adjacency),)

    def transformer(tokens: Tensor, mask: Tensor) -> Tensors:
        return (head.transformer(tokens, mask)[-1],)

    def assign(similarity: Tensor, mask: Tensor) -> Tensors:
        epsilon, rounds = head.config.sinkhorn_epsilon, head.config.sinkhorn_rounds
        return (head.log_sinkhorn(similarity, mask[:1], mask[1:], epsilon, rounds),)

    sampling, (nodes,) = _stage(network, sample, first, second, xy)
    convolution, (nodes,) = _stage(network, spline, nodes, xy, adjacency)
    tokens = norm(torch.cat([head.global_token(pooled).unsqueeze(1), nodes.float()], 1))  # (2, 1 + n, D)
    attention, (tokens,) = _stage(network, transformer, tokens, F.pad(mask, (1, 0), value=True))
    unit0, unit1 = tokens[:, 1:].chunk(2)
    similarity = (unit0 @ unit1.mT).float().masked_fill(~(mask[:1].unsqueeze(2) & mask[1:].unsqueeze(1)), 0.0)
    assignment, (log_assignment,) = _stage(network, assign, similarity, mask)
    arrays = similarity.cpu().numpy(), log_assignment.cpu().numpy()
    how: dict[str, Any] = {"one_to_one": False, "mutual": False, "min_score": 0.0}
    return {
        "decode and resize": lambda: [
            place_keypoints(k, make_crop(f, None, size, "")) for f, k in zip(files, keypoints, strict=True)
        ],
        "graph": lambda: pad_points(keypoints, n),
        "backbone": lambda: network.encode(images),
        "sampling": sampling,
        "spline": convolution,
        "transformer": attention,
        "Sinkhorn": assignment,
        "decoding": lambda: decode(*arrays, [(points, points)], **how),
    }


def _stage(
    network: TorchBackend, function: Callable[..., Tensors], *inputs: Tensor
) -> tuple[Callable[[], Tensors], Tensors]:
    """A stage of the head as the network runs it, compiled or not, and its result."""
    compiled = torch.compile(function, dynamic=False) if network.compiled else function
    run = fastest(compiled, function, network.device) if network.compiled else function
    return torch.inference_mode()(lambda: run(*inputs)), function(*inputs)
