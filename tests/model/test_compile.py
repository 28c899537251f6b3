"""The head (everything after the backbone) compiles into one graph, never anew for other masks, and exports to ONNX."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from normmatch import PRESETS, NormMatch
from normmatch.config import LossConfig
from normmatch.model.backbone import Features
from normmatch.model.network import MatchingHead, delaunay_batch
from normmatch.training.losses import MatchingLoss

SIZE, BATCH, POINTS = 64, 2, 8
COUNTS = [((8, 8), (8, 8)), ((5, 3), (4, 7)), ((1, 8), (2, 1)), ((3, 3), (6, 6))]  # valid points: images 0, images 1


class FlatHead(nn.Module):
    """The head with tensors for arguments, as exporters want it."""

    def __init__(self, head: MatchingHead, loss: MatchingLoss | None = None) -> None:
        super().__init__()
        self.head, self.loss = head, loss

    def forward(
        self,
        first0: Tensor, second0: Tensor, pooled0: Tensor, keypoints0: Tensor, mask0: Tensor, adjacency0: Tensor,
        first1: Tensor, second1: Tensor, pooled1: Tensor, keypoints1: Tensor, mask1: Tensor, adjacency1: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        features0 = Features((first0, second0), pooled0, (SIZE, SIZE))
        features1 = Features((first1, second1), pooled1, (SIZE, SIZE))
        points = {
            "keypoints0": keypoints0, "mask0": mask0, "adjacency0": adjacency0,
            "keypoints1": keypoints1, "mask1": mask1, "adjacency1": adjacency1,
        }  # fmt: skip
        if self.loss is None:
            return self.head(features0, features1, points)
        output = self.head.describe(features0, features1, points)
        here = torch.arange(POINTS).expand(BATCH, POINTS)
        gt_matches0 = torch.where(mask0 & mask1, here, -1)  # by number: any truth does
        return self.loss(output, {**points, "gt_matches0": gt_matches0})


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def model() -> NormMatch:
    torch.manual_seed(0)
    return NormMatch(PRESETS["tiny"]).eval()


def inputs(model: NormMatch, counts: tuple, seed: int = 0) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(seed)
    tensors: list[Tensor] = []
    for count in counts:
        with torch.no_grad():
            features = model.encode(torch.rand(BATCH, 3, SIZE, SIZE, generator=rng))
        mask = torch.arange(POINTS) < torch.tensor(count)[:, None]  # (B, N)
        keypoints = (torch.rand(BATCH, POINTS, 2, generator=rng) * SIZE).masked_fill(~mask.unsqueeze(2), 0.0)
        tensors += [*features.maps, features.pooled, keypoints, mask, delaunay_batch(keypoints, mask)]
    return tuple(tensors)


def close(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        if "matches" in key:
            assert torch.equal(actual[key], value), key
        else:
            atol = 2e-3 if key == "log_assignment" else 1e-4  # logarithms of next to nothing
            torch.testing.assert_close(actual[key], value, atol=atol, rtol=1e-4, msg=key)


def gradients(module: nn.Module, call: Any, arguments: tuple[Tensor, ...]) -> dict[str, Tensor]:
    module.zero_grad()
    call(*arguments)["loss"].backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def test_forward_is_one_graph_for_all_masks(model: NormMatch) -> None:
    counter = CompileCounterWithBackend("eager")
    flat = FlatHead(model.head)
    compiled = torch.compile(flat, fullgraph=True, backend=counter)
    with torch.no_grad():
        for seed, counts in enumerate(COUNTS):
            arguments = inputs(model, counts, seed)
            close(compiled(*arguments), flat(*arguments))
    assert counter.frame_count == 1


def test_training_is_one_graph_for_all_masks(model: NormMatch) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    flat = FlatHead(model.head, MatchingLoss(LossConfig())).train()
    compiled = torch.compile(flat, fullgraph=True, backend=counter)
    for seed, counts in enumerate(COUNTS):
        arguments = inputs(model, counts, seed)
        expected, found = gradients(flat, flat, arguments), gradients(flat, compiled, arguments)
        assert "loss.log_temperature" in expected
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-3, msg=name)
    assert counter.frame_count == 1
    flat.eval()


def test_inductor_agrees_forward_and_backward() -> None:
    torch.manual_seed(0)
    model = NormMatch(replace(PRESETS["tiny"], num_layers=1))  # all layers are alike, and compiling takes time
    flat = FlatHead(model.head, MatchingLoss(LossConfig())).train()
    compiled = torch.compile(flat, fullgraph=True)
    for seed, counts in enumerate(COUNTS[:2]):
        arguments = inputs(model, counts, seed)
        close(compiled(*arguments), flat(*arguments))
        expected, found = gradients(flat, flat, arguments), gradients(flat, compiled, arguments)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.filterwarnings("ignore")
def test_export_to_onnx(model: NormMatch, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    flat = FlatHead(model.head)
    arguments = inputs(model, COUNTS[1])
    names = [name + i for i in "01" for name in ("first", "second", "pooled", "keypoints", "mask", "adjacency")]
    outputs = list(flat(*arguments))
    torch.onnx.export(
        flat, arguments, tmp_path / "head.onnx", dynamo=True, verbose=False, input_names=names, output_names=outputs
    )
    session = onnxruntime.InferenceSession(tmp_path / "head.onnx", providers=["CPUExecutionProvider"])
    for seed, counts in enumerate(COUNTS):
        arguments = inputs(model, counts, seed)
        with torch.no_grad():
            expected = flat(*arguments)
        feed = {name: value.numpy() for name, value in zip(names, arguments, strict=True)}
        found = dict(zip(outputs, map(torch.from_numpy, session.run(outputs, feed)), strict=True))
        close(found, expected)
