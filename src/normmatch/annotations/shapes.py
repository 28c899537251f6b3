"""Shape statistics: where each landmark of a thing should be, given its other landmarks and the other things.

    shapes = Shapes(points)           # (R, K, 2) of R things, NaN where a landmark is not known
    shapes.doubt                      # (R, K) log of how much likelier a slip is than the usual variation
    shapes.expected                   # (R, K, 2) where the others say that it is, in the things' own pixels

All things are laid onto their mean by similarity frames that outliers cannot pull (Procrustes, reweighted). What varies
is a Gaussian over all landmarks together, its covariance shrunk towards smooth bending, so that three things are enough
to begin with; the frame's own freedom is part of it. Each thing is judged by a Gaussian without itself, each landmark
given its others: one inverse a thing. Landmarks that are clearly off are left out, and the rest judged again.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from normmatch.annotations.procrustes import align, frames, line_of, plane_of

NOISE = 0.008  # deviation of setting a landmark, as a share of the thing's longer side: people's repeats
BEND, REACH = 0.06, 0.35  # deviation and length of smooth bending, which the covariance is shrunk to
TRUST = 4.0  # things at which the covariance that was seen weighs as much as the smooth one
FREE = 0.1  # deviation along the frame's own directions: shift, turn, size
SLIP = 0.09  # deviation of a slip in x and in y: 5 to 20 % of the thing
ALIKE, ENOUGH = 0.03, 20.0  # deviation up to which things look alike; so many of them weigh as much as all
STAND = 300  # things that stand for all others: more would take long
APART = 100.0  # variance added to a landmark that has no say
LOOKS, FEWEST = 6, 3  # landmarks that may leave a thing, and how many stay
TAILS = 8.0  # degrees of freedom of a whole thing's density
LEAST = 1e-3  # deviation that anything has
OFF = 5.0  # doubt from which a landmark is left out
ROUNDS, CHUNK = 3, 4 << 20  # of fitting; numbers at once

Matrix = np.ndarray


class Judged(NamedTuple):
    """What things' other landmarks say of each of their landmarks."""

    doubt: np.ndarray  # (R, K) log of how much likelier a slip is than the usual variation
    residual: np.ndarray  # (R, K, 2) on the mean shape: the landmark less what the others expect
    spread: np.ndarray  # (R, K, 2, 2) covariance of that
    off: np.ndarray  # (R, K) left out as clearly wrong


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes of R things with the same K landmarks."""

    points: np.ndarray  # (R, K, 2) in the things' own pixels, y in the same direction in all; NaN is not known

    @cached_property
    def known(self) -> np.ndarray:
        """(R, K) which landmarks are known."""
        return np.isfinite(self.points).all(2)

    @cached_property
    def _aligned(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The mean (K,), things laid onto it (R, K), and their frames (R,): complex numbers."""
        return align(self.points)

    @property
    def mean(self) -> np.ndarray:
        """The mean shape (K, 2); its longer side is 1."""
        return plane_of(self._aligned[0])

    @property
    def laid(self) -> np.ndarray:
        """The things on the mean (R, K, 2)."""
        return plane_of(self._aligned[1])

    @property
    def sizes(self) -> np.ndarray:
        """The longer sides of the things (R,), in pixels."""
        return 1 / np.maximum(np.abs(self._aligned[2]), 1e-12)

    @property
    def turns(self) -> np.ndarray:
        """How each thing is turned and scaled onto the mean (R,): complex numbers."""
        return self._aligned[2]

    def turn_of(self, points: np.ndarray) -> complex:
        """The same of one thing (K, 2)."""
        known = np.isfinite(points).all(1)
        line = np.where(known, line_of(np.nan_to_num(points)), 0)
        return complex(frames(line[None], self._aligned[0], known[None])[0][0])

    @cached_property
    def _fitted(self) -> "tuple[Judged, Usual]":
        off = np.zeros_like(self.known)
        place = self.laid - self.mean
        telling = self.known.sum(1, keepdims=True) >= FEWEST  # fewer fit any frame
        for _ in range(ROUNDS):
            usual = fit(self.mean, np.where(telling[..., None], place, 0), self.known & ~off & telling)
            parts = [usual.judge(some, place[some], self.known[some]) for some in _chunks(*self.known.shape)]
            judged = Judged(*map(np.concatenate, zip(*parts, strict=True)))
            off = judged.off
        return judged, usual

    @property
    def _judged(self) -> "Judged":
        return self._fitted[0]

    def fit_of(self, which: np.ndarray, variants: np.ndarray) -> np.ndarray:
        """How well (V,) other versions (V, K, 2) of things `which` (V,) fit: the log of a heavy-tailed density."""
        usual, fits = self._fitted[1], []
        for some in _chunks(*variants.shape[:2]):
            part, known = which[some], np.isfinite(variants[some]).all(2)
            line = np.where(known, line_of(np.nan_to_num(variants[some])), 0)
            turn, shift = frames(line, self._aligned[0], known)
            off = np.where(known[..., None], plane_of(turn[:, None] * line + shift[:, None]) - self.mean, 0)
            own = usual.own(part, _flat(off))
            matrix = usual.precision(own, known)
            unknown = np.concatenate([~known, ~known], 1)
            far = np.einsum("ri,rij,rj->r", _flat(off), matrix, _flat(off))
            size = np.arange(own.shape[1])
            matrix[:, size, size] += unknown
            count = 2 * known.sum(1)
            # lying on the mean turned small means that the thing itself is large: the frame's size counts
            volume = 0.5 * np.linalg.slogdet(matrix)[1] + count * np.log(np.abs(turn))
            fits.append(volume - (TAILS + count) / 2 * np.log1p(far / TAILS))
        return np.concatenate(fits)

    @property
    def doubt(self) -> np.ndarray:
        """(R, K) log of how much likelier a slip is than the usual variation; -inf where a landmark is not known."""
        telling = self.known.sum(1, keepdims=True) >= FEWEST
        return np.where(self.known, np.where(telling, self._judged.doubt, 0.0), -np.inf)

    @property
    def expected(self) -> np.ndarray:
        """(R, K, 2) where the others say that each landmark is, in pixels, also of those that are not known."""
        _, laid, turn, shift = self._aligned
        place = np.where(self.known, laid, self._aligned[0]) - line_of(self._judged.residual)
        return plane_of((place - shift[:, None]) / turn[:, None])

    @property
    def spread(self) -> np.ndarray:
        """(R, K) deviation of that, in pixels."""
        return np.sqrt(np.maximum(np.trace(self._judged.spread, axis1=2, axis2=3), 0) / 2) * self.sizes[:, None]

    @property
    def off(self) -> np.ndarray:
        """(R, K) which landmarks are clearly not where the others say."""
        return self._judged.off


def fit(mean: np.ndarray, off: np.ndarray, known: np.ndarray, rounds: int = 4) -> "Usual":
    """How things with deviations (R, K, 2) from the mean vary: a shrunk covariance; what is not known is filled in."""
    things, size = len(known), 2 * known.shape[1]
    seen = np.concatenate([known, known], 1)  # (R, 2K)
    filled = _flat(np.where(known[..., None], off, 0))
    near = np.exp(-((mean[:, None] - mean) ** 2).sum(2) / (2 * REACH**2))  # (K, K)
    target = np.kron(np.eye(2), BEND**2 * near)
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    groups = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    cov = target + NOISE**2 * np.eye(size)
    for _ in range(rounds):
        inverse, missing = np.linalg.inv(cov), np.zeros_like(cov)
        for pattern, rows in zip(patterns, groups, strict=True):
            gaps = np.flatnonzero(~pattern)
            if len(gaps):
                rest = np.linalg.inv(inverse[np.ix_(gaps, gaps)])
                filled[np.ix_(rows, gaps)] = -filled[np.ix_(rows, pattern)] @ inverse[np.ix_(pattern, gaps)] @ rest
                missing[np.ix_(gaps, gaps)] += len(rows) * rest
        cov = (filled.T @ filled + missing + TRUST * target) / (things + TRUST) + NOISE**2 * np.eye(size)
    directions = freedom(mean)
    free = FREE**2 * directions @ directions.T
    chosen = np.unique(np.linspace(0, things - 1, min(things, STAND)).round().astype(int))
    return Usual(cov + free, filled, free + NOISE**2 * np.eye(size), filled[chosen], chosen)


def freedom(mean: np.ndarray) -> Matrix:
    """Directions (2K, 4) in which a similarity frame moves the mean: shifts, size, turn."""
    x, y = mean[:, 0], mean[:, 1]
    one, none = np.ones(len(mean)), np.zeros(len(mean))
    return np.stack([np.r_[one, none], np.r_[none, one], np.r_[x, y], np.r_[-y, x]], 1)


@dataclass(frozen=True, eq=False)
class Usual:
    """How things vary: the covariance of all, and those of them that stand for what is alike."""

    cov: Matrix  # (2K, 2K): first every x, then every y
    filled: Matrix  # (R, 2K) deviations of all from the mean
    free: Matrix  # (2K, 2K) what frames and people's noise add
    alike: Matrix  # (A, 2K) deviations of some
    chosen: np.ndarray  # (A,) which these are

    def own(self, part: np.ndarray, other: np.ndarray | None = None) -> Matrix:
        """The covariance (P, 2K, 2K) that each of some things is judged by, without its own share.

        The more things there are that look alike, or like its `other` version (P, 2K), the more they count.
        """
        filled = self.filled[part]
        own = self.cov - filled[:, :, None] * filled[:, None] / (len(self.filled) + TRUST)
        filled = filled if other is None else other
        apart = (filled**2).sum(1)[:, None] + (self.alike**2).sum(1) - 2 * filled @ self.alike.T  # (P, A)
        apart = np.maximum(apart, 0) / filled.shape[1]
        weight = np.where(self.chosen == part[:, None], 0, np.exp(-apart / (2 * ALIKE**2)))  # itself does not count
        total = weight.sum(1)
        number = total**2 / np.maximum((weight**2).sum(1), 1e-12)
        products = (self.alike[:, :, None] * self.alike[:, None]).reshape(len(self.alike), -1)
        near = (weight @ products).reshape(own.shape) / np.maximum(total, 1e-12)[:, None, None] + self.free
        share = (number / (number + ENOUGH))[:, None, None]
        return (1 - share) * own + share * near

    def precision(self, own: Matrix, known: np.ndarray) -> Matrix:
        """The inverse (P, 2K, 2K) over what is known of each thing, 0 elsewhere."""
        unknown = np.concatenate([~known, ~known], 1)
        diagonal = np.arange(own.shape[1])
        apart = own.copy()
        apart[:, diagonal, diagonal] += np.where(unknown, APART, 0)
        return np.where(unknown[:, :, None] | unknown[:, None], 0, np.linalg.inv(apart))

    def judge(self, part: np.ndarray, off: np.ndarray, known: np.ndarray) -> Judged:
        """Every landmark of some things (P, K, 2) given their others; the worst is left out until none is off."""
        own = self.own(part)
        matrix = self.precision(own, known)
        used, place, todo = known.copy(), np.where(known[..., None], off, 0), np.arange(len(part))
        judged = given_others(matrix, place)
        for _ in range(LOOKS):
            doubts = np.where(used[todo], judged[0][todo], -np.inf)
            worst = doubts.argmax(1)
            some = (doubts[np.arange(len(todo)), worst] > OFF) & (used[todo].sum(1) > FEWEST)
            todo, worst = todo[some], worst[some]
            if not len(todo):
                break
            matrix[todo] = without(matrix[todo], worst)
            used[todo, worst] = False
            for value, new in zip(judged, given_others(matrix[todo], place[todo] * used[todo][..., None]), strict=True):
                value[todo] = new
        rest = from_others(own, matrix, place, used)
        doubt, residual, spread = (
            np.where(used.reshape(*used.shape, *[1] * (a.ndim - 2)), a, b) for a, b in zip(judged, rest, strict=True)
        )
        return Judged(np.where(known, doubt, -np.inf), residual, spread, known & ~used & (doubt > OFF))


def without(matrix: Matrix, worst: np.ndarray) -> Matrix:
    """Precisions (P, 2K, 2K) once one landmark of each thing, `worst` (P,), is no longer known."""
    both = np.stack([worst, worst + matrix.shape[1] // 2], 1)  # (P, 2)
    across = np.take_along_axis(matrix, both[:, None], 2)  # (P, 2K, 2)
    among = np.take_along_axis(across, both[:, :, None], 1)  # (P, 2, 2)
    matrix = matrix - across @ np.linalg.inv(among) @ across.transpose(0, 2, 1)
    rows = np.arange(len(matrix))[:, None]
    matrix[rows, both] = 0
    matrix[rows, :, both] = 0
    return matrix


def given_others(matrix: Matrix, place: np.ndarray) -> list[np.ndarray]:
    """Doubt, residual and its covariance of each landmark given the others, of things (P, K, 2) by their precisions."""
    landmarks = place.shape[1]
    pulled = np.einsum("rij,rj->ri", matrix, _flat(place)).reshape(-1, 2, landmarks).transpose(0, 2, 1)  # (P, K, 2)
    blocks = _blocks(matrix)
    blocks[np.abs(blocks).sum((2, 3)) == 0] = np.eye(2)  # of what is not known
    spread = np.linalg.inv(blocks)
    residual = np.einsum("rkij,rkj->rki", spread, pulled)
    return [doubts(residual, spread), residual, spread]


def from_others(own: Matrix, matrix: Matrix, place: np.ndarray, used: np.ndarray) -> list[np.ndarray]:
    """The same for landmarks that have no say: their covariance with the others tells where they should be."""
    landmarks = place.shape[1]
    pulled = np.einsum("rij,rj->ri", matrix, _flat(place * used[..., None]))
    expected = np.einsum("rij,rj->ri", own, pulled).reshape(-1, 2, landmarks).transpose(0, 2, 1)
    spread = _blocks(own)
    for thing in np.flatnonzero(~used.all(1)):
        rows = np.concatenate([~used[thing], ~used[thing]])
        gain = own[thing][rows] @ matrix[thing]
        rest = own[thing][np.ix_(rows, rows)] - gain @ own[thing][:, rows]
        spread[thing, ~used[thing]] = _blocks(rest[None])[0]
    residual = place - expected
    return [doubts(residual, spread), residual, spread]


def _blocks(matrix: Matrix) -> np.ndarray:
    """The 2 x 2 blocks (P, K, 2, 2) of each landmark with itself."""
    landmarks = matrix.shape[1] // 2
    both = np.arange(landmarks)[:, None] + np.array([0, landmarks])  # (K, 2)
    return matrix[:, both[:, :, None], both[:, None]]


def doubts(residual: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The log likelihood ratio (P, K) of a slip over the usual variation."""
    spread = spread + LEAST**2 * np.eye(2)
    slipped = spread + SLIP**2 * np.eye(2)
    usual, slip = (
        np.einsum("rki,rki->rk", residual, np.linalg.solve(s, residual[..., None])[..., 0]) for s in (spread, slipped)
    )
    return 0.5 * (usual - slip + _log_det(spread) - _log_det(slipped))


def _log_det(spread: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(np.linalg.det(spread), LEAST**4))


def _flat(points: np.ndarray) -> np.ndarray:
    """(R, K, 2) as (R, 2K): first every x, then every y."""
    return points.transpose(0, 2, 1).reshape(len(points), -1)


def _chunks(things: int, landmarks: int) -> list[np.ndarray]:
    """The things in parts whose matrices fit into the memory."""
    step = max(1, CHUNK // (4 * landmarks**2))
    return [np.arange(start, min(start + step, things)) for start in range(0, things, step)]
