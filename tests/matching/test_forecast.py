"""Forecast: the curve from annotated photographs, its interval, hard landmarks, advice; no network."""

import numpy as np
import pytest

from normmatch.errors import InputError
from normmatch.matching.forecast import Forecast, Known, Point, _point, forecast
from tests.matching.locating_scene import FakeEncoder, photograph, points


def known(number: int, alike: bool = True) -> list[Known]:
    """Shifted copies of one photograph, or photographs that have nothing in common."""
    places = points(1, 4)
    found = []
    for k in range(number):
        picture = photograph(0 if alike else k)
        shift = np.array([k % 3, k // 3]) * 4
        found.append(Known(np.roll(picture, shift[::-1], (0, 1)) if alike else picture, places + shift * alike))
    return found


def test_photographs_alike_are_easy_and_others_are_not() -> None:
    easy, hard = forecast(known(5), FakeEncoder()), forecast(known(5, alike=False), FakeEncoder())
    assert list(easy.curve) == [1, 2, 3, 4]
    assert easy.curve[4].within[3] > 0.9
    assert hard.curve[4].within[2] < 0.5
    assert easy.landmarks.shape == (4,)
    assert easy.seconds > 0
    assert "not suited" in hard.advice
    for point in easy.curve.values():
        assert (point.low <= point.within).all()
        assert (point.within <= point.high).all()
        assert (np.diff(point.within) >= 0).all()
    again = forecast(known(5), FakeEncoder())
    np.testing.assert_array_equal([p.within for p in again.curve.values()], [p.within for p in easy.curve.values()])


def test_the_interval_holds_nine_tenths() -> None:
    """Means over 10 photographs, whose landmarks go well or badly together."""
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        ease = rng.uniform(0, 1, (10, 1))
        off = np.where(rng.uniform(0, 1, (10, 8)) < ease, 0.005, 0.5)
        point = _point(np.arange(10), off, rng)
        held += point.low[0] <= 0.5 <= point.high[0]
    assert 0.8 <= held / 200 <= 0.96


def test_advice() -> None:
    def curve(*shares: float) -> Forecast:
        points = {n: Point(*(np.full(4, share),) * 3) for n, share in zip((1, 5, 10), shares, strict=True)}
        return Forecast(points, np.ones(3), 1.0)

    assert "Ten more references would gain about" in curve(0.5, 0.6, 0.7).advice
    assert "would gain little" in curve(0.7, 0.7, 0.7).advice
    assert curve(0.5, 0.6, 0.7).gain(20) == pytest.approx(0.77, abs=0.01)


def test_too_few() -> None:
    with pytest.raises(InputError, match="There are 2 annotated photographs; expected 3 at least"):
        forecast(known(2), FakeEncoder())
