"""From predictions to numbers: accuracy by class, and precision, recall and F1 where points may have no partner."""

from typing import Any

import numpy as np

from normmatch.data.protocols import get_protocol
from normmatch.evaluation.predictions import Predictions
from normmatch.metrics import mean_accuracy, precision_recall_f1

THRESHOLDS = np.arange(0, 201) / 200  # scores at which matches are cut off
SHOWN = ("precision", "recall", "f1")


def accuracy_result(predictions: Predictions) -> dict[str, Any]:
    """Accuracy by class under the protocol of the predictions; all shares of one."""
    by_class = predictions.accuracy(get_protocol(predictions.meta["protocol"]).average)
    return {
        **predictions.meta,
        "pairs": len(predictions.pairs),
        "mean": mean_accuracy(by_class) if by_class else 0.0,
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
