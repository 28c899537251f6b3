"""Time a function: median and spread of many runs after a warm-up, by device events on a GPU; its peak of memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Row = dict[str, Any]  # a figure of a benchmark, with what it is a figure of
WARM_UP = 3  # runs that do not count; whatever compiles does it here
LEAST, MOST = 5, 500  # runs that do


@dataclass(frozen=True)
class Timing:
    """Milliseconds a run."""

    median: float
    low: float  # a tenth of the runs took less
    high: float  # a tenth took more
    best: float
    runs: int

    def row(self, what: str, points: int, batch: int, memory: float | None = None) -> Row:
        """The figure; its times are for a pair, so that batches compare."""
        return {
            "what": what,
            "points": points,
            "batch": batch,
            "ms": self.median / batch,
            "low": self.low / batch,
            "high": self.high / batch,
            "best": self.best / batch,
            "runs": self.runs,
            "pairs_per_second": 1000 * batch / self.median,
            "memory_mb": memory,
        }


def measure(function: Callable[[], Any], device: torch.device, seconds: float) -> Timing:
    """Time a function for about so many seconds. On a GPU a run ends when the device has done all of it."""
    for _ in range(WARM_UP):
        function()
    once = _once_cuda if device.type == "cuda" else _once_cpu
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST or (len(times) < MOST and time.perf_counter() < end):
        times.append(once(function))
    median, low, high = np.percentile(times, (50, 10, 90)).tolist()
    return Timing(median, low, high, min(times), len(times))


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


def peak_memory(function: Callable[[], Any], device: torch.device) -> float | None:
    """The most MB of GPU memory held during a run, weights and recorded CUDA graphs included; None elsewhere."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()  # what earlier runs left behind
    torch.cuda.reset_peak_memory_stats(device)
    function()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_reserved(device) / 2**20
