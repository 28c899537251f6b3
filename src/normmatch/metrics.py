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
