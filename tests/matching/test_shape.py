"""Landmarks that are decided together."""

import numpy as np
import pytest

from normmatch.matching.shape import add_template, decide, given_template, make_shape

SIDE = 27
TICKS = ((np.arange(SIDE) + 0.5) / SIDE)[None]
AXES = (TICKS, TICKS)
GRID = np.stack(np.meshgrid(*[(np.arange(SIDE) + 0.5) / SIDE] * 2), -1).reshape(-1, 2)


def peaks(places: np.ndarray, width: float = 0.03, floor: float = 0.2) -> np.ndarray:
    """Maps (K, P) with a hill at each place."""
    hills = np.exp(-((places[:, None] - GRID) ** 2).sum(2) / (2 * width**2))
    hills /= hills.sum(1, keepdims=True)
    return np.log((1 - floor) * hills + floor / len(GRID))


def figure(seed: int, count: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.2, 0.8, (count, 2))


def test_clear_maps_are_followed() -> None:
    mean = figure(0)
    true = 0.5 + 0.9 * (mean - 0.5) + (0.05, -0.03)
    found = decide(peaks(true), AXES, make_shape(mean[None]))
    np.testing.assert_allclose(found.mean, true, atol=0.012)


def test_a_landmark_that_the_picture_does_not_show_follows_the_others() -> None:
    mean = figure(1)
    true = mean + np.array((0.08, 0.05))
    logs = peaks(true)
    logs[3] = -np.log(len(GRID))
    found = decide(logs, AXES, make_shape(mean[None]))
    np.testing.assert_allclose(found.mean[3], true[3], atol=0.04)
    assert found.variance[3].sum() > 2 * np.delete(found.variance, 3, 0).sum(1).max()


def test_of_two_hills_the_one_that_fits_is_taken() -> None:
    mean = figure(2)
    true, wrong = mean + 0.04, mean.copy()
    wrong[5] = 1 - mean[5]
    logs = np.logaddexp(peaks(true), peaks(wrong) + 0.3)  # the wrong one is higher
    found = decide(logs, AXES, make_shape(mean[None]))
    np.testing.assert_allclose(found.mean[5], true[5], atol=0.03)


@pytest.mark.parametrize("references", [1, 5])
def test_a_landmark_moved_by_a_tenth_is_followed(references: int) -> None:
    """A real deviation is not pulled straight: in at least nine cases of ten (here all landmarks, one by one)."""
    rng = np.random.default_rng(3)
    mean, followed = figure(3), []
    places = mean + rng.normal(0, 0.01, (references, 12, 2))
    for k in range(12):
        true = mean.copy()
        angle = rng.uniform(0, 2 * np.pi)
        true[k] += 0.1 * np.array((np.cos(angle), np.sin(angle)))
        found = decide(peaks(true, 0.02), AXES, make_shape(places))
        followed.append(np.linalg.norm(found.mean[k] - true[k]) < 0.03)
    assert np.mean(followed) >= 0.9


def test_the_order_of_landmarks_means_nothing() -> None:
    mean, true, order = figure(4), figure(4) + 0.05, np.random.default_rng(0).permutation(12)
    found = decide(peaks(true), AXES, make_shape(mean[None])).mean
    turned = decide(peaks(true)[order], AXES, make_shape(mean[None, order])).mean
    np.testing.assert_allclose(found[order], turned, atol=1e-9)


def test_a_template_bends_with_its_landmarks() -> None:
    places = np.stack([figure(5), figure(5) + 0.05])
    both = add_template(places, 5)
    assert both.shape == (2, 12 + 25, 2)
    np.testing.assert_allclose(both[1, 12:] - both[0, 12:], 0.05, atol=0.02)


def test_what_a_template_says_stays_when_it_is_left_out() -> None:
    places = add_template(figure(6)[None], 4)
    shape = make_shape(places)
    logs = peaks(places[0] + 0.06)
    logs[:12] = -np.log(len(GRID))  # only the template sees something
    first = decide(logs, AXES, shape)
    alone = decide(logs[:12], AXES, given_template(shape, first, 12))
    np.testing.assert_allclose(alone.mean, first.mean[:12], atol=0.01)
    np.testing.assert_allclose(alone.others, figure(6) + 0.06, atol=0.03)


def test_each_landmark_may_have_places_of_its_own() -> None:
    mean = figure(7)
    own = mean[:, None] + 0.2 * (GRID - 0.5)
    logs = np.stack(
        [-((place + 0.03 - grid) ** 2).sum(1) / (2 * 0.01**2) for place, grid in zip(mean, own, strict=True)]
    )
    axes = tuple(mean[:, i, None] + 0.2 * (TICKS - 0.5) for i in (0, 1))
    found = decide(logs, axes, make_shape(mean[None]))
    np.testing.assert_allclose(found.mean, mean + 0.03, atol=0.004)


@pytest.mark.parametrize("count", [1, 2, 2000])
def test_few_and_many_landmarks(count: int) -> None:
    mean = figure(8, count)
    found = decide(peaks(mean + 0.03, 0.05), AXES, make_shape(mean[None]), rounds=3)
    assert np.median(np.abs(found.mean - mean - 0.03)) < 0.02


def test_missing_and_coinciding_landmarks() -> None:
    places = np.repeat(figure(9)[None], 3, 0)
    places[:, 1] = places[:, 0]
    places[0, 4] = np.nan
    found = decide(peaks(places[1]), AXES, make_shape(places))
    np.testing.assert_allclose(found.mean, places[1], atol=0.02)


def test_an_earlier_decision_is_a_shorter_way_to_the_same() -> None:
    places = add_template(figure(9)[None])
    shape = make_shape(places)
    logs = peaks(places[0] + 0.04, 0.05)
    long = decide(logs, AXES, shape, rounds=30)
    again, early = decide(logs, AXES, shape, 3, decide(logs, AXES, shape)), decide(logs, AXES, shape, 3)
    assert np.abs(again.mean - long.mean).max() < 0.2 * np.abs(early.mean - long.mean).max()
