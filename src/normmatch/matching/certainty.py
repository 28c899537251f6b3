"""How sure: probabilities that a landmark is where it was found, and that it is there at all. No torch here."""

import numpy as np

from normmatch.geometry import Box
from normmatch.matching.looks import FirstLook
from normmatch.matching.references import Cells
from normmatch.matching.shape import Axes, Decision
from normmatch.matching.sight import back

WITHIN = 0.1  # of the object: what a score is the probability of
# Logistic regressions: a constant; the share of the first look's probability within a tenth (its logit); how much the
# place looks like the references' landmark; the logarithm of its deviation; the last two as means of all landmarks.
# Fitted on crops of SPair-71k's trn photographs (18 classes, 14 each) with 1, 3 and 5 references, half as many crops
# of other classes and noise, where every landmark is absent. AUC of right or wrong 0.91, ECE 0.02 to 0.06 by number of
# references; landmarks of other classes get 0.09 on average, those of noise 0.04.
SCORE = (-12.32, 0.15, 2.55, -1.61, 2.06, -1.74)
VISIBLE = (-2.47, -0.02, 2.6, 0.54, 2.45, -0.71)
WIDER = 1.3  # a radius by the decision alone is too small
TOGETHER = 3.0  # landmarks of one photograph go wrong together: so many photographs' worth count in full


def strength_of(model: FirstLook, cells: Cells, places: np.ndarray) -> np.ndarray:
    """How much each landmark's place (K, 2) looks like it, compared with the references: (K,), 1 is as much."""
    answers = model.plain.answer(cells)[: model.landmarks]
    if model.filters is not model.plain:  # taught by the folder too: that alone is too sure, the references too unsure
        answers = (answers + model.filters.answer(cells)[: model.landmarks]) / 2
    near = ((places[:, None] - cells.grid) ** 2).sum(2)  # (K, P)
    return np.where(near <= 0.05**2, answers, -np.inf).max(1, initial=-1.0)


def mass_near(decision: Decision, grid: np.ndarray, points: np.ndarray, whole: Box, size: float) -> np.ndarray:
    """(K,) of a first look's probability, the share within a tenth of the object around points (K, 2)."""
    apart = np.linalg.norm(back(grid, whole) - points[:, None], axis=2)  # (K, P)
    return (decision.probability[: len(points)] * (apart <= WITHIN * size)).sum(1)


def radius_of(axes: Axes, probability: np.ndarray, points: np.ndarray, whole: Box) -> np.ndarray:
    """(K,) the distance in pixels from points (K, 2) within which 68 % of the probability lies."""
    x, y = (ticks * whole[2 + i] + whole[i] - points[:, i, None] for i, ticks in enumerate(axes))  # (K, w), (K, h)
    apart = np.sqrt(y[:, :, None] ** 2 + x[:, None] ** 2).reshape(len(points), -1)  # (K, P)
    order = apart.argsort(1)
    held = np.take_along_axis(probability, order, 1).cumsum(1) >= 0.68 * probability.sum(1, keepdims=True)
    return np.take_along_axis(np.take_along_axis(apart, order, 1), held.argmax(1)[:, None], 1)[:, 0]


def widened(radius: np.ndarray, scores: np.ndarray, size: float) -> np.ndarray:
    """The radius (K,) of 68 %, of places that are right with probability `scores`, and elsewhere without.

    Right places are taken to be off as a Gaussian in both directions; where a tenth of an object of that size is too
    little for 68 %, the radius grows to twice that.
    """
    share = np.minimum(0.68 / np.maximum(scores, 1e-3), 0.99)
    sure = WIDER * radius * np.sqrt(np.log(1 - share) / np.log(1 - 0.68))
    return np.maximum(sure, 2 * WITHIN * size * (1 - scores / 0.68))


def logits_of(mass: np.ndarray, strength: np.ndarray, variance: np.ndarray, constants: tuple[float, ...]) -> np.ndarray:
    """(K,) of the probabilities; `variance` (K, 2) is that of the first look's decision, in shares of the crop."""
    mass, strength = mass.clip(0.01, 0.99), strength.clip(-0.5, 1.5)
    doubt = 0.5 * np.log(variance.sum(1))
    own = np.stack([np.ones_like(mass), np.log(mass / (1 - mass)), strength, doubt], 1)  # (K, 4)
    both = strength.mean() * constants[4] + doubt.mean() * constants[5]
    return own @ np.array(constants[:4]) + both


def likeliest_shift(logits: np.ndarray, right: np.ndarray) -> float:
    """By Newton's method; landmarks of one photograph go wrong together, so they count for less than as many others."""
    shift, weight = 0.0, 1 / np.sqrt(max(len(right) / TOGETHER, 1))
    for _ in range(20):
        share = sigmoid(logits + shift)
        shift += (weight * (right - share).sum() - shift) / (weight * (share * (1 - share)).sum() + 1)
    return float(shift)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))
