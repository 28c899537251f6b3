"""Scores become the share of right matches among those with such scores."""

import numpy as np

from normmatch.evaluation.calibration import KNOTS, fit_probabilities
from normmatch.matching.decoding import as_probabilities


def test_probabilities_are_the_shares_of_right_matches() -> None:
    rng = np.random.default_rng(0)
    scores = rng.beta(2, 5, 20_000)
    truth = np.sqrt(scores)  # far from the scores, which say too little
    right = rng.random(len(scores)) < truth
    knots = fit_probabilities(scores[::2], right[::2])
    assert len(knots) == 2 * (KNOTS + 2)
    known, fitted = np.split(np.array(knots), 2)
    assert (np.diff(known) >= 0).all()
    assert (np.diff(fitted) >= 0).all()
    found = as_probabilities(scores[1::2], knots)
    low, high = np.quantile(scores, [0.03, 0.97])
    inside = (scores[1::2] > low) & (scores[1::2] < high)
    assert np.abs(found - truth[1::2])[inside].mean() < 0.02
    assert np.abs(scores[1::2] - truth[1::2])[inside].mean() > 0.2
    assert as_probabilities(np.array([0.0]), knots) == 0


def test_few_matches_make_few_groups_and_none_no_calibration() -> None:
    assert fit_probabilities(np.array([0.5, 0.6]), np.array([True, False])) == (0.0, 0.55, 1.0, 0.0, 0.5, 0.5)
    assert fit_probabilities(np.zeros(0), np.zeros(0, bool)) == ()
