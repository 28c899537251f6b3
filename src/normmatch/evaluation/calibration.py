"""Calibration: the score below which a match is none, chosen on validation pairs with points that have no partner."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from normmatch.errors import WeightsError
from normmatch.evaluation.predictions import Predictions
from normmatch.evaluation.score import best_threshold, f1_result
from normmatch.weights import BUNDLED, find_weights


def find_own_file(weights: str) -> Path:
    """The file to write a threshold into; weights of a hub are in a cache that is not ours."""
    file = find_weights(weights)
    if not (Path(weights).exists() or file.parent == BUNDLED):
        raise WeightsError(f"weights {weights} come from a hub; expected a file or a folder to write a threshold into.")
    return file


def calibrate(answers: Sequence[Predictions], split: str) -> dict[str, Any]:
    """The threshold with the best F1 on the split val, and precision, recall and F1 with it there and on `split`."""
    partial = [p for p in answers if p.meta["sampling"] != "intersection" and not p.meta["jitter"]]
    validation = next(p for p in partial if p.meta["split"] == "val")
    threshold = best_threshold(validation)
    scored = {name: next(p for p in partial if p.meta["split"] == name) for name in dict.fromkeys(("val", split))}
    return {
        "weights": validation.meta["weights"],
        "protocol": validation.meta["protocol"],
        "sampling": validation.meta["sampling"],
        "threshold": threshold,
        "without": {name: f1_result(p, 0.0) for name, p in scored.items()},
        "with": {name: f1_result(p, threshold) for name, p in scored.items()},
    }
