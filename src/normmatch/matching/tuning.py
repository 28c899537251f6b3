"""Tuning: a few numbers of the closed form chosen for one folder, by the photographs that people have reviewed.

Each reference is left out in turn and found by the others, with each candidate. What tuning gains is told by nested
leaving out: a photograph is scored with the candidate that is best on all others, never on itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from normmatch.matching.landmarks import Landmarks
from normmatch.matching.looks import PLAIN, Tuning

WITHIN = 0.05  # of the object: a landmark is right
CANDIDATES = (
    PLAIN, Tuning(ridge=0.3), Tuning(ridge=3.0), Tuning(temperature=0.35), Tuning(temperature=0.7),
    Tuning(trust=2.0), Tuning(trust=20.0), Tuning(slack=0.5), Tuning(slack=2.0),
)  # fmt: skip
FEWEST, MOST = 5, 16  # references that are left out


@dataclass(frozen=True)
class Tuned:
    """What came of it: shares of right landmarks in photographs that were left out."""

    tuning: Tuning
    before: float
    after: float
    photographs: int

    @property
    def better(self) -> bool:
        return self.tuning != PLAIN


def tune(landmarks: Landmarks, progress: Callable[[int, int], bool] = lambda done, total: True) -> Tuned | None:
    """Choose among the candidates; None if `progress` (done, total) says to stop.

    The plain numbers stay unless others are better by two standard errors of the difference: more than by chance.
    """
    chosen = np.unique(np.linspace(0, len(landmarks.points) - 1, MOST).round().astype(int))
    total, shares = len(CANDIDATES) * len(chosen), np.zeros((len(CANDIDATES), len(chosen)))
    for column, left_out in enumerate(chosen):
        for row, candidate in enumerate(CANDIDATES):
            if not progress(column * len(CANDIDATES) + row, total):
                return None
            off = landmarks.left_out(int(left_out), candidate).off
            shares[row, column] = (off <= WITHIN).mean() if len(off) else 0.0
    return choose(shares, len(chosen))


def choose(shares: np.ndarray, photographs: int) -> Tuned:
    """The best candidate of shares (C, P) of right landmarks; the first is the plain one."""
    others = shares.sum(1, keepdims=True) - shares  # (C, P): what each has without the photograph
    nested = shares[others.argmax(0), np.arange(photographs)]
    gain = nested - shares[0]
    sure = gain.mean() > 2 * gain.std() / np.sqrt(photographs) and gain.mean() > 0
    best = CANDIDATES[int(shares.mean(1).argmax())] if sure else PLAIN
    return Tuned(best, float(shares[0].mean()), float(nested.mean()), photographs)
