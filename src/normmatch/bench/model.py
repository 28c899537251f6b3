"""How fast a network matches: latency, throughput, stages, scaling with points and batch, cached images, files.

A result is a list of rows; a row is one figure of one way to run the network, in milliseconds a pair, and how many
times faster that is than the plain network, measured in the same process a moment before.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from normmatch.bench.inputs import (
    PHOTOGRAPH,
    PLAIN,
    Variant,
    make_model,
    make_network,
    make_pairs,
    make_plain,
    without_graphs,
    write_photographs,
)
from normmatch.bench.stages import stages
from normmatch.bench.timing import Timing, measure, peak_memory
from normmatch.errors import DeviceError
from normmatch.matching.matcher import Matcher
from normmatch.model.compiled.compile import FastNetwork
from normmatch.model.network import NormMatch

Row = dict[str, Any]
Runner = Callable[[dict[str, Any]], dict[str, Tensor]]
Part = Literal["pair", "stages", "points", "batches", "cached", "files"]
PARTS: tuple[Part, ...] = get_args(Part)
BY_MATCHER = ("cached", "files")  # measured with `Matcher`, whose head is float32


def bench_model(
    preset: str,
    device: torch.device,
    variants: Sequence[Variant],
    *,
    points: int = 20,
    curve: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000, 2000),
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
    images: int = 100,
    seconds: float = 1.0,
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
        network = make_network(model, variant) if variant else FastNetwork(plain, precision="float32")
        run: Runner = network.match if variant else _plain_runner(plain)
        measured: dict[Part, Iterator[Row]] = {
            "pair": _latency(run, model, points, seconds),
            "stages": _stage_rows(network, model, points, seconds),
            "points": _points_curve(network, model, curve, seconds),
            "batches": _batch_curve(run, model, points, batches, seconds),
            "cached": _cached(model, variant, points, images, seconds),
            "files": _files(model, variant, points, seconds),
        }
        with _named_warnings(f"{preset}, {name}"):
            agreement = _agreement(run, _plain_runner(plain), model, points)
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


def _plain_runner(plain: NormMatch) -> Runner:
    device = next(plain.parameters()).device

    @torch.inference_mode()
    def run(data: dict[str, Any]) -> dict[str, Tensor]:
        on_device = {key: value.to(device) if isinstance(value, Tensor) else value for key, value in data.items()}
        return plain.match(on_device)

    return run


def _row(what: str, timing: Timing, points: int, batch: int, memory: float | None = None) -> Row:
    """Times are for a pair, so that batches compare."""
    return {
        "what": what,
        "points": points,
        "batch": batch,
        "ms": timing.median / batch,
        "low": timing.low / batch,
        "high": timing.high / batch,
        "best": timing.best / batch,
        "runs": timing.runs,
        "pairs_per_second": 1000 * batch / timing.median,
        "memory_mb": memory,
    }


def _latency(run: Runner, model: NormMatch, points: int, seconds: float) -> Iterator[Row]:
    """One pair: images on the device and keypoints in, the graph made on the way, matches back on the CPU."""
    device = next(model.parameters()).device
    once = _caller(run, without_graphs(make_pairs(model, points, 1)))
    yield _row("pair", measure(once, device, seconds), points, 1, peak_memory(once, device))


def _stage_rows(network: FastNetwork, model: NormMatch, points: int, seconds: float) -> Iterator[Row]:
    device = next(model.parameters()).device
    with tempfile.TemporaryDirectory() as folder:
        files = write_photographs(Path(folder), 2)
        for name, function in stages(network, model, points, files).items():
            yield _row(f"stage: {name}", measure(function, device, seconds / 2), points, 1)


def _points_curve(network: FastNetwork, model: NormMatch, curve: Sequence[int], seconds: float) -> Iterator[Row]:
    """The head alone: everything after the backbone, graphs given, points padded on the way, over their number."""
    for count in curve:
        data = make_pairs(model, count, 1)
        features0, features1 = (network.encode(data.pop(f"image{i}")) for i in "01")
        try:
            once = _caller(network.match, {**data, "features0": features0, "features1": features1})
            timing, memory = measure(once, network.device, seconds / 2), peak_memory(once, network.device)
        except (torch.OutOfMemoryError, DeviceError):
            return
        yield _row("head", timing, count, 1, memory)


def _batch_curve(run: Runner, model: NormMatch, points: int, batches: Sequence[int], seconds: float) -> Iterator[Row]:
    """Throughput: images to matches, graphs given, as a loader would. It ends where memory does, or growth."""
    device, best = next(model.parameters()).device, 0.0
    for batch in batches:
        try:
            once = _caller(run, make_pairs(model, points, batch))
            with warnings.catch_warnings():
                warnings.filterwarnings("error", ".* at a time are too many")  # halved batches are not this batch
                row = _row("batch", measure(once, device, seconds), points, batch, peak_memory(once, device))
        except (torch.OutOfMemoryError, DeviceError, UserWarning):
            return
        yield row
        if row["pairs_per_second"] < 0.8 * best:
            return
        best = max(best, row["pairs_per_second"])


def _caller(run: Runner, data: dict[str, Any]) -> Callable[[], Tensor]:
    return lambda: run(data)["matches0"].cpu()


def _cached(model: NormMatch, variant: Variant | None, points: int, images: int, seconds: float) -> Iterator[Row]:
    """All pairs of images that are remembered, by `Matcher`: pixels and keypoints in, the matches of every pair out."""
    if images < 2:
        return
    device, rng = next(model.parameters()).device, np.random.default_rng(0)
    matcher = _matcher(model, variant, cache=images)
    size = matcher.backend.image_size
    pictures = [rng.integers(0, 256, (size, size, 3), np.uint8) for _ in range(images)]
    keypoints = [rng.uniform(0, size, (points, 2)) for _ in pictures]
    timing = measure(lambda: matcher.match_many(pictures, keypoints), device, seconds)
    yield _row("cached", timing, points, images * (images - 1) // 2)


def _files(model: NormMatch, variant: Variant | None, points: int, seconds: float) -> Iterator[Row]:
    """Two files to matches, by `Matcher`: nothing is remembered."""
    device, rng = next(model.parameters()).device, np.random.default_rng(0)
    matcher = _matcher(model, variant, cache=0)
    with tempfile.TemporaryDirectory() as folder:
        files = write_photographs(Path(folder), 2)
        keypoints = [rng.uniform(0, PHOTOGRAPH, (points, 2)) for _ in files]
        timing = measure(lambda: matcher.match(*files, *keypoints), device, seconds)
    yield _row("files", timing, points, 1)


def _matcher(model: NormMatch, variant: Variant | None, cache: int) -> Matcher:
    device = str(next(model.parameters()).device)
    precision, compile = (variant.precision, variant.compile) if variant else ("float32", False)
    return Matcher(model, device=device, precision=precision, compile=compile, cache=cache)


def _agreement(run: Runner, plain: Runner, model: NormMatch, points: int, pairs: int = 4) -> float:
    """The share of keypoints for which a way to run the network finds the match that the plain one finds."""
    found = []
    for seed in range(pairs):
        data = make_pairs(model, points, 1, seed)
        found.append(run(data)["matches0"].cpu() == plain(data)["matches0"].cpu())
    return torch.stack(found).float().mean().item()
