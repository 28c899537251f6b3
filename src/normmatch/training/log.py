"""What a run says: lines of a log, curves and pictures for TensorBoard, and a bar in the terminal."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from normmatch.datasets.types import PreparedSplit
from normmatch.evaluation.predictions import Predictions
from normmatch.io import whole_file

LOG, CURVES = "log.jsonl", "tensorboard"  # in the folder of a run
PICTURES = 4  # matched validation pairs that are shown


class Journal:
    """The log of the run in a folder, up to a step: what a run wrote after the checkpoint it resumes from is dropped.

    Where several processes train, only the first one's journal is `written`.
    """

    def __init__(self, folder: Path, step: int, written: bool, curves: bool) -> None:
        self.file, self.written = folder / LOG, written
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

    def validated(self, step: int) -> bool:
        """Whether the log has the validation of a step."""
        return any(line["step"] == step and "val_accuracy" in line for line in self.lines)

    def show_pairs(self, split: PreparedSplit, said: Predictions, step: int) -> None:
        """Pictures of a few validation pairs, each of another class: right matches green, wrong ones red."""
        if self.curves is None:
            return
        from normmatch import viz

        labels = np.unique(said.label)
        shown = labels[np.linspace(0, len(labels) - 1, min(PICTURES, len(labels))).astype(int)]
        for pair in (int(np.flatnonzero(said.label == label)[0]) for label in shown):
            points0, points1 = (
                slice(*np.cumsum([said.counts[:pair, side].sum(), said.counts[pair, side]])) for side in (0, 1)
            )
            figure = viz.plot_images([np.asarray(split.images[i]) for i in said.pairs[pair].tolist()])
            viz.plot_matches(
                figure,
                said.keypoints0[points0],
                said.keypoints1[points1],
                said.matches0[points0],
                truth=said.truth0[points0],
            )
            self.curves.add_figure(f"validation pairs/{said.labels[pair]}", figure, step)

    def close(self) -> None:
        if self.curves is not None:
            self.curves.close()

    @contextmanager
    def bar(self, total: int, done: int) -> Iterator[Progress]:
        """A progress bar with loss, accuracy, speed and the time that is left."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        words = (TextColumn("{task.fields[note]}"), TimeRemainingColumn())
        console = None if self.written else Console(quiet=True)
        with Progress(*columns, *words, console=console, disable=not self.written) as progress:
            progress.add_task("training", total=total, completed=done, note="")
            yield progress


def _read(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a log: its last one is cut off where a run was killed in the middle of it."""
    lines = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:
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
