"""Time a function: median and spread of many runs after a warm-up; and the figures that come of it, as a table."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from normmatch.evaluation.tables import Table, origin, write_markdown
from normmatch.outputs import write_json, writing

WARM_UP = 3  # runs that do not count; whatever compiles does it here
LEAST, MOST = 5, 500  # runs that do
COLUMNS = ("variant", "what", "points", "batch", "ms a pair", "pairs/s", "ratio", "memory, MB")
NOTE = "median (10 % to 90 %); the ratio is to the plain network (eager, float32) in the same process"


@dataclass(frozen=True)
class Row:
    """A figure: how long a network, run in one way, takes for something."""

    preset: str
    variant: str  # the way it is run
    what: str
    points: int  # keypoints per image
    batch: int  # pairs at a time
    ms: float  # for a pair, of the median run
    low: float  # a tenth of the runs took less
    high: float  # a tenth took more
    pairs_per_second: float
    memory_mb: float | None  # the most that a GPU held, weights and recorded CUDA graphs included
    ratio: float | None = None  # how many times faster than the plain network


@dataclass(frozen=True)
class Timing:
    """Milliseconds a run, and MB of a GPU's memory."""

    median: float
    low: float
    high: float
    memory_mb: float | None

    def row(self, preset: str, variant: str, what: str, points: int, batch: int) -> Row:
        """The figure; its times are for a pair, so that batches compare."""
        ms, low, high = (value / batch for value in (self.median, self.low, self.high))
        return Row(preset, variant, what, points, batch, ms, low, high, 1000 / ms, self.memory_mb)


def measure(function: Callable[[], Any], device: torch.device, seconds: float) -> Timing:
    """Time a function for about so many seconds. A run ends when the device has done all of it."""
    for _ in range(WARM_UP):
        function()
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()  # what earlier runs left behind
        torch.cuda.reset_peak_memory_stats(device)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST or (len(times) < MOST and time.perf_counter() < end):
        times.append(_once_cuda(function) if cuda else _once_cpu(function))
    median, low, high = np.percentile(times, (50, 10, 90)).tolist()
    return Timing(median, low, high, torch.cuda.max_memory_reserved(device) / 2**20 if cuda else None)


def _once_cpu(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - start)


def _once_cuda(function: Callable[[], Any]) -> float:
    """Between two events on the stream: the device's clock, and gaps in which it waits for Python count as well."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def make_table(rows: Sequence[Row], made_with: Mapping[str, str]) -> Table:
    """All figures, with where they come from."""
    lines = []
    for row in rows:
        ratio, memory = ("" if value is None else f"{value:,.3g}" for value in (row.ratio, row.memory_mb))
        spread = f"{row.ms:.3g} ({row.low:.3g} to {row.high:.3g})"
        counts = f"{row.points:,}", f"{row.batch:,}"
        way = f"{row.preset}, {row.variant}"
        lines.append((way, row.what, *counts, spread, f"{row.pairs_per_second:,.4g}", ratio, memory))
    return Table("speed", COLUMNS, lines, [NOTE, origin(made_with)])


def output_files(out: Path | None, name: str) -> list[Path]:
    """What `write` leaves in a folder."""
    return [out / f"{name}{ending}" for ending in (".json", ".md")] if out else []


def write(rows: Sequence[Row], made_with: Mapping[str, str], out: Path, name: str) -> None:
    """Leave NAME.json and NAME.md in a folder."""
    with writing(out):
        write_json(out / f"{name}.json", {"made_with": dict(made_with), "rows": [asdict(row) for row in rows]})
        write_markdown(out / f"{name}.md", [make_table(rows, made_with)])
