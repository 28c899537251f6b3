"""Tuning is kept only if it is better on photographs that it was not chosen by."""

import numpy as np
import pytest

from normmatch.matching.looks import PLAIN
from normmatch.matching.tuning import CANDIDATES, choose


def shares_of(best: int, gain: float, noise: float, seed: int = 0) -> np.ndarray:
    """(C, P) with one candidate better than the others."""
    rng = np.random.default_rng(seed)
    shares = 0.6 + rng.normal(0, 0.1, 16) + rng.normal(0, noise, (len(CANDIDATES), 16))
    shares[best] += gain
    return shares


@pytest.mark.parametrize("best", range(1, len(CANDIDATES)))
def test_what_is_clearly_better_is_chosen(best: int) -> None:
    tuned = choose(shares_of(best, 0.1, 0.02), 16)
    assert tuned.better
    assert tuned.tuning == CANDIDATES[best]
    assert tuned.after == pytest.approx(tuned.before + 0.1, abs=0.03)


def test_chance_is_hardly_ever_taken_for_better() -> None:
    kept = [choose(shares_of(0, 0.0, 0.05, seed), 16).better for seed in range(200)]
    assert np.mean(kept) < 0.15
    assert not choose(shares_of(0, 0.1, 0.02), 16).better
    assert choose(np.ones((len(CANDIDATES), 5)), 5).tuning == PLAIN
