"""What a run says: a log that is never double, and curves and pictures for TensorBoard."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from normmatch.config import PRESETS, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.training import log as log_module
from normmatch.training import loop
from normmatch.training.log import CURVES, Clock, TrainingLog
from normmatch.training.run import train


def lines(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_resumed_log_has_no_line_twice(tmp_path: Path) -> None:
    first = TrainingLog(tmp_path, 0, 0.0, written=True, curves=False)
    for step in (1, 2, 3):
        first.write({"step": step})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')  # killed here
    second = TrainingLog(tmp_path, 2, 0.0, written=True, curves=False)
    second.write({"step": 3, "val_accuracy": 0.5})
    assert lines(tmp_path) == [1, 2, 3]
    assert second.validated(3)
    assert not second.validated(2)


def test_only_the_first_process_writes(tmp_path: Path) -> None:
    TrainingLog(tmp_path, 0, 0.0, written=False, curves=True).write({"step": 1})
    assert list(tmp_path.iterdir()) == []


def test_without_tensorboard_there_is_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    log = TrainingLog(tmp_path, 0, 0.0, written=True, curves=True)
    log.write({"step": 1, "loss": 0.5})
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_time_in_a_pause_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(log_module.time, "monotonic", lambda: now[0])
    clock = Clock(7.0)
    now[0] += 2
    with clock.paused():
        now[0] += 50
    now[0] += 1
    assert clock.seconds == 10


def test_the_speed_is_of_the_steps_since_the_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validations between lines, at other steps than those, neither count as training nor take time away."""
    now = [0.0]
    monkeypatch.setattr(log_module.time, "monotonic", lambda: now[0])
    inner_step, inner_validate = loop.step, loop.validate

    def slow(function: Any, seconds: float) -> Any:
        def slowed(*args: Any, **options: Any) -> Any:
            now[0] += seconds
            return function(*args, **options)

        return slowed

    monkeypatch.setattr(loop, "step", slow(inner_step, 1.0))
    monkeypatch.setattr(loop, "validate", slow(inner_validate, 100.0))
    splits = {name: drawn.make(4, 64, seed=0, split=name) for name in ("train", "val")}
    config = TrainConfig(
        out=tmp_path / "run", model=replace(PRESETS["tiny"], image_size=64, dim=16), data=DataConfig(workers=0),
        steps=8, batch_size=2, log_every=4, validate_every=3, validation_pairs=2, compile=False, accelerator="cpu",
        tensorboard=False,
    )  # fmt: skip
    train(config, splits)
    entries = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [entry for entry in entries if "loss" in entry]
    assert [(entry["step"], entry["seconds"], entry["pairs_per_second"]) for entry in losses] == [(4, 4, 2), (8, 8, 2)]


def test_curves_and_pictures(tmp_path: Path) -> None:
    splits = {name: drawn.make(4, 64, seed=0, split=name) for name in ("train", "val")}
    config = TrainConfig(
        out=tmp_path / "run", model=replace(PRESETS["tiny"], image_size=64, dim=16), data=DataConfig(workers=0),
        steps=4, batch_size=2, log_every=1, validate_every=2, validation_pairs=2, compile=False, accelerator="cpu",
    )  # fmt: skip
    train(config, splits)
    events = EventAccumulator(str(tmp_path / "run" / CURVES), size_guidance={"images": 0})
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4]
    assert {"accuracy", "pairs_per_second", "validation/val_accuracy"} <= set(events.Tags()["scalars"])
    assert set(events.Tags()["images"]) == {f"validation pairs/{label}" for label in drawn.LABELS}
    picture = events.Images("validation pairs/beetle")
    assert [image.step for image in picture] == [2, 4]
    assert picture[0].width > picture[0].height > 100
