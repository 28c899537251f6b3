"""From predictions to numbers: accuracy per class; F1 where points may have no partner; MMA and PCK; the report."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from normmatch.datasets.protocols import get_protocol
from normmatch.errors import DataError
from normmatch.evaluation.floor import CHANCE, ONE_TO_ONE, POSITION, by_position, chance
from normmatch.evaluation.metrics import mean_accuracy, mean_and_deviation, precision_recall_f1, share_within
from normmatch.evaluation.predictions import Predictions

Result = dict[str, Any]
THRESHOLDS = np.arange(0, 201) / 200  # scores at which matches are cut off
SHOWN = ("precision", "recall", "f1")
MMA_PIXELS = (1, 3, 5)
PCK_SHARES = (0.05, 0.1, 0.15)
SAME = ("dataset", "objects", "split", "protocol", "sampling", "pairs", "seed", "gray")  # of an average


def make_report(predictions: Sequence[Predictions], calibrations: Sequence[Result] = ()) -> Result:
    """Everything as JSON: a result for each set of predictions, and a summary of those that differ in the weights."""
    results = [score(item) for item in sorted(predictions, key=lambda p: p.meta["jitter"])]
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for result in results:
        group = groups[*_question(result), str(result["jitter"])]
        if any(result["weights"] == other["weights"] for other in group):
            raise DataError(f"there are two predictions of {result['weights']} for the same pairs; expected one.")
        group.append(result)
    summary = [summarize(group) for group in groups.values()]
    plain = {_question(item): item["mean"] for item in summary if not item["jitter"]}
    for item in summary:
        if item["jitter"] and _question(item) in plain:
            item["drop"] = plain[_question(item)] - item["mean"]
    return {"results": results, "summary": summary, "calibrations": list(calibrations)}


def _question(result: Result) -> tuple[str, ...]:
    """What results have in common that may stand side by side."""
    return tuple(str(result[key]) for key in SAME)


def summarize(group: Sequence[Result]) -> Result:
    """Mean and standard deviation of results that differ only in the weights."""
    first = group[0]
    labels = [label for label in first["classes"] if all(label in result["classes"] for result in group)]
    mean, deviation = mean_and_deviation([result["mean"] for result in group])
    return {
        **{
            key: first[key] for key in (*SAME, "jitter", "left_out", "floor")
        },  # the pairs are the same, so is the floor
        "weights": [result["weights"] for result in group],
        "mean": mean,
        "deviation": deviation,
        "classes": {label: mean_and_deviation([r["classes"][label] for r in group]) for label in labels},
        "pck": {share: mean_and_deviation([r["pck"][share] for r in group]) for share in first["pck"]},
    }


def score(predictions: Predictions) -> Result:
    """All numbers of one set of predictions, and what a guess would have."""
    defaults = {"gray": False, "left_out": []}  # which files of older versions do not have
    result = defaults | accuracy_result(predictions) | _numbers(predictions, predictions.meta.get("min_score", 0.0))
    floors = {}
    for name, one_to_one in ((POSITION, False), (ONE_TO_ONE, True)):
        guess = by_position(predictions, one_to_one)
        accuracy = accuracy_result(guess)
        floors[name] = {key: accuracy[key] for key in ("mean", "classes")} | _numbers(guess, 0.0)
    by_class = chance(predictions)
    floors[CHANCE] = {"mean": mean_accuracy(by_class), "classes": by_class}
    return result | {"floor": floors}


def _numbers(predictions: Predictions, threshold: float) -> Result:
    """PCK, and MMA and F1 where they are asked for."""
    result: Result = {"pck": pck_result(predictions)}
    if predictions.meta["dataset"] == "hpatches":
        result["mma"] = mma_result(predictions)
    if predictions.meta["sampling"] != "intersection":
        result["f1"] = f1_result(predictions, threshold)
    return result


def accuracy_result(predictions: Predictions) -> Result:
    """Accuracy per class under the protocol of the predictions, as shares from 0 to 1."""
    by_class = predictions.accuracy(get_protocol(predictions.meta["protocol"]).average)
    if not by_class:
        raise DataError("no pair has keypoints in common; expected at least one true match to score.")
    mean = mean_accuracy(by_class)
    return {**predictions.meta, "pairs": len(predictions.pairs), "mean": mean, "classes": by_class}


def f1_result(predictions: Predictions, threshold: float) -> Result:
    """Precision, recall and F1 per class and their means, where matches below the threshold are dropped."""
    by_class = _by_class(predictions, np.array([threshold]))
    mean = np.mean(list(by_class.values()), axis=0)  # (3, 1)
    return {
        "threshold": threshold,
        "mean": dict(zip(SHOWN, mean[:, 0].tolist(), strict=True)),
        "classes": {label: dict(zip(SHOWN, v[:, 0].tolist(), strict=True)) for label, v in by_class.items()},
    }


def best_threshold(predictions: Predictions) -> float:
    """The threshold with the best F1, a mean of the classes; the lowest of equals."""
    mean = np.mean(list(_by_class(predictions, THRESHOLDS).values()), axis=0)  # (3, K)
    return float(THRESHOLDS[mean[SHOWN.index("f1")].argmax()])


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
    """Mean matching accuracy at 1, 3 and 5 px of the image before it was resized, per class and over all pairs."""
    shares = _within(predictions, np.tile(MMA_PIXELS, (len(predictions.pairs), 1)))  # (P, 3)
    groups = {**_classes(predictions), "overall": predictions.total > 0}
    return {
        str(pixels): {name: float(shares[rows, k].mean()) for name, rows in groups.items()}
        for k, pixels in enumerate(MMA_PIXELS)
    }


def pck_result(predictions: Predictions) -> dict[str, float]:
    """Share of points matched to within a share of crop 1's longer side: mean of the pairs, then of the classes."""
    limits = predictions.sizes[:, 1].max(1, keepdims=True) * np.array(PCK_SHARES)  # (P, 3)
    shares = _within(predictions, limits)
    by_class = [shares[rows].mean(0) for rows in _classes(predictions).values()]
    return {str(share): float(value) for share, value in zip(PCK_SHARES, np.mean(by_class, axis=0), strict=True)}


def _classes(predictions: Predictions) -> dict[str, np.ndarray]:
    """Of each class (P,) which pairs are of it and have a true match."""
    labels = np.array(predictions.labels)
    groups = {label: (labels == label) & (predictions.total > 0) for label in sorted(set(predictions.labels))}
    return {label: rows for label, rows in groups.items() if rows.any()}


def _within(predictions: Predictions, limits: np.ndarray) -> np.ndarray:
    """(P, K): `share_within` limits (P, K) in pixels of image 1, of the points that have a partner.

    A point that was not matched is infinitely far away.
    """
    scale = predictions.sizes[:, 1] / predictions.meta["image_size"]  # (P, 2): pixels of image 1 per pixel of the crop
    known = predictions.truth0 >= 0
    owner = predictions.owner0[known]
    start = predictions.starts1[owner]
    true_place = predictions.keypoints1[start + predictions.truth0[known]]  # (T, 2)
    matches = predictions.matches0[known]
    place = predictions.keypoints1[start + np.maximum(matches, 0)]
    distances = np.linalg.norm((place - true_place) * scale[owner], axis=1)  # (T,)
    return share_within(np.where(matches >= 0, distances, np.inf), owner, limits)
