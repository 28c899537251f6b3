"""What a run says: a log that is never double, and curves and pictures for TensorBoard."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from normmatch.config import PRESETS, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.training.log import CURVES, Journal
from normmatch.training.loop import train


def lines(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_resumed_log_has_no_line_twice(tmp_path: Path) -> None:
    first = Journal(tmp_path, 0, written=True, curves=False)
    for step in (1, 2, 3):
        first.write({"step": step})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')  # killed here
    second = Journal(tmp_path, 2, written=True, curves=False)
    second.write({"step": 3, "val_accuracy": 0.5})
    assert lines(tmp_path) == [1, 2, 3]
    assert second.validated(3)
    assert not second.validated(2)


def test_only_the_first_process_writes(tmp_path: Path) -> None:
    Journal(tmp_path, 0, written=False, curves=True).write({"step": 1})
    assert list(tmp_path.iterdir()) == []


def test_without_tensorboard_there_is_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    journal = Journal(tmp_path, 0, written=True, curves=True)
    journal.write({"step": 1, "loss": 0.5})
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


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
    picture = events.Images("validation pairs/bird")
    assert [image.step for image in picture] == [2, 4]
    assert picture[0].width > picture[0].height > 100
