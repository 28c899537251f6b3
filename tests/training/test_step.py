"""A training step: the average follows the weights, and a recorded step is the plain one."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from normmatch.config import PRESETS, TrainConfig
from normmatch.datasets import drawn
from normmatch.model.compiled import cuda_graph
from normmatch.model.compiled.cuda_graph import RecordedStep
from normmatch.model.network import NormMatch
from normmatch.training import loop
from normmatch.training.batches import TrainBatches
from normmatch.training.distributed import make_fabric
from normmatch.training.loop import State, recorded, step
from normmatch.training.optimizer import set_rates
from normmatch.training.run import make_state

SIZE = 64
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def make(out: Path, *, compile: bool, accelerator: str) -> tuple[State, Callable[[int], dict[str, Tensor]]]:
    torch.manual_seed(0)
    config = TrainConfig(
        out=out,
        model=replace(PRESETS["tiny"], image_size=SIZE, dim=16, drop_path=0.2),
        precision="32-true",
        compile=compile,
        accelerator=accelerator,  # type: ignore[arg-type]
        average=0.5,
    )
    split = drawn.make(6, SIZE, seed=0, split="train")
    batches = TrainBatches(split, 4, seed=0, points=16, with_images=True, augment=config.augment)
    state = make_state(config, make_fabric(config), NormMatch(config.model))
    return state, lambda number: {key: value.to(state.fabric.device) for key, value in batches[number].items()}


def test_the_average_starts_at_the_first_step_not_before_it(tmp_path: Path) -> None:
    state, batch = make(tmp_path, compile=False, accelerator="cpu")
    step(state, batch(0))
    first = [p.clone() for p in state.model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(state.average.parameters(), first, strict=True))
    state.step = 1
    step(state, batch(1))
    middle = [(a + b) / 2 for a, b in zip(first, state.model.parameters(), strict=True)]
    torch.testing.assert_close([*state.average.parameters()], middle, check_stride=False)


@needs_gpu
def test_a_recorded_step_is_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, average, losses and random numbers, with a rate that changes and batches that differ."""
    results = []
    for plain_steps in (3, 100):
        monkeypatch.setattr(cuda_graph, "WARM_UP", plain_steps)
        state, batch = make(tmp_path, compile=True, accelerator="cuda")
        run_step, losses = recorded(partial(step, state), state), []
        for number in range(8):
            torch.manual_seed(number)
            set_rates(state.optimizer, number, state.config)
            losses.append(run_step(batch(number))["loss"].clone())
            state.step += 1
        assert isinstance(run_step, RecordedStep)
        assert bool(run_step.recordings) == (plain_steps == 3)
        results.append([torch.stack(losses), *state.model.parameters(), *state.average.parameters()])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@needs_gpu
def test_what_cannot_be_recorded_is_said_and_runs_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    state, batch = make(tmp_path, compile=True, accelerator="cuda")
    plain = loop.augment

    def waits(*arguments: object) -> object:
        torch.cuda.synchronize()
        return plain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "augment", waits)
    run_step = recorded(partial(step, state), state)
    set_rates(state.optimizer, state.config.warmup, state.config)
    losses = [run_step(batch(0))["loss"].item() for _ in range(6)]
    assert losses[-1] < losses[0]
    assert any("cannot be recorded" in str(w.message) for w in recwarn.list)
