"""Shape: all landmarks are decided together, by what the references say about where they lie to each other.

The prior of the landmarks' places is a Gaussian, N(mean, C). With one reference C is smooth: shift, stretch and bend of
the whole, and a little slack for each landmark; with more the covariance of the references themselves joins in. What
the picture says of each landmark is any map of log-probabilities over cells. Both meet by expectation propagation
(Minka 2001): each landmark's map is replaced by the Gaussian that, with what the others say of its place, has the same
mean and variance. A few rounds of one small linear solve each; nothing is drawn at random.
"""

from dataclasses import dataclass

import numpy as np

BEND, REACH = 0.10, 0.35  # deviation and length of smooth bending, as shares of the crop
SHIFT, STRETCH = 0.08, 0.12  # deviation of the whole's place, and of each entry of its affine frame
SLACK = 0.04  # deviation of each landmark for itself; 0.02 without a template
TRUST = 6.0  # references at which their own covariance weighs as much as the smooth one
ROUNDS, DAMPING = 8, 0.6
STRAY = 0.05  # of the probability goes by the picture alone: a real deviation is followed
ANCHORS = 300  # landmarks that decide together; further ones follow them
SIDE = 8  # of the template's grid


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


def decide(log_likelihood: np.ndarray, grid: np.ndarray, shape: Shape, rounds: int = ROUNDS) -> Decision:
    """Expectation propagation of maps (K, P) over places `grid`, (P, 2) or each landmark's own (K, P, 2)."""
    landmarks = len(shape.mean)
    least = _cell(grid) ** 2 / 4  # a map cannot say more than half a cell
    precision, pull = np.zeros((landmarks, 2)), np.zeros((landmarks, 2))  # of the Gaussians in the maps' place
    for _ in range(rounds):
        others, slack = _cavity(shape, precision, pull)
        weights = _normalised(log_likelihood + _log_density(grid, others, slack))  # (K, P)
        mean, variance = _moments(weights, grid, least)
        found = np.maximum(1 / variance - 1 / slack, 1e-6)
        informed = np.where(found > 1e-6, mean / variance - others / slack, found * others)
        precision += DAMPING * (found - precision)
        pull += DAMPING * (informed - pull)
    others, slack = _cavity(shape, precision, pull)
    inside = (1 - STRAY) * np.exp(_log_density(grid, others, slack)) + STRAY / (2 * np.pi * 0.5**2)
    probability = _normalised(log_likelihood + np.log(inside))
    mean, variance = _moments(_near(probability, grid, others, slack), grid, least)
    return Decision(mean, variance, others, slack, probability, precision, pull)


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
    matrix = np.eye(len(t)) + root[:, None] * shape.rows[:, both] * root  # (2A, 2A)
    solved = np.linalg.solve(matrix, root[:, None] * shape.rows)  # (2A, 2K)
    variance = np.maximum(shape.variance - (root[:, None] * shape.rows * solved).sum(0), 1e-9)
    error = n - t * prior[both]
    mean = prior + error @ shape.rows - (root * (shape.rows[:, both] @ error)) @ solved
    t_all, n_all = np.zeros(2 * landmarks), np.zeros(2 * landmarks)
    t_all[both], n_all[both] = t, n
    cavity = np.maximum(1 / variance - t_all, 0.1 / shape.variance)
    middle = (mean / variance - n_all) / cavity
    return middle.reshape(2, -1).T, 1 / cavity.reshape(2, -1).T


def _log_density(grid: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """(K, P)."""
    apart = grid - mean[:, None]  # (K, P, 2)
    return -0.5 * (apart**2 / variance[:, None]).sum(2) - 0.5 * np.log((2 * np.pi) ** 2 * variance.prod(1))[:, None]


def _normalised(logs: np.ndarray) -> np.ndarray:
    shares = np.exp(logs - logs.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def _moments(weights: np.ndarray, grid: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (K, 2) of weights (K, P) over places."""
    equation = "kp,pc->kc" if grid.ndim == 2 else "kp,kpc->kc"
    mean = np.einsum(equation, weights, grid)
    return mean, np.maximum(np.einsum(equation, weights, grid**2) - mean**2, 0.0) + least


def _near(probability: np.ndarray, grid: np.ndarray, others: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """The part of a map that belongs to its main hill: around its peak, where that lies far from the others' guess."""
    best = probability.argmax(1)
    peak = grid[best] if grid.ndim == 2 else grid[np.arange(len(best)), best]  # (K, 2)
    far = ((peak - others) ** 2 / slack).sum(1) > 9.0
    middle, width = np.where(far[:, None], peak, others), np.where(far[:, None], 0.03**2, slack)
    return _normalised(np.log(probability + 1e-30) + np.where(far[:, None], _log_density(grid, middle, width), 0.0))


def _cell(grid: np.ndarray) -> float:
    """The distance between neighbouring places."""
    some = grid if grid.ndim == 2 else grid[0]
    return float(np.sqrt(np.ptp(some[:, 0]) * np.ptp(some[:, 1]) / max(len(some) - 1, 1)))


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
