"""Read and resize images in threads, ahead of the network that waits for them."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(function: Callable[[Item], Result], items: Iterable[Item], depth: int) -> Iterator[Result]:
    """`map`, in threads that are up to `depth` items ahead of the reader; the order and the errors are those of `map`.

    Decoding and resizing let go of Python's lock, so threads do. One that nobody waits for any more is not started.
    """
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
