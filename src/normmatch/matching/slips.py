"""Slips: landmarks that lie far from where the others say they should be, told from the shapes alone. No torch here.

Shapes are laid over each other (generalised Procrustes, robustly, with landmarks missing). What is left over has a
covariance, shrunk towards a smooth one, and with it each landmark is expected by the others of its photograph:

    x_k - E[x_k | others] = P_kk^-1 (P (x - mean))_k        P: the inverse of the covariance
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normmatch.matching.shape import smooth

FEWEST = 5  # shapes from which on something can be said
FAR = 3.0  # deviations that make a slip
ROUNDS = 10  # of laying over
TRUST = 40.0  # shapes at which their own covariance weighs as much as the smooth one
SLACK = 0.01  # deviation of each landmark for itself, a share of the object's longer side: people's own
LEAST = 0.02  # of the object: a deviation is not taken to be smaller
SHARE, REACH = 0.7, 1.5518  # so many distances from the middle of a Gaussian are shorter than so many deviations
BETTER = 9.0  # how much smaller two squared deviations together must be for an exchange


@dataclass(frozen=True, eq=False)
class Slip:
    """A landmark of a shape that lies where the others do not expect it."""

    shape: int
    landmark: int
    far: float  # deviations
    expected: tuple[float, float]  # in the photograph's pixels
    other: int | None = None  # the landmark that it looks exchanged with


@dataclass(frozen=True, eq=False)
class Shapes:
    """What K landmarks of many photographs have in common; the mean's longer side is 1."""

    mean: np.ndarray  # (K, 2)
    covariance: np.ndarray  # (2K, 2K): first every x, then every y
    deviation: np.ndarray  # (K,) by which distances to the expected places are measured

    def lay(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shapes (R, K, 2) laid over the mean, as complex numbers (R, K), and the turn and shift (R,) that did it."""
        z, known = _complex(points)
        mean = self.mean[:, 0] + 1j * self.mean[:, 1]
        turn, shift = _fit(z, known.astype(float), mean)
        for _ in range(3):  # those that are far off do not pull
            off = np.where(known, np.abs(turn[:, None] * z + shift[:, None] - mean), 0)
            turn, shift = _fit(z, known / (1 + (off / (3 * self.deviation)) ** 2), mean)
        return turn[:, None] * z + shift[:, None], turn, shift

    def deviations(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far off each landmark of shapes (R, K, 2) is, and where the others expect it, in pixels.

        Returns:
            far (R, K) in deviations, NaN where a landmark is missing, and expected (R, K, 2).
        """
        laid, turn, shift = self.lay(points)
        mean, known = self.mean[:, 0] + 1j * self.mean[:, 1], np.isfinite(points).all(2)
        off = np.where(known, laid - mean, 0)
        residual = np.full(laid.shape, np.nan, complex)
        for row, seen in enumerate(known):
            if seen.sum() >= 3:
                residual[row, seen] = self._unexplained(off[row, seen], np.flatnonzero(seen))
        expected = (laid - residual - shift[:, None]) / turn[:, None]
        far = np.abs(residual) / self.deviation
        usual = np.array([np.nanquantile(row, SHARE) if np.isfinite(row).any() else 0.0 for row in far]) / REACH
        far /= np.maximum(usual, 1.0)[:, None]  # all of a photograph are off that is unlike the others
        return far, np.stack([expected.real, expected.imag], -1)

    def _unexplained(self, off: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """What the others do not explain of each displacement (k,) from the mean."""
        index = np.concatenate([seen, seen + len(self.mean)])
        precision = np.linalg.inv(self.covariance[np.ix_(index, index)])
        pulled = precision @ np.concatenate([off.real, off.imag])
        k = len(seen)
        blocks = np.stack([[precision[i::k, i::k]] for i in range(k)])[:, 0]  # (k, 2, 2)
        found = np.linalg.solve(blocks, np.stack([pulled[:k], pulled[k:]], 1)[..., None])[..., 0]  # (k, 2)
        return found[:, 0] + 1j * found[:, 1]


def fit_shapes(points: np.ndarray) -> Shapes:
    """From the landmarks (R, K, 2) of photographs in pixels, NaN where one is missing."""
    z, known = _complex(points)
    mean = z[known.sum(1).argmax()].copy()
    mean[~np.isfinite(mean)] = np.nanmean(mean) if np.isfinite(mean).any() else 0
    mean, weights = _normalised(mean), known.astype(float)
    for _ in range(ROUNDS):
        turn, shift = _fit(z, weights, mean)
        laid = turn[:, None] * z + shift[:, None]
        mean = _normalised(_median(laid, known, mean))
        off = np.where(known, np.abs(laid - mean), 0.0)
        scale = np.maximum(_typical(off, known), LEAST)
        weights = known / (1 + (off / (3 * scale)) ** 2)
    turn, shift = _fit(z, weights, mean)
    off = np.where(known, turn[:, None] * z + shift[:, None] - mean, 0)
    scale = np.maximum(_typical(np.abs(off), known), LEAST)
    off = off * np.minimum(1, 3 * scale / np.maximum(np.abs(off), 1e-9))  # slips do not widen what is usual
    xy = np.stack([mean.real, mean.imag], -1)
    shapes = Shapes(xy, _covariance(off, known, xy), np.ones(len(xy)))
    far, _ = Shapes(xy, shapes.covariance, np.maximum(scale, LEAST)).deviations(points)
    left = np.where(np.isfinite(far), far * np.maximum(scale, LEAST), 0.0)
    return Shapes(xy, shapes.covariance, np.maximum(_typical(left, np.isfinite(far)), LEAST))


def find_slips(points: np.ndarray, shapes: Shapes, pairs: Sequence[tuple[int, int]] = ()) -> list[Slip]:
    """The landmarks of shapes (R, K, 2) that are far off, the worst of a shape first; its others are judged without it.

    `pairs` are landmarks, left and right of each other; if one fits better the other way round, that is told in place
    of both being far off.
    """
    found = find_exchanges(points, shapes, pairs)
    points = points.copy()
    for slip in found:
        both = [slip.landmark, slip.other or 0]
        points[slip.shape, both] = points[slip.shape, both[::-1]]
    for _ in range(points.shape[1]):
        far, expected = shapes.deviations(points)
        worst = np.nan_to_num(far).argmax(1)
        rows = np.flatnonzero(np.nan_to_num(far).max(1) > FAR)
        for row in rows:
            k = int(worst[row])
            x, y = expected[row, k].tolist()
            found.append(Slip(int(row), k, float(far[row, k]), (x, y)))
            points[row, k] = np.nan
        if not len(rows):
            break
    return found


def find_exchanges(points: np.ndarray, shapes: Shapes, pairs: Sequence[tuple[int, int]]) -> list[Slip]:
    """The pairs of landmarks that fit clearly better the other way round, in shapes (R, K, 2)."""
    found = []
    far, expected = shapes.deviations(points)
    for a, b in pairs:
        exchanged = points.copy()
        exchanged[:, [a, b]] = points[:, [b, a]]
        cured, _ = shapes.deviations(exchanged)
        before, after = ((values[:, [a, b]] ** 2).sum(1) for values in (far, cured))
        for row in np.flatnonzero((before > after + BETTER) & (after < before / 4) & (far[:, [a, b]].max(1) > FAR)):
            x, y = expected[row, a].tolist()
            found.append(Slip(int(row), a, float(np.sqrt(before[row] / 2)), (x, y), b))
    return found


def _complex(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (R, K, 2) as complex numbers (R, K), and which are known."""
    return points[..., 0] + 1j * points[..., 1], np.isfinite(points).all(-1)


def _fit(z: np.ndarray, weights: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The turn with its size, and the shift, (R,) complex, that lay each shape (R, K) best over the mean (K,)."""
    total = np.maximum(weights.sum(1, keepdims=True), 1e-9)
    z = np.where(weights > 0, z, 0)
    from_, to = (weights * z).sum(1, keepdims=True) / total, (weights * mean).sum(1, keepdims=True) / total
    across = (weights * np.conj(z - from_) * (mean - to)).sum(1)
    turn = across / np.maximum((weights * np.abs(z - from_) ** 2).sum(1), 1e-9)
    turn = np.where(np.abs(turn) > 1e-12, turn, 1e-12)
    return turn, to[:, 0] - turn * from_[:, 0]


def _median(laid: np.ndarray, known: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The middle of each landmark (K,) over shapes (R, K)."""
    some, values = known.any(0), np.where(known, laid, np.nan)
    middle = mean.copy()
    middle[some] = np.nanmedian(values.real[:, some], 0) + 1j * np.nanmedian(values.imag[:, some], 0)
    return middle


def _normalised(mean: np.ndarray) -> np.ndarray:
    """A shape (K,) around 0, the longer side of its box 1."""
    return (mean - mean.mean()) / max(np.ptp(mean.real), np.ptp(mean.imag), 1e-9)


def _typical(off: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The deviation (K,) of distances (R, K), whatever the largest are."""
    some = known.any(0)
    typical = np.zeros(off.shape[1])
    typical[some] = np.nanquantile(np.where(known, off, np.nan)[:, some], SHARE, 0) / REACH
    return typical


def _covariance(off: np.ndarray, known: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Of displacements (R, K) from the mean (K, 2), shrunk towards a smooth one of the same size."""
    rows = np.concatenate([off.real, off.imag], 1)  # (R, 2K)
    own = rows.T @ rows / len(rows)
    prior = np.kron(np.eye(2), smooth(mean, mean, mean.mean(0)))
    prior *= max(np.trace(own), 1e-9) / np.trace(prior)
    weight = TRUST / (len(rows) + TRUST)
    return (1 - weight) * own + weight * prior + SLACK**2 * np.eye(len(own))
