"""Several processes: many small tasks, of which the death of a process costs one and not all; and taking turns."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from normmatch.errors import DataError
from normmatch.io import locked

LONGEST_WAIT = 12 * 3600.0  # seconds, for another process; a benchmark is prepared in minutes
LOOK_AGAIN = 0.5  # seconds between two looks whether it is done

Result = TypeVar("Result")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_at_a_time(lock: Path, doing: str) -> Iterator[None]:
    """Hold the lock file; wait while another process has it, and say so."""
    start, said = time.monotonic(), False
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(lock))
                break
            except BlockingIOError:
                pass
            if time.monotonic() - start > LONGEST_WAIT:
                raise DataError(
                    f"Another process is {doing}, for {LONGEST_WAIT / 3600:.0f} hours now; expected an end."
                )
            if not said:
                console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
                console.print(f"Another process is {doing}; waiting until it is done.")
                said = True
            time.sleep(LOOK_AGAIN)
        yield


def run_tasks(
    function: Callable[..., Result], tasks: Mapping[int, tuple[Any, ...]], workers: int
) -> Iterator[tuple[int, Result | None]]:
    """Yield (key, function(*arguments)) of every task as they finish, or (key, None) where it killed its process.

    An exception of `function` is raised here. One worker stays in this process.
    """
    if workers <= 1:
        yield from ((key, function(*arguments)) for key, arguments in tasks.items())
        return
    left = dict(tasks)
    while left:
        for key, result in _run_pool(function, left, workers):
            del left[key]
            yield key, result
        # Tasks are left only where a worker died: the whole pool ends then, and does not say whose task it was. It was
        # among the first that are left, because no more are handed out at a time, so each of these gets a pool alone.
        for key in list(left)[: 2 * workers + 1]:
            alone = dict(_run_pool(function, {key: left.pop(key)}, 1))
            yield key, alone.get(key)


def _run_pool(
    function: Callable[..., Result], tasks: Mapping[int, tuple[Any, ...]], workers: int
) -> Iterator[tuple[int, Result]]:
    """Yield the results of the tasks that finish before a worker dies: all of them, if none does."""
    pool = ProcessPoolExecutor(min(workers, len(tasks)), initializer=_start_worker)
    keys = {}
    try:
        for key, arguments in list(tasks.items()):
            try:
                keys[pool.submit(function, *arguments)] = key
            except BrokenProcessPool:
                break
        for future in as_completed(keys):
            if not isinstance(future.exception(), BrokenProcessPool):
                yield keys[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leave Ctrl-C, which reaches every process of a terminal, to the parent; and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """A worker whose parent was killed would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
