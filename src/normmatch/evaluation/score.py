"""From predictions to numbers: accuracy by class; F1 where points may have no partner; MMA and PCK."""

from typing import Any

import numpy as np

from normmatch.datasets.protocols import get_protocol
from normmatch.errors import DataError
from normmatch.evaluation.metrics import mean_accuracy, precision_recall_f1, share_within
from normmatch.evaluation.predictions import Predictions

THRESHOLDS = np.arange(0, 201) / 200  # scores at which matches are cut off
SHOWN = ("precision", "recall", "f1")
MMA_PIXELS = (1, 3, 5)
PCK_SHARES = (0.05, 0.1, 0.15)


def accuracy_result(predictions: Predictions) -> dict[str, Any]:
    """Accuracy by class under the protocol of the predictions; all shares of one."""
    by_class = predictions.accuracy(get_protocol(predictions.meta["protocol"]).average)
    if not by_class:
        raise DataError("no pair has keypoints in common; expected at least one true match to score.")
    return {
        **predictions.meta,
        "pairs": len(predictions.pairs),
        "mean": mean_accuracy(by_class),
        "classes": by_class,
    }


def f1_result(predictions: Predictions, threshold: float) -> dict[str, Any]:
    """Precision, recall and F1 by class and their means, when matches below the threshold are not made."""
    by_class = _by_class(predictions, np.array([threshold]))
    mean = np.mean(list(by_class.values()), axis=0)  # (3, 1)
    return {
        "threshold": threshold,
        "mean": dict(zip(SHOWN, mean[:, 0].tolist(), strict=True)),
        "classes": {label: dict(zip(SHOWN, v[:, 0].tolist(), strict=True)) for label, v in by_class.items()},
    }


def f1_curve(predictions: Predictions) -> dict[str, list[float]]:
    """Precision, recall and F1, each the mean of the classes, as a function of the threshold."""
    mean = np.mean(list(_by_class(predictions, THRESHOLDS).values()), axis=0)  # (3, K)
    return {"threshold": THRESHOLDS.tolist(), **{name: row.tolist() for name, row in zip(SHOWN, mean, strict=True)}}


def best_threshold(predictions: Predictions) -> float:
    """The threshold with the best mean F1; the lowest of equals."""
    curve = f1_curve(predictions)
    return curve["threshold"][int(np.argmax(curve["f1"]))]


def _by_class(predictions: Predictions, thresholds: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall and F1 (3, K) of each class, all its keypoints together."""
    label = predictions.label[predictions.owner0]  # (M,)
    result = {}
    for word, name in sorted((w, predictions.words[w]) for w in np.unique(predictions.label).tolist()):
        rows = label == word
        result[name] = precision_recall_f1(
            predictions.scores0[rows],
            predictions.matches0[rows] >= 0,
            predictions.right0[rows],
            predictions.truth0[rows] >= 0,
            thresholds,
        )
    return dict(sorted(result.items()))


def mma_result(predictions: Predictions) -> dict[str, dict[str, float]]:
    """Mean matching accuracy at 1, 3 and 5 px of the image before it was resized, by class and over all pairs."""
    scale = predictions.sizes[:, 1] / predictions.meta["image_size"]  # (P, 2): pixels of image 1 a pixel of the crop
    shares = _within(predictions, scale, np.tile(MMA_PIXELS, (len(scale), 1)))  # (P, 3)
    groups = {**_classes(predictions), "overall": predictions.total > 0}
    return {
        str(pixels): {name: float(shares[rows, k].mean()) for name, rows in groups.items()}
        for k, pixels in enumerate(MMA_PIXELS)
    }


def pck_result(predictions: Predictions) -> dict[str, float]:
    """Share of points matched to within a share of crop 1's longer side: mean of the pairs, then of the classes."""
    scale = predictions.sizes[:, 1] / predictions.meta["image_size"]  # (P, 2)
    limits = predictions.sizes[:, 1].max(1, keepdims=True) * np.array(PCK_SHARES)  # (P, 3)
    shares = _within(predictions, scale, limits)
    by_class = [shares[rows].mean(0) for rows in _classes(predictions).values()]
    return {str(share): float(value) for share, value in zip(PCK_SHARES, np.mean(by_class, axis=0), strict=True)}


def _classes(predictions: Predictions) -> dict[str, np.ndarray]:
    """Of each class (P,) which pairs are of it and have a true match."""
    labels = np.array(predictions.labels)
    groups = {label: (labels == label) & (predictions.total > 0) for label in sorted(set(predictions.labels))}
    return {label: rows for label, rows in groups.items() if rows.any()}


def _within(predictions: Predictions, scale: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """`share_within` of the points that have a partner; a point that was not matched is infinitely far away."""
    known = predictions.truth0 >= 0
    owner = predictions.owner0[known]
    start = predictions.starts1[owner]
    true_place = predictions.keypoints1[start + predictions.truth0[known]]  # (T, 2)
    matches = predictions.matches0[known]
    place = predictions.keypoints1[start + np.maximum(matches, 0)]
    distances = np.linalg.norm((place - true_place) * scale[owner], axis=1)  # (T,)
    return share_within(np.where(matches >= 0, distances, np.inf), owner, limits)
