"""CUDA graphs, with a stand-in for CUDA where there is none: what is copied in and out, and how often is recorded."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from normmatch.model.compiled import cuda_graph
from normmatch.model.compiled.cuda_graph import WARM_UP, CudaGraphs, RecordedStep

CPU = torch.device("cpu")


class FakeGraph:
    """Recording remembers nothing; the test's function writes its results to the same place every time."""

    replay: Any = None


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Torch's CUDA functions replaced by ones that run at once on the CPU; a replay runs what was recorded."""
    recordings: list[int] = []
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(synchronize=bool, record=bool))

    def graph(recording: FakeGraph, pool: Any, stream: Any, capture_error_mode: str) -> Any:
        recordings.append(1)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", graph)
    record = CudaGraphs._record

    def with_replay(self: CudaGraphs, arguments: tuple[Tensor, ...]) -> Any:
        inputs, recording = record(self, arguments)

        def replay() -> None:
            for place, value in zip(recording.outputs, self.function(*inputs.places), strict=True):
                place.copy_(value)

        recording.graph.replay = replay  # type: ignore[method-assign]
        return inputs, recording

    monkeypatch.setattr(CudaGraphs, "_record", with_replay)
    return recordings


def test_each_shape_is_recorded_once_and_results_are_copies(recorded: list[int]) -> None:
    double = CudaGraphs(lambda x, y: (2 * x, x + y), CPU)
    first = double(torch.ones(3), torch.ones(3))
    second = double(torch.full((3,), 5.0), torch.ones(3))
    assert [value.tolist() for value in first] == [[2.0] * 3, [2.0] * 3]
    assert [value.tolist() for value in second] == [[10.0] * 3, [6.0] * 3]
    assert len(recorded) == 1
    assert double(torch.ones(4), torch.ones(4))[0].tolist() == [2.0] * 4
    double(torch.ones(3, dtype=torch.float64), torch.ones(3))
    assert len(recorded) == 3


def test_what_is_given_is_left_alone(recorded: list[int]) -> None:
    add = CudaGraphs(lambda x: (x.add_(1),), CPU)
    given = torch.zeros(2, 3).mT  # and need not be contiguous
    add(given)
    assert given.eq(0).all()


def test_a_parcel_holds_tensors_of_all_types_and_shapes(recorded: list[int]) -> None:
    """Those on the CPU travel together, and nothing may overlap, however many bytes they have."""
    same = CudaGraphs(lambda *tensors: tuple(t.clone() for t in tensors), CPU)
    for i in (1, 2):
        given = (
            torch.ones(3, dtype=torch.bfloat16) * i,
            torch.arange(5.0) + i,
            torch.tensor([[True, i > 1, True]]),
            torch.arange(7) * i,
            torch.zeros(0, 2),
        )
        for found, value in zip(same(*given), given, strict=True):
            assert torch.equal(found, value)
    assert len(recorded) == 1


def test_the_oldest_recordings_go_first(recorded: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "KEPT", 2)
    square = CudaGraphs(lambda x: (x * x,), CPU)
    for n in (1, 2, 1, 3, 1):
        assert square(torch.full((n,), 3.0))[0].tolist() == [9.0] * n
    assert len(recorded) == 3  # 1 was used last when 3 came, so 2 went
    square(torch.ones(2))
    assert len(recorded) == 4


def test_a_step_is_recorded_after_plain_ones_and_overwrites_what_it_returned(
    recorded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    total = torch.zeros(())
    logs = {"total": torch.zeros(())}

    def step(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        total.add_(batch["x"].sum())
        logs["total"].copy_(total)
        return logs

    run = RecordedStep(step)
    monkeypatch.setattr(FakeGraph, "replay", lambda _: step(next(iter(run.recordings.values()))[0]))
    for i in range(WARM_UP + 3):
        found = run({"x": torch.full((2,), float(i))})
        if i == WARM_UP:
            total.sub_(2.0 * i)  # on a GPU recording runs nothing; here it ran the step once
            logs["total"].copy_(total)
    assert len(recorded) == 1
    assert found is logs
    assert found["total"].item() == 2 * sum(range(WARM_UP + 3))


def test_a_step_that_cannot_be_recorded_is_plain_and_says_so_once(
    recorded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory\nmore")

    renewed: list[int] = []
    monkeypatch.setattr(torch.cuda, "graph", full)
    monkeypatch.setattr(cuda_graph, "_renew_generator", lambda: renewed.append(1))
    run = RecordedStep(lambda batch: {"x": batch["x"] + 1})
    with pytest.warns(UserWarning, match="training steps cannot be recorded and run slower: out of memory$") as said:
        found = [run({"x": torch.tensor(float(i))})["x"].item() for i in range(WARM_UP + 3)]
    assert found == [i + 1.0 for i in range(WARM_UP + 3)]
    assert (len(said), renewed) == (1, [1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    linear = torch.nn.Linear(8, 8).cuda()
    graphs = CudaGraphs(lambda x, y: (linear(x).relu() + y,), torch.device("cuda"))
    with torch.inference_mode():
        for batch in (1, 4, 1):
            x, y = torch.randn(batch, 8, device="cuda"), torch.randn(batch, 8)  # one lies elsewhere
            torch.testing.assert_close(graphs(x, y)[0], linear(x).relu() + y.cuda())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_calls_that_do_not_wait_for_each_other_on_a_gpu() -> None:
    """The next parcel is packed while the GPU is still busy with the last one."""
    slow = torch.randn(2048, 2048, device="cuda")
    graphs = CudaGraphs(lambda x, y: ((slow @ slow).sum() * 0 + x + y,), torch.device("cuda"))
    with torch.inference_mode():
        found = [graphs(torch.full((3,), float(i)), torch.full((3,), i + 0.5))[0] for i in range(50)]
        assert [value[0].item() for value in found] == [2 * i + 0.5 for i in range(50)]
