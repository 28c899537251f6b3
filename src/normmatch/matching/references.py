"""References: what annotated photographs say about how landmarks look, as one linear solve. No torch here.

A landmark's look is the mean of the unit features around it; all landmarks of all references are read in one solve,

    W = (mean - m) (S + ridge tr(S)/D I)^-1        m, S: mean and covariance of all cells that were seen

and a photograph's cells are answered by the inner product with W: where a cell looks like the landmark in what tells
the landmark from everything else (a linear discriminant).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

RIDGE = 1.0  # of the covariance, as a share of its mean eigenvalue; 0.3 and 3 were up to 2 points worse at 0.05
BLUR = 0.6  # cells: a landmark is read with a Gaussian of that deviation; 0.8 to 1.8 were worse
TEMPERATURE = 0.5  # of standardised answers
FLOOR = 0.2  # of the probability lies anywhere in the picture: covered, absent or misread landmarks
SHARE = 256  # cells of a photograph that the covariance is made of


@dataclass(frozen=True, eq=False)
class Cells:
    """A crop as the encoder sees it: P = height x width cells, row by row, with unit vectors of each block."""

    features: np.ndarray  # (P, D) float32
    height: int
    width: int

    @property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """The middles of the cells as shares of the crop: x (1, width) and y (1, height)."""
        return ((np.arange(self.width) + 0.5) / self.width)[None], ((np.arange(self.height) + 0.5) / self.height)[None]

    @property
    def grid(self) -> np.ndarray:
        """The same as places (P, 2), x and y, row by row."""
        return np.stack(np.meshgrid(*self.axes), -1).reshape(-1, 2)

    def half(self) -> "Cells":
        """The same in float16, to be kept."""
        return Cells(self.features.astype(np.float16), self.height, self.width)

    def single(self) -> "Cells":
        """The same in float32, to be read."""
        return Cells(self.features.astype(np.float32), self.height, self.width)


def make_cells(maps: np.ndarray, blocks: int) -> list[Cells]:
    """Of an encoder's maps (B, blocks x C, h, w): each block's vector has length 1 / sqrt(blocks), so all have 1."""
    batch, channels, height, width = maps.shape
    parts = maps.astype(np.float32).reshape(batch, blocks, channels // blocks, height * width)
    parts = parts / np.maximum(np.linalg.norm(parts, axis=2, keepdims=True), 1e-6) / np.sqrt(blocks)
    rows = parts.reshape(batch, channels, -1).transpose(0, 2, 1)  # (B, P, D)
    return [Cells(np.ascontiguousarray(item), height, width) for item in rows]


def around(points: np.ndarray, cells: Cells, blur: float = BLUR) -> np.ndarray:
    """Weights (K, P), each row summing to 1, of the cells around points (K, 2); rows of NaN points are 0."""
    size = np.array((cells.width, cells.height))
    apart = (points[:, None] - cells.grid) * size  # (K, P, 2) in cells
    weights = np.exp(-np.minimum((apart**2).sum(2) / (2 * blur**2), 80.0))  # (K, P); a point outside has its border
    weights /= weights.sum(1, keepdims=True)
    return np.where(np.isfinite(points).all(1)[:, None], weights, 0.0).astype(np.float32)


def read_points(cells: Cells, points: np.ndarray) -> np.ndarray:
    """The features (K, D) at points (K, 2) of a crop; zeros at NaN."""
    return around(points, cells) @ cells.features


@dataclass(eq=False)
class Looks:
    """The mean features of K landmarks, growing with each photograph that shows them."""

    total: np.ndarray  # (K, D)
    weight: np.ndarray  # (K,)

    @classmethod
    def none(cls, landmarks: int, width: int) -> "Looks":
        return cls(np.zeros((landmarks, width), np.float32), np.zeros(landmarks, np.float32))

    def add(self, cells: Cells, points: np.ndarray, weight: np.ndarray | float = 1.0) -> None:
        """Read one more crop at points (K, 2), shares of it; NaN where it does not show a landmark."""
        weights = np.where(np.isfinite(points).all(1), weight, 0.0).astype(np.float32)  # (K,)
        self.total += weights[:, None] * read_points(cells, points)
        self.weight += weights

    def copy(self) -> "Looks":
        return Looks(self.total.copy(), self.weight.copy())

    @property
    def mean(self) -> np.ndarray:
        """(K, D); zeros where no photograph shows the landmark."""
        return self.total / np.maximum(self.weight, 1e-6)[:, None]


class Background:
    """Mean and covariance of cells, what everything in these photographs has in common, as they come."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.total, self.products = np.zeros(width), np.zeros((width, width))
        self._factor: tuple[Any, float, int] | None = None  # of a ridge and a count

    @classmethod
    def of(cls, photographs: Sequence[Cells], share: int = SHARE) -> "Background":
        """Of about `share` evenly spread cells of each photograph."""
        found = cls(photographs[0].features.shape[1])
        for cells in photographs:
            found.add(cells, share)
        return found

    def add(self, cells: Cells, share: int = SHARE) -> None:
        rows = cells.features[:: max(1, len(cells.features) // share)]  # (n, D)
        self.count += len(rows)
        self.total += rows.sum(0)
        self.products += rows.T @ rows

    @property
    def mean(self) -> np.ndarray:
        """(D,)."""
        return (self.total / self.count).astype(np.float32)

    @property
    def covariance(self) -> np.ndarray:
        """(D, D)."""
        mean = self.total / self.count
        return (self.products / self.count - np.outer(mean, mean)).astype(np.float32)

    def whiten(self, rows: np.ndarray, ridge: float) -> np.ndarray:
        """Rows (K, D) times the inverse of the covariance and a ridge; factored once, for many solves."""
        if self._factor is None or self._factor[1:] != (ridge, self.count):
            matrix = self.covariance
            matrix[np.diag_indices(len(matrix))] += ridge * np.trace(matrix) / len(matrix) + 1e-6
            self._factor = scipy.linalg.cho_factor(matrix, overwrite_a=True, check_finite=False), ridge, self.count
        found: np.ndarray = scipy.linalg.cho_solve(self._factor[0], rows.T, check_finite=False).T
        return found.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Filters:
    """What answers a photograph's cells for K landmarks."""

    weights: np.ndarray  # (K, D)
    offset: np.ndarray  # (K,): taken off, so that the background answers 0 on average
    own: np.ndarray  # (K,): what the references themselves answer at the landmark
    known: np.ndarray  # (K,) bool: some reference shows the landmark

    def answer(self, cells: Cells) -> np.ndarray:
        """(K, P): how much each cell looks like each landmark; 1 is as much as the references do."""
        found = self.weights @ cells.features.T - self.offset[:, None]  # (K, P)
        return found / self.own[:, None]


def solve(looks: Looks, background: Background, ridge: float = RIDGE) -> Filters:
    """The one linear solve, for all landmarks."""
    known, mean = looks.weight > 0, background.mean
    centred = np.where(known[:, None], looks.mean - mean, 0.0)  # (K, D)
    weights = background.whiten(centred, ridge)
    own = np.maximum((weights * centred).sum(1), 1e-6)
    return Filters(weights, weights @ mean, own, known)


def log_likelihood(answers: np.ndarray, known: np.ndarray, temperature: float = TEMPERATURE) -> np.ndarray:
    """Log-probabilities (K, P) over cells, of answers (K, P); nothing is said of landmarks that are not known.

    Answers are standardised within the photograph: how far a landmark stands out is what counts. A floor keeps any one
    landmark from ruling out what all the others say.
    """
    cells = answers.shape[1]
    centred = answers - answers.mean(1, keepdims=True)
    logits = centred / (temperature * (answers.std(1, keepdims=True) + 1e-9))
    logits -= logits.max(1, keepdims=True)
    shares = np.exp(logits)
    shares /= shares.sum(1, keepdims=True)
    shares = np.where(known[:, None], (1 - FLOOR) * shares + FLOOR / cells, 1 / cells)
    return np.log(shares)
