"""Calibration, on validation pairs with points without a partner: scores become probabilities, unlikely matches go."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from normmatch.errors import WeightsError
from normmatch.evaluation.floor import by_position
from normmatch.evaluation.predictions import Predictions
from normmatch.evaluation.score import best_threshold, f1_result
from normmatch.matching.decoding import as_probabilities
from normmatch.weights import BUNDLED, find_weights, read_held_out

KNOTS = 24  # scores whose probabilities are kept, beside 0 and 1
FEWEST = 50  # matches of a group
BINS = 15  # of the calibration error


def file_to_calibrate(weights: str) -> Path:
    """The file to write a threshold into, if it may have one."""
    file = find_weights(weights)
    if not (Path(weights).exists() or file.parent == BUNDLED):  # it is in a cache that is not ours
        raise WeightsError(f"weights {weights} come from a hub; expected a file or a folder to write a threshold into.")
    if read_held_out(file) is False:  # older files do not say, and most had some
        raise WeightsError(
            f"weights {weights} were trained without held-out objects, so their scores on the split val say nothing; "
            "expected a network that was trained with some objects held out."
        )
    return file


def calibrate(predictions: Sequence[Predictions], split: str) -> dict[str, Any]:
    """The threshold with the best F1 on the split val, and precision, recall and F1 with it there and on `split`."""
    partial = [p for p in predictions if p.meta["sampling"] != "intersection" and not p.meta["jitter"]]
    validation = next(p for p in partial if p.meta["split"] == "val")
    threshold = best_threshold(validation)
    shown = validation.matches0 >= 0
    probabilities = fit_probabilities(validation.scores0[shown], validation.right0[shown])
    scored = {name: next(p for p in partial if p.meta["split"] == name) for name in dict.fromkeys(("val", split))}
    return {
        "weights": validation.meta["weights"],
        "protocol": validation.meta["protocol"],
        "sampling": validation.meta["sampling"],
        "threshold": round(float(as_probabilities(np.array(threshold), probabilities)), 6),
        "probabilities": probabilities,
        "calibration_error": {
            name: [calibration_error(p, ()), calibration_error(p, probabilities)] for name, p in scored.items()
        },
        "floor": {name: f1_result(by_position(p, one_to_one=True), 0.0) for name, p in scored.items()},
        "without": {name: f1_result(p, 0.0) for name, p in scored.items()},
        "with": {name: f1_result(p, threshold) for name, p in scored.items()},
    }


def fit_probabilities(scores: np.ndarray, right: np.ndarray) -> tuple[float, ...]:
    """Rising scores, means of up to KNOTS groups of equal size, then shares of right matches, made to rise."""
    if not len(scores):
        return ()
    count = min(KNOTS, max(1, len(scores) // FEWEST))
    groups = np.array_split(np.argsort(scores, kind="stable"), count)
    means = [float(scores[group].mean()) for group in groups]
    shares = isotonic_regression([right[group].mean() for group in groups], weights=[len(g) for g in groups]).x
    known, fitted = [0.0, *means, 1.0], [0.0, *shares, shares[-1]]  # a score of 0 is that of no match
    return tuple(round(float(value), 6) for value in (*known, *fitted))


def calibration_error(predictions: Predictions, calibration: Sequence[float]) -> float:
    """The mean distance of the scores of matches from the share of right ones, over BINS bins (ECE)."""
    shown = predictions.matches0 >= 0
    scores = as_probabilities(predictions.scores0[shown], calibration)
    right = predictions.right0[shown]
    place = np.minimum((scores * BINS).astype(int), BINS - 1)
    gaps = [abs(float(scores[place == b].mean() - right[place == b].mean())) * (place == b).mean() for b in set(place)]
    return float(sum(gaps))
