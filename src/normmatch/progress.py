"""A progress bar for work that takes long."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

Result = TypeVar("Result")


def show_progress(
    results: Iterable[Result], total: int, done: int, shown: bool, unit: str = "objects"
) -> Iterator[Result]:
    """Pass on the results, with a bar of how many of `total` objects there are, how fast, and how long it will take."""
    columns = (BarColumn(), MofNCompleteColumn(), _Rate(unit), TimeRemainingColumn())
    # auto_refresh is off because it is a thread, and the workers may be forks of this process.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, disable=not shown) as bar:
        task, drawn = bar.add_task("", total=total, completed=done), 0.0
        for result in results:
            yield result
            bar.advance(task)
            if time.monotonic() - drawn > 0.1:
                bar.refresh()
                drawn = time.monotonic()


class _Rate(ProgressColumn):
    """How fast it goes; it takes some time to know, so that is done when the bar is drawn, not for every object."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.speed  # not known before there are two of them
        return Text(f"{speed:,.{speed < 10:d}f} {self.unit}/s" if speed else "")
