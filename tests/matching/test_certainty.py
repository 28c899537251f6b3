"""Probabilities that a landmark is where it was found."""

import numpy as np
import pytest

from normmatch.matching.certainty import SCORE, likeliest_shift, logits_of, radius_of, sigmoid, widened


def test_what_looks_alike_scores_high() -> None:
    mass, sure, unsure = np.full(3, 0.9), np.full((3, 2), 0.03**2), np.full((3, 2), 0.08**2)
    scores = sigmoid(logits_of(mass, np.array([0.9, 0.4, 0.1]), sure, SCORE))
    assert (np.diff(scores) < 0).all()
    assert sigmoid(logits_of(mass, np.full(3, 1.0), sure, SCORE)).min() > 0.9
    assert sigmoid(logits_of(mass, np.full(3, 0.1), unsure, SCORE)).max() < 0.1


def test_the_radius_that_holds_two_thirds() -> None:
    axes = np.array([[0.0, 0.1, 0.2, 0.3]]), np.array([[0.5]])
    middle, box = np.array([[0.0, 5.0]]), (0.0, 0.0, 10.0, 10.0)
    assert radius_of(axes, np.array([[0.5, 0.1, 0.1, 0.3]]), middle, box) == pytest.approx(2.0)
    assert radius_of(axes, np.array([[0.7, 0.3, 0.0, 0.0]]), middle, box) == pytest.approx(0.0)


def test_the_less_sure_the_wider() -> None:
    wide = widened(np.full(4, 2.0), np.array([1.0, 0.9, 0.6, 0.0]), 100.0)
    assert (np.diff(wide) > 0).all()
    assert wide[0] == pytest.approx(2.6)
    assert wide[3] == pytest.approx(20.0)


def test_the_shift_is_small_where_little_is_known() -> None:
    logits = np.zeros(4)
    assert likeliest_shift(logits, np.array([1, 0, 1, 0])) == pytest.approx(0)
    few, many = (likeliest_shift(np.zeros(n), np.ones(n)) for n in (2, 200))
    assert 0 < few < many < 4
