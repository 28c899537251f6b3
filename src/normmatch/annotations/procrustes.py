"""Procrustes: things laid onto their mean by similarity frames, which outliers cannot pull. Points are x + iy."""

import numpy as np

FRAMES = 8  # rounds of reweighting


def line_of(points: np.ndarray) -> np.ndarray:
    """Points (..., 2) as complex numbers, x + iy."""
    return points[..., 0] + 1j * points[..., 1]


def plane_of(line: np.ndarray) -> np.ndarray:
    """Complex numbers as points (..., 2)."""
    return np.stack([line.real, line.imag], -1)


def align(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The robust mean shape (K,) of things (R, K, 2), and each laid onto it: complex numbers, x + iy.

    Returns the mean, whose longer side is 1, the things on it (R, K), and their frames: laid = turn * thing + shift.
    """
    known = np.isfinite(points).all(2)
    line = np.where(known, line_of(np.nan_to_num(points)), 0)  # (R, K)
    first = int(known.sum(1).argmax())
    mean, has = line[first], known[first].copy()
    for _ in range(FRAMES):
        turn, shift = frames(line, mean, known & has)
        laid = turn[:, None] * line + shift[:, None]
        off = np.abs(laid - mean)
        scale = np.median(off[known & has]) * 2 + 1e-9 * np.abs(mean).max() + 1e-12
        weight = np.where(known, 1 / (1 + (np.where(has, off, 0) / scale) ** 2), 0)
        mean = np.where(known.any(0), (weight * laid).sum(0) / np.maximum(weight.sum(0), 1e-12), mean)
        has = known.any(0)
        side = max(np.ptp(mean.real[has]), np.ptp(mean.imag[has]))
        mean = (mean - mean[has].mean()) / (side or 1.0)  # one place alone has no size
    turn, shift = frames(line, mean, known)
    return mean, turn[:, None] * line + shift[:, None], turn, shift


def frames(line: np.ndarray, mean: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The similarity (turn, shift), (R,) each, that lays things (R, K) onto the mean; outliers weigh little."""
    weight = known.astype(float)
    for _ in range(FRAMES):
        total = np.maximum(weight.sum(1), 1e-12)
        middle, onto = (weight * line).sum(1) / total, (weight * mean).sum(1) / total
        off = np.where(known, line - middle[:, None], 0)
        size = (weight * np.abs(off) ** 2).sum(1)
        turn = (weight * off.conj() * (mean - onto[:, None])).sum(1) / np.where(size > 0, size, 1)
        turn = np.where(np.abs(turn) > 0, turn, 1)  # one place alone has neither size nor direction
        shift = onto - turn * middle
        error = np.abs(turn[:, None] * line + shift[:, None] - mean)
        usual = np.ma.median(np.ma.array(error, mask=~known), axis=1).filled(0)[:, None]
        weight = known / (1 + (error / (3 * usual + 0.01)) ** 2)
    return turn, shift
