"""An optimiser step: the average follows the weights, and a recorded step is the plain one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from normmatch.config import PRESETS, TrainConfig
from normmatch.datasets import drawn
from normmatch.model.network import NormMatch
from normmatch.training import update as update_module
from normmatch.training.batches import TrainBatches, batch_images
from normmatch.training.distributed import make_fabric
from normmatch.training.step import TrainStep
from normmatch.training.update import Recorded, Update, mix_in

SIZE = 64
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_an_average_moves_by_a_share_of_the_way_and_takes_the_buffers() -> None:
    average, model = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    nn.init.constant_(average.weight, 1.0)
    nn.init.constant_(model.weight, 5.0)
    model.running_mean = torch.tensor([3.0, 4.0])
    mix_in(average, model, 0.25)
    assert average.weight.tolist() == [2.0, 2.0]
    assert average.running_mean is not None
    assert average.running_mean.tolist() == [3.0, 4.0]
    mix_in(average, model, 1.0)
    assert torch.equal(average.weight, model.weight)


def make_update(out: Path, *, compile: bool, accelerator: str) -> tuple[Update, Callable[[int], dict[str, Tensor]]]:
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

    def inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        image0, image1 = batch_images(batch)
        return batch | {"image0": image0, "image1": image1}

    update = Update(make_fabric(config), TrainStep(NormMatch(config.model), config.loss), config, inputs)
    device = update.fabric.device
    return update, lambda step: {key: value.to(device) for key, value in batches[step].items()}


def test_the_average_starts_at_the_first_step_not_before_it(tmp_path: Path) -> None:
    update, batch = make_update(tmp_path, compile=False, accelerator="cpu")
    update(batch(0), 1.0)
    first = [p.clone() for p in update.model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(update.average.parameters(), first, strict=True))
    update(batch(1), 1.0)
    middle = [(a + b) / 2 for a, b in zip(first, update.model.parameters(), strict=True)]
    torch.testing.assert_close([*update.average.parameters()], middle, check_stride=False)


@needs_gpu
def test_a_recorded_step_is_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, average, losses and random numbers, with a rate that changes and batches that differ."""
    results = []
    for plain_steps in (3, 100):
        monkeypatch.setattr(update_module, "PLAIN_STEPS", plain_steps)
        update, batch = make_update(tmp_path, compile=True, accelerator="cuda")
        losses = []
        for step in range(8):
            torch.manual_seed(step)
            losses.append(update(batch(step), 1 / (1 + step))["loss"].clone())
        assert isinstance(update._run, Recorded)
        assert (update._run.graph is not None) == (plain_steps == 3)
        results.append([torch.stack(losses), *update.model.parameters(), *update.average.parameters()])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@needs_gpu
def test_what_cannot_be_recorded_is_said_and_runs_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    update, batch = make_update(tmp_path, compile=True, accelerator="cuda")
    plain = update.inputs

    def waits(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        torch.cuda.synchronize()
        return plain(batch)

    update.inputs = waits
    losses = [update(batch(0), 1.0)["loss"].item() for _ in range(6)]
    assert losses[-1] < losses[0]
    assert any("cannot be recorded" in str(w.message) for w in recwarn.list)
