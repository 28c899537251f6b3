"""Do exported files compute what the network does? Run both and compare, for several sizes of everything."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from normmatch.errors import ExportError
from normmatch.export.graphs import ENCODED, HEAD_INPUTS, HEAD_OUTPUTS, image_step
from normmatch.model.network import NormMatch, equal_points

TOLERANCE = 1e-4
Runner = Callable[[Mapping[str, Tensor]], tuple[Tensor, ...]]


class Case(NamedTuple):
    """How many pairs, how many valid points each of their images has, and the images' sizes (H, W)."""

    points0: tuple[int, ...]
    points1: tuple[int, ...]
    size0: tuple[int, int]
    size1: tuple[int, int]


def onnx_runner(path: Path) -> Runner:
    """Runs an ONNX file on tensors by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        arrays = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        return tuple(torch.from_numpy(np.asarray(array)) for array in arrays)

    return run


def check_parity(model: NormMatch, encoder: Runner, head: Runner, free_size: bool) -> dict[str, float]:
    """The largest differences of encoder and head to the network, over several cases; images have one size or several.

    Maps and pooled vectors are compared as the head reads them, as unit vectors; the log-assignment as the share that
    it is the logarithm of. A match may be another one only where the assignments of both differ by no more.
    """
    training, device = model.training, next(model.parameters()).device
    found = {"encoder": 0.0, "head": 0.0}
    rng = torch.Generator().manual_seed(0)
    model.cpu().eval()
    try:
        for case in _cases(model.config.image_size, image_step(model) if free_size else 0):
            for name, difference in zip(found, _compare(model, encoder, head, case, rng), strict=True):
                found[name] = max(found[name], difference)
    finally:
        model.to(device).train(training)
    for name, difference in found.items():
        if not difference <= TOLERANCE:  # NaN is not either
            raise ExportError(
                f"the exported {name} differs from the network by {difference:.1e}, expected 1e-4 at most."
            )
    return found


def _cases(side: int, step: int) -> Iterator[Case]:
    square, wide, high = (side, side), (side, side + step), (side + 2 * step, side)
    yield Case((1,), (1,), square, square)
    yield Case((20,), (20,), square, wide)
    yield Case((3, 12, 6), (9, 2, 6), high, square)


@torch.no_grad()
def _compare(model: NormMatch, encoder: Runner, head: Runner, case: Case, rng: torch.Generator) -> tuple[float, float]:
    """The differences of encoder and head in one case; the head gets what the exported encoder saw."""
    data: dict[str, Any] = {}
    inputs: dict[str, Tensor] = {}
    differences = []
    for i, counts, size in (("0", case.points0, case.size0), ("1", case.points1, case.size1)):
        image = torch.rand(len(counts), 3, *size, generator=rng)
        expected = model.encode(image)
        found = encoder({"image": image})
        differences += [_unit_difference(*pair) for pair in zip(found, (*expected.maps, expected.pooled), strict=True)]
        keypoints = torch.rand(len(counts), max(counts), 2, generator=rng) * torch.tensor(size[::-1])
        data |= {f"features{i}": expected, f"keypoints{i}": keypoints}
        data[f"mask{i}"] = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)  # (B, N)
        inputs |= {name + i: value for name, value in zip(ENCODED, found, strict=True)}
        inputs[f"size{i}"] = torch.tensor(size[::-1], dtype=torch.float32)
    points = equal_points(data)
    inputs |= points
    expected_output = model.match(data | points)
    output = dict(zip(HEAD_OUTPUTS, head({name: inputs[name] for name in HEAD_INPUTS}), strict=True))
    return max(differences), _head_difference(output, expected_output)


def _unit_difference(found: Tensor, expected: Tensor) -> float:
    return float((F.normalize(found, dim=1) - F.normalize(expected, dim=1)).abs().max())


def _head_difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    assignment = expected["log_assignment"].exp()  # (B, N, N)
    differences = [(found["log_assignment"].exp() - assignment).abs().max()]
    for name in ("similarity", "matching_scores0", "matching_scores1"):
        differences.append((found[name] - expected[name]).abs().max())
    for name, shares in (("matches0", assignment), ("matches1", assignment.mT)):
        if not torch.equal(found[name] < 0, expected[name] < 0):
            return float("inf")  # a padded point is matched, or a point is not
        best, other = (shares.gather(2, side[name].clamp_min(0).unsqueeze(2)) for side in (expected, found))
        differences.append((best - other).abs().max())
    return float(torch.stack(differences).max())
