"""The bar that long work shows."""

import time
from collections.abc import Iterator

import pytest

from normmatch.progress import show_progress


def slow(count: int) -> Iterator[int]:
    for i in range(count):
        time.sleep(0.15)
        yield i


def test_a_rate_that_is_not_known_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(show_progress(slow(1), 1, 0, True, "pairs")) == [0]
    shown = capsys.readouterr().err
    assert "1/1" in shown
    assert "pairs/s" not in shown


def test_slow_work_has_a_rate_with_a_decimal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(show_progress(slow(4), 4, 0, True, "pairs")) == [0, 1, 2, 3]
    rate = capsys.readouterr().err.split(" pairs/s")[0].split()[-1]
    assert "." in rate
    assert 0 < float(rate) < 7  # at most one in 0.15 s
