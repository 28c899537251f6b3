"""Calibration: the score below which a match is dropped, chosen on validation pairs with points without a partner."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from normmatch.errors import WeightsError
from normmatch.evaluation.floor import by_position
from normmatch.evaluation.predictions import Predictions
from normmatch.evaluation.score import best_threshold, f1_result
from normmatch.weights import BUNDLED, find_weights, read_held_out


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
    scored = {name: next(p for p in partial if p.meta["split"] == name) for name in dict.fromkeys(("val", split))}
    return {
        "weights": validation.meta["weights"],
        "protocol": validation.meta["protocol"],
        "sampling": validation.meta["sampling"],
        "threshold": threshold,
        "floor": {name: f1_result(by_position(p, one_to_one=True), 0.0) for name, p in scored.items()},
        "without": {name: f1_result(p, 0.0) for name, p in scored.items()},
        "with": {name: f1_result(p, threshold) for name, p in scored.items()},
    }
