"""What a run says: lines of a log, curves and pictures for TensorBoard, and a bar in the terminal."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from normmatch.datasets.types import PreparedSplit
from normmatch.evaluation.metrics import mean_accuracy
from normmatch.evaluation.predictions import Predictions
from normmatch.outputs import whole_file

LOG, CURVES = "log.jsonl", "tensorboard"  # in the folder of a run
PICTURES = 4  # matched validation pairs that are shown


class Clock:
    """Seconds of training, over all resumptions; time in a `paused` block is no training."""

    def __init__(self, seconds: float) -> None:
        self.start = time.monotonic() - seconds

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    @contextmanager
    def paused(self) -> Iterator[None]:
        before = time.monotonic()
        yield
        self.start += time.monotonic() - before


class TrainingLog:
    """The log of the run in a folder, up to a step: what a run wrote after the checkpoint it resumes from is dropped.

    Where several processes train, only the first one's log is `written`.

    Args:
        seconds: of training up to that step.
    """

    def __init__(self, folder: Path, step: int, seconds: float, written: bool, curves: bool) -> None:
        self.file, self.written = folder / LOG, written
        self.last = step, seconds  # of the last line with losses
        self.progress: Progress | None = None
        self.lines = [line for line in _read(self.file) if line["step"] <= step] if written else []
        self.curves: Any = _open_curves(folder / CURVES, step) if curves and written else None
        if written:
            with whole_file(self.file) as partial:
                partial.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")

    def write(self, line: dict[str, Any]) -> None:
        """Add a line, numbers in it to the curves as well."""
        if not self.written:
            return
        self.lines.append(line)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.curves is not None:
            for key, value in line.items():
                if isinstance(value, float):
                    self.curves.add_scalar(f"validation/{key}" if "val_accuracy" in line else key, value, line["step"])

    def write_step(self, step: int, seconds: float, batch_size: int, values: dict[str, float]) -> None:
        """Add the losses of a step, and the speed since the last such line; beside the bar they are told in short."""
        speed = batch_size * (step - self.last[0]) / (seconds - self.last[1])
        self.last = step, seconds
        self.write({"step": step, "seconds": seconds, "pairs_per_second": speed, **values})
        if self.progress:
            note = f"loss {values['loss']:.3f}  accuracy {100 * values['accuracy']:.1f}  {speed:.0f} pairs/s"
            self.progress.update(self.progress.task_ids[0], note=note)

    def write_validation(self, step: int, seconds: float, split: PreparedSplit, predictions: Predictions) -> None:
        """Add the accuracy of a validation, with pictures of some of its pairs."""
        by_class = predictions.accuracy()
        mean = mean_accuracy(by_class)
        self.write({"step": step, "seconds": seconds, "val_accuracy": mean, "val_by_class": by_class})
        self.show_pairs(split, predictions, step)
        self.say(f"step {step}: validation accuracy {100 * mean:.2f}")

    def validated(self, step: int) -> bool:
        """Whether the log has the validation of a step."""
        return any(line["step"] == step and "val_accuracy" in line for line in self.lines)

    def show_pairs(self, split: PreparedSplit, predictions: Predictions, step: int) -> None:
        """Pictures of a few validation pairs, each of another class: right matches green, wrong ones red."""
        if self.curves is None:
            return
        from normmatch import viz

        labels = np.unique(predictions.label)
        shown = labels[np.linspace(0, len(labels) - 1, min(PICTURES, len(labels))).astype(int)]
        for pair in (int(np.flatnonzero(predictions.label == label)[0]) for label in shown):
            images = [np.asarray(split.images[i]) for i in predictions.pairs[pair].tolist()]
            figure = viz.plot_pair(images, **predictions.pair(pair) | {"names": None})
            self.curves.add_figure(f"validation pairs/{predictions.labels[pair]}", figure, step)

    def close(self) -> None:
        if self.curves is not None:
            self.curves.close()

    @contextmanager
    def bar(self, total: int, done: int) -> Iterator[None]:
        """Show a progress bar with loss, accuracy, speed and the time that is left."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        words = (TextColumn("{task.fields[note]}"), TimeRemainingColumn())
        console = Console(stderr=True, quiet=not self.written)
        with Progress(*columns, *words, console=console, disable=not self.written) as progress:
            progress.add_task("training", total=total, completed=done, note="")
            self.progress = progress
            yield
            self.progress = None

    def advance(self, step: int) -> None:
        if self.progress:
            self.progress.update(self.progress.task_ids[0], completed=step)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.progress:
            self.progress.console.print(text)


def _read(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a log: its last one is cut off where a run was killed in the middle of it."""
    lines = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        try:
            lines.append(json.loads(text))
        except (ValueError, RecursionError):
            break
    return lines


def _open_curves(folder: Path, step: int) -> Any:
    """A writer for TensorBoard that hides what an earlier run wrote after the step; None where it is not installed."""
    try:
        import matplotlib  # noqa: F401 - for the pictures
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)
