"""Slips are found among shapes that are turned, shifted, sized and bent, and with landmarks missing."""

import numpy as np
import pytest

from normmatch.matching.slips import FAR, find_slips, fit_shapes

MEAN = np.array([[0, 0], [40, -10], [80, 0], [90, 40], [60, 70], [20, 60], [-10, 30], [35, 25]], dtype=float)
PAIRS = [(0, 2), (5, 4)]


def draw(count: int, seed: int = 0, bend: float = 0.01) -> np.ndarray:
    """Shapes (R, K, 2) in the pixels of photographs."""
    rng = np.random.default_rng(seed)
    angle, size = rng.uniform(0, 2 * np.pi, count), rng.uniform(0.5, 8, count)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
    bent = MEAN + rng.normal(0, 100 * bend, (count, *MEAN.shape))
    return size[:, None, None] * (bent @ turn.transpose(0, 2, 1)) + rng.uniform(0, 3000, (count, 1, 2))


def length(points: np.ndarray) -> float:
    return float(np.nanmax(np.nanmax(points, 0) - np.nanmin(points, 0)))


@pytest.mark.parametrize("count", [6, 40])
def test_a_slip_is_found_and_its_place_is_told(count: int) -> None:
    points = draw(count)
    truth = points[3, 5].copy()
    points[3, 5] += 0.15 * length(points[3])
    found = find_slips(points, fit_shapes(points))
    assert (found[0].shape, found[0].landmark, found[0].other) == (3, 5, None)
    assert found[0].far > FAR
    assert np.linalg.norm(np.array(found[0].expected) - truth) < 0.06 * length(points[3])


def test_clean_shapes_have_hardly_any() -> None:
    points = draw(60, seed=1)
    assert len(find_slips(points, fit_shapes(points), PAIRS)) <= 60 * len(MEAN) // 100


def test_an_exchange_is_told_as_one() -> None:
    points = draw(12, seed=2)
    points[4, [0, 2]] = points[4, [2, 0]]
    (slip,) = find_slips(points, fit_shapes(points), PAIRS)
    assert (slip.shape, slip.landmark, slip.other) == (4, 0, 2)


def test_missing_landmarks_and_photographs_without_any() -> None:
    points = draw(20, seed=3)
    points[np.random.default_rng(0).random(points.shape[:2]) < 0.2] = np.nan
    points[7], points[:, 6] = np.nan, np.nan  # nothing set; a landmark that nobody has set
    points[9, :6] = np.nan
    seen = np.isfinite(points).all(2)
    k = int(np.flatnonzero(seen[2])[1])
    points[2, k] += 0.3 * length(points[2])
    shapes = fit_shapes(points)
    far, expected = shapes.deviations(points)
    assert np.isfinite(shapes.mean).all()
    assert np.isnan(far[~seen]).all()
    assert np.isfinite(expected[np.isfinite(far)]).all()
    assert (2, k) in [(slip.shape, slip.landmark) for slip in find_slips(points, shapes, PAIRS)]
    everything_there = [slip for slip in find_slips(points, shapes) if not seen[slip.shape, slip.landmark]]
    assert everything_there == []
