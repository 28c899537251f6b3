"""Scores of predicted matches: pure functions on arrays."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

Average = Literal["keypoints", "pairs"]


def accuracy_by_class(
    correct: np.ndarray, total: np.ndarray, labels: Sequence[str], average: Average = "keypoints"
) -> dict[str, float]:
    """Accuracy of each class, in alphabetical order, from correct and true matches (P,) of each pair.

    `keypoints` counts all keypoints of a class together (protocols nmt, bbgm); `pairs` takes the mean of the pairs'
    accuracies (thinkmatch). A pair without true matches says nothing and does not count.
    """
    names, counts = np.asarray(labels), total > 0
    result = {}
    for label in sorted(set(labels)):
        rows = (names == label) & counts
        if not rows.any():
            continue
        if average == "keypoints":
            result[label] = float(correct[rows].sum() / total[rows].sum())
        else:
            result[label] = float((correct[rows] / total[rows]).mean())
    return result


def mean_accuracy(by_class: dict[str, float]) -> float:
    """The mean of the classes, each counting the same."""
    return float(np.mean(list(by_class.values())))


def precision_recall_f1(
    scores: np.ndarray, matched: np.ndarray, right: np.ndarray, known: np.ndarray, thresholds: np.ndarray
) -> np.ndarray:
    """Precision, recall and F1 (3, K) when only matches with a score of at least each threshold (K,) are made.

    Args:
        scores: (T,) of the points of image 0.
        matched: (T,) whether the point was matched at all, before any threshold.
        right: (T,) whether its match is true.
        known: (T,) whether it has a true match.

    Making no match at all is precise (1) and finds nothing (0).
    """
    made = _at_least(scores[matched], thresholds)  # (K,)
    found = _at_least(scores[matched & right], thresholds)  # (K,)
    there = int(known.sum())
    precision = np.where(made > 0, found / np.maximum(made, 1), 1.0)
    recall = found / max(there, 1)
    return np.stack([precision, recall, 2 * found / np.maximum(made + there, 1)])  # F1 = 2 P R / (P + R)


def _at_least(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many values reach each threshold."""
    return len(values) - np.searchsorted(np.sort(values), thresholds, side="left")


def share_within(distances: np.ndarray, owner: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Of each pair the share (P, K) of its points whose match lies within limits (P, K) of its true place.

    With limits in pixels the mean over pairs is MMA; with limits that are shares of an object's size it is PCK.

    Args:
        distances: (T,) between the match of a point and its true match.
        owner: (T,) the pair that each point belongs to. A pair without points has nan.
    """
    within = distances[:, None] <= limits[owner]  # (T, K)
    counts = np.bincount(owner, minlength=len(limits))[:, None]  # (P, 1)
    found = np.stack([np.bincount(owner, column, len(limits)) for column in within.T], axis=1)  # (P, K)
    return np.where(counts > 0, found / np.maximum(counts, 1), np.nan)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation over runs, the latter of a sample (n - 1); 0 for a single run."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
