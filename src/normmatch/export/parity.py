"""Do exported graphs compute what the network does? Run both and compare, for several sizes of everything."""

from pathlib import Path

import numpy as np

from normmatch.errors import ExportError
from normmatch.matching.backends.onnx import OnnxBackend
from normmatch.matching.backends.torch import TorchBackend
from normmatch.model.network import NormMatch
from normmatch.weights.graphs import NAMES, Graphs

TOLERANCE = 1e-4
COUNTS = ((1, 1), (20, 20), (3, 9), (12, 2), (6, 6))  # points of the images of a pair


def check_parity(model: NormMatch, file: Path, graphs: Graphs) -> dict[str, float]:
    """The largest differences of the graphs' results to the network's; more than 1e-4 is an ExportError.

    Maps and pooled vectors are compared as the head reads them, as unit vectors; the log-assignment as the share that
    it is the logarithm of.
    """
    torch, onnx = TorchBackend(model, "cpu", "float32", False), OnnxBackend(file, "cpu", "float32", False, graphs)
    rng = np.random.default_rng(0)
    size, step = model.config.image_size, graphs.step
    images = rng.integers(0, 256, (2 * len(COUNTS), 3, size, size), dtype=np.uint8)
    points = [rng.uniform(0, size, (n, 2)).astype(np.float32) for pair in COUNTS for n in pair]
    features, expected = onnx.encode(images), torch.encode(images)
    found = dict.fromkeys(NAMES, 0.0)
    for one, other in zip(features, expected, strict=True):
        parts = zip((one.first, one.second, one.pooled), (*other.maps, other.pooled), strict=True)
        found["encoder"] = max(found["encoder"], *(_unit_difference(a, b[0].numpy()) for a, b in parts))
    if step and onnx.blocks:
        blocks, wide = onnx.blocks, np.concatenate([images[:2], images[:2, :, :, :step]], 3)
        found["encoder"] = max(found["encoder"], _unit_difference(onnx.maps(wide, blocks), torch.maps(wide, blocks), 1))
    tokens, expected_tokens = onnx.embed(features, points), torch.embed(expected, points)
    found["embed"] = max(float(np.abs(a - b.numpy()).max()) for a, b in zip(tokens, expected_tokens, strict=True))
    answers = onnx.match(tokens[::2], tokens[1::2])
    wanted = torch.match(expected_tokens[::2], expected_tokens[1::2])
    apart = answers[0] - wanted[0], np.exp(answers[1]) - np.exp(wanted[1])
    found["match"] = float(max(np.abs(difference).max() for difference in apart))
    for name, difference in found.items():
        if not difference <= TOLERANCE:  # NaN is not either
            raise ExportError(
                f"the exported {name} differs from the network by {difference:.1e}, expected 1e-4 at most."
            )
    return found


def _unit_difference(found: np.ndarray, expected: np.ndarray, axis: int = 0) -> float:
    first, second = (x / np.maximum(np.linalg.norm(x, axis=axis, keepdims=True), 1e-12) for x in (found, expected))
    return float(np.abs(first - second).max())
