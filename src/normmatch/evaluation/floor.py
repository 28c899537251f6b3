"""The floor of a task: what the keypoints' places alone give away, and what a blind guess has.

Upright photographs in boxes put the same points in the same places, so accuracy is read from here and not from zero.
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from normmatch.datasets.protocols import get_protocol
from normmatch.evaluation.metrics import accuracy_by_class
from normmatch.evaluation.predictions import Predictions

POSITION, ONE_TO_ONE, CHANCE = "position", "1 to 1", "chance"
NOTE = (
    "floors: each point matched with the one nearest to its own place in the crop (position); no point used twice, by "
    "least squares, which another place or size of the whole does not change (1 to 1); a blind guess (chance)"
)


def by_position(predictions: Predictions, one_to_one: bool) -> Predictions:
    """The same pairs, answered by where the points lie in the crops, without a look at the images."""
    found = [np.empty(0, np.int32)]
    starts0 = np.cumsum(predictions.counts[:, 0]) - predictions.counts[:, 0]  # (P,)
    for start0, start1, (m, n) in zip(starts0, predictions.starts1, predictions.counts, strict=True):
        points0 = predictions.keypoints0[start0 : start0 + m]
        points1 = predictions.keypoints1[start1 : start1 + n]
        squares = np.square(points0[:, None] - points1).sum(2)  # (M, N)
        matches = np.full(m, -1, np.int32)
        if one_to_one:
            rows, columns = linear_sum_assignment(squares)
            matches[rows] = columns
        elif n:
            matches = squares.argmin(1).astype(np.int32)
        found.append(matches)
    matches0 = np.concatenate(found)
    return replace(predictions, matches0=matches0, scores0=np.ones(len(matches0), np.float32))


def chance(predictions: Predictions) -> dict[str, float]:
    """Accuracy per class that a guess among the points of image 1 is expected to have."""
    right = predictions.total / np.maximum(predictions.counts[:, 1], 1)
    average = get_protocol(predictions.meta["protocol"]).average
    return accuracy_by_class(right, predictions.total, predictions.labels, average)
