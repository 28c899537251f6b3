"""Shape: all landmarks are decided together, by what the references say about where they lie to each other.

The prior of the landmarks' places is a Gaussian, N(mean, C). With one reference C is smooth: shift, stretch and bend of
the whole, and a little slack for each landmark; with more the covariance of the references themselves joins in. What
the picture says of each landmark is any map of log-probabilities over cells. Both meet by expectation propagation
(Minka 2001): each landmark's map is replaced by the Gaussian that, with what the others say of its place, has the same
mean and variance. A few rounds of one small linear solve each; nothing is drawn at random.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

BEND, REACH = 0.10, 0.35  # deviation and length of smooth bending, as shares of the crop
SHIFT, STRETCH = 0.08, 0.12  # deviation of the whole's place, and of each entry of its affine frame
SLACK = 0.04  # deviation of each landmark for itself; 0.02 without a template
TRUST = 6.0  # references at which their own covariance weighs as much as the smooth one
ROUNDS, AGAIN, DAMPING = 8, 3, 0.6  # rounds of a decision, and of one that begins with an earlier one
STRAY = 0.05  # of the probability goes by the picture alone: a real deviation is followed
ANCHORS = 300  # landmarks that decide together; further ones follow them
SIDE = 8  # of the template's grid

Axes = tuple[np.ndarray, np.ndarray]  # x (K, w) and y (K, h) of a grid of places, each landmark's own or (1, w), (1, h)


@dataclass(frozen=True, eq=False)
class Shape:
    """A Gaussian over the places of K landmarks, as much of it as deciding takes."""

    mean: np.ndarray  # (K, 2), shares of the crop
    anchors: np.ndarray  # (A,) indices of the landmarks that decide
    rows: np.ndarray  # (2A, 2K): covariance of the anchors with all; first every x, then every y
    variance: np.ndarray  # (2K,)


@dataclass(frozen=True, eq=False)
class Decision:
    """Where K landmarks are, by the picture and by each other."""

    mean: np.ndarray  # (K, 2)
    variance: np.ndarray  # (K, 2)
    others: np.ndarray  # (K, 2): where the other landmarks expect each
    slack: np.ndarray  # (K, 2): variance of that
    probability: np.ndarray  # (K, P) over the cells
    precision: np.ndarray  # (K, 2) of the Gaussian that stands for what the picture says
    pull: np.ndarray  # (K, 2): that Gaussian's mean times its precision


def smooth(first: np.ndarray, second: np.ndarray, middle: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """The smooth prior's covariance (N, M) of displacements at two sets of places, the same for x and y."""
    apart = ((first[:, None] - second) ** 2).sum(2)
    frame = (SHIFT * scale) ** 2 + (STRETCH * scale) ** 2 * ((first - middle) @ (second - middle).T)
    return BEND**2 * np.exp(-apart / (2 * REACH**2)) + frame


def make_shape(
    places: np.ndarray, slack: float = SLACK, scale: float = 1.0, trust: float = TRUST, spread: np.ndarray | None = None
) -> Shape:
    """The prior from places (R, K, 2) of K landmarks in R references, NaN where one does not show a landmark.

    Args:
        slack: deviation of each landmark for itself.
        scale: how much more than in a box the whole may be shifted and stretched.
        trust: references at which their own covariance weighs as much as the smooth one.
        spread: (K, 2) variance with which the places are known, where they were found rather than given.
    """
    seen = np.isfinite(places).all(2)  # (R, K)
    mean = np.where(seen[..., None], places, 0.0).sum(0) / np.maximum(seen.sum(0), 1)[:, None]  # (K, 2)
    landmarks, references = len(mean), len(places)
    mean[~seen.any(0)] = mean[seen.any(0)].mean(0) if seen.any() else 0.5
    anchors = _anchors(landmarks)
    both = np.concatenate([anchors, anchors + landmarks])  # (2A,)
    part = smooth(mean[anchors], mean, mean.mean(0), scale)  # (A, K)
    rows = np.zeros((len(both), 2 * landmarks))
    rows[: len(anchors), :landmarks] = rows[len(anchors) :, landmarks:] = part
    variance = np.tile(
        np.diag(smooth(mean, mean, mean.mean(0), scale))
        if landmarks <= ANCHORS
        else BEND**2 + (SHIFT * scale) ** 2 + (STRETCH * scale) ** 2 * ((mean - mean.mean(0)) ** 2).sum(1),
        2,
    )
    if references > 1:
        off = np.where(seen[..., None], places - mean, 0.0).transpose(0, 2, 1).reshape(references, -1)  # (R, 2K)
        weight = references / (references + trust)
        rows = (1 - weight) * rows + weight * off[:, both].T @ off / (references - 1)
        variance = (1 - weight) * variance + weight * (off**2).sum(0) / (references - 1)
    own = np.full(2 * landmarks, slack**2)
    own += 0.0 if spread is None else spread.T.ravel()
    rows[np.arange(len(both)), both] += own[both]
    return Shape(mean, anchors, rows, variance + own)


def _anchors(landmarks: int) -> np.ndarray:
    """Evenly chosen ones of many."""
    return np.unique(np.linspace(0, landmarks - 1, min(landmarks, ANCHORS)).round().astype(int))


def decide(
    log_likelihood: np.ndarray, axes: Axes, shape: Shape, rounds: int = ROUNDS, start: Decision | None = None
) -> Decision:
    """Expectation propagation of maps (K, P) over places on `axes`, row by row.

    A Gaussian over a grid is a product of one over x and one over y, so a round is two small products of matrices.

    Args:
        start: an earlier decision of the same landmarks, from which fewer rounds get there.
    """
    landmarks, height = len(shape.mean), axes[1].shape[1]
    likelihood = np.exp(log_likelihood - log_likelihood.max(1, keepdims=True)).reshape(landmarks, height, -1)
    least = _cell(axes) ** 2 / 4  # a map cannot say more than half a cell
    precision, pull = np.zeros((landmarks, 2)), np.zeros((landmarks, 2))  # of the Gaussians in the maps' place
    if start is not None:
        precision, pull = start.precision, start.pull
    for _ in range(rounds):
        others, slack = _cavity(shape, precision, pull)
        mean, variance = _moments(likelihood, axes, _density(axes, others, slack), least)
        found = np.maximum(1 / variance - 1 / slack, 1e-6)
        informed = np.where(found > 1e-6, mean / variance - others / slack, found * others)
        precision = precision + DAMPING * (found - precision)
        pull = pull + DAMPING * (informed - pull)
    others, slack = _cavity(shape, precision, pull)
    across, down = _density(axes, others, slack)
    inside = (1 - STRAY) * down[:, :, None] * across[:, None] + STRAY / (2 * np.pi * 0.5**2)
    probability = likelihood * inside  # (K, h, w)
    probability /= probability.sum((1, 2), keepdims=True)
    mean, variance = _moments(probability, axes, _near(probability, axes, others, slack), least)
    return Decision(mean, variance, others, slack, probability.reshape(landmarks, -1), precision, pull)


def given_template(shape: Shape, decision: Decision, landmarks: int) -> Shape:
    """The prior of the first `landmarks` alone, given what a decision says of the template's points behind them."""
    total = len(shape.mean)
    kept = shape.anchors < landmarks
    rest = np.concatenate([~kept, ~kept])
    behind = np.concatenate([shape.anchors[~kept], shape.anchors[~kept] + total])
    front = np.concatenate([np.arange(landmarks), np.arange(landmarks) + total])
    t, n, prior = decision.precision.T.ravel()[behind], decision.pull.T.ravel()[behind], shape.mean.T.ravel()
    root = np.sqrt(t)
    among = np.eye(len(t)) + root[:, None] * shape.rows[rest][:, behind] * root
    across = root[:, None] * shape.rows[rest]  # (2T, 2K)
    solved = np.linalg.solve(among, across)
    error = n - t * prior[behind]
    mean = prior + error @ shape.rows[rest] - (root * (shape.rows[rest][:, behind] @ error)) @ solved
    anchors = np.concatenate([shape.anchors[kept], shape.anchors[kept] + total])
    rows = shape.rows[~rest] - across[:, anchors].T @ solved
    variance = shape.variance - (across * solved).sum(0)
    return Shape(mean[front].reshape(2, -1).T, shape.anchors[kept], rows[:, front], np.maximum(variance[front], 1e-9))


def _cavity(shape: Shape, precision: np.ndarray, pull: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (K, 2) of each landmark by the prior and the other landmarks' Gaussians."""
    landmarks, anchors = len(shape.mean), shape.anchors
    both = np.concatenate([anchors, anchors + landmarks])
    t, n, prior = precision.T.ravel()[both], pull.T.ravel()[both], shape.mean.T.ravel()
    root = np.sqrt(t)
    across = root[:, None] * shape.rows  # (2A, 2K)
    lower = np.linalg.cholesky(np.eye(len(t)) + across[:, both] * root)  # (2A, 2A)
    error = n - t * prior[both]
    right = np.concatenate([across, (shape.rows[:, both].T @ error * root)[:, None]], 1)
    solved = scipy.linalg.solve_triangular(lower, right, lower=True, check_finite=False, overwrite_b=True)
    solved, known = solved[:, :-1], solved[:, -1]
    variance = np.maximum(shape.variance - (solved**2).sum(0), 1e-9)
    mean = prior + error @ shape.rows - known @ solved
    t_all, n_all = np.zeros(2 * landmarks), np.zeros(2 * landmarks)
    t_all[both], n_all[both] = t, n
    cavity = np.maximum(1 / variance - t_all, 0.1 / shape.variance)
    middle = (mean / variance - n_all) / cavity
    return middle.reshape(2, -1).T, 1 / cavity.reshape(2, -1).T


def _density(axes: Axes, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian (K, 2) of each landmark as its factors (K, w) over x and (K, h) over y."""
    apart = (ticks - mean[:, i, None] for i, ticks in enumerate(axes))
    x, y = (
        np.exp(-0.5 * one**2 / var[:, None]) / np.sqrt(2 * np.pi * var[:, None])
        for one, var in zip(apart, variance.T, strict=True)
    )
    return x, y


def _moments(
    maps: np.ndarray, axes: Axes, density: tuple[np.ndarray, np.ndarray], least: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (K, 2) of maps (K, h, w) times Gaussians given by their factors."""
    x, y = axes
    across, down = density[0] + 1e-100, density[1] + 1e-100  # far from everything the picture alone decides
    rows = maps @ np.stack([across, across * x, across * x**2], 2)  # (K, h, 3)
    total, first, second = np.einsum("kh,khm->mk", down, rows)
    third, fourth = np.einsum("mkh,kh->mk", np.stack([down * y, down * y**2]), rows[:, :, 0])
    mean = np.stack([first, third], 1) / total[:, None]
    return mean, np.maximum(np.stack([second, fourth], 1) / total[:, None] - mean**2, 0.0) + least


def _near(probability: np.ndarray, axes: Axes, others: np.ndarray, slack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What cuts a map down to its main hill: a Gaussian around its peak, where that lies far from the others' guess."""
    landmarks, _, width = probability.shape
    row, column = np.divmod(probability.reshape(landmarks, -1).argmax(1), width)
    peak = np.stack([ticks[-1 if len(ticks) == 1 else np.arange(landmarks), at]
                     for ticks, at in zip(axes, (column, row), strict=True)], 1)  # fmt: skip
    far = (((peak - others) ** 2 / slack).sum(1) > 9.0)[:, None]
    x, y = _density(axes, peak, np.full_like(slack, 0.03**2))
    return np.where(far, x, 1.0), np.where(far, y, 1.0)


def _cell(axes: Axes) -> float:
    """The distance between neighbouring places."""
    x, y = (float(np.ptp(ticks[0])) / max(ticks.shape[1] - 1, 1) for ticks in axes)
    return (x * y) ** 0.5


def add_template(places: np.ndarray, side: int = SIDE) -> np.ndarray:
    """The places (R, K, 2) of landmarks, followed by those of a grid bent along with them: (R, K + side^2, 2).

    With few references the whole of a reference, not its landmarks alone, says where things lie: points of a grid over
    the mean shape, moved in each reference as smoothly as its landmarks ask for, take part like landmarks.
    """
    seen = np.isfinite(places).all(2)  # (R, K)
    mean = np.where(seen[..., None], places, 0.0).sum(0) / np.maximum(seen.sum(0), 1)[:, None]  # (K, 2)
    ticks = (np.arange(side) + 0.5) / side
    grid = np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 2)
    middle = np.concatenate([mean[seen.any(0)], grid]).mean(0)
    bent = []
    for place, ok in zip(places, seen, strict=True):
        chosen = np.flatnonzero(ok)[
            np.linspace(0, max(ok.sum() - 1, 0), min(int(ok.sum()), ANCHORS)).round().astype(int)
        ]
        among = smooth(mean[chosen], mean[chosen], middle) + SLACK**2 * np.eye(len(chosen))
        moves = smooth(grid, mean[chosen], middle) @ np.linalg.solve(among, place[chosen] - mean[chosen])
        bent.append(grid + moves)
    return np.concatenate([places, np.stack(bent)], 1)
