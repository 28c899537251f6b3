"""Images are read ahead of the network, in order, and not further than asked."""

import threading
import time

import pytest

from normmatch.matching.prefetch import ahead


def test_order_and_values_are_those_of_map() -> None:
    def slow_at_first(i: int) -> int:
        time.sleep(0.01 if i == 0 else 0)
        return i * i

    assert list(ahead(slow_at_first, range(20), 4)) == [i * i for i in range(20)]
    assert list(ahead(slow_at_first, [], 4)) == []


def test_the_next_are_made_while_the_first_is_used() -> None:
    made = threading.Event()
    results = ahead(lambda i: made.set() if i == 2 else None, range(5), 2)
    next(results)
    assert made.wait(5)


def test_not_further_ahead_than_asked() -> None:
    taken: list[int] = []

    def items() -> object:
        for i in range(100):
            taken.append(i)
            yield i

    next(ahead(lambda i: i, items(), 3))  # type: ignore[arg-type]
    assert len(taken) == 4


def test_errors_come_where_they_happened() -> None:
    results = ahead(lambda i: 1 // i, [1, 0, 1], 2)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
