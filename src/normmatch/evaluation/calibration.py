"""Calibration: the score below which a match is dropped, chosen on validation pairs with points without a partner."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from normmatch import weights as pretrained
from normmatch.errors import WeightsError
from normmatch.evaluation.predictions import Predictions
from normmatch.evaluation.score import best_threshold, f1_result


def file_to_calibrate(weights: str) -> Path:
    """The file to write a threshold into, if it may have one."""
    file = pretrained.find(weights)
    if not (Path(weights).exists() or file.parent == pretrained.BUNDLED):  # it is in a cache that is not ours
        raise WeightsError(f"weights {weights} come from a hub; expected a file or a folder to write a threshold into.")
    if not held_out(file):
        raise WeightsError(
            f"weights {weights} were trained without held-out objects, so their scores on the split val say nothing; "
            "expected a network that was trained with some objects held out."
        )
    return file


def held_out(file: Path) -> bool:
    """Whether objects were held out of the training of a weights file; older files do not say, and most had some."""
    with suppress(SafetensorError, OSError, ValueError), safe_open(file, "np") as opened:
        return json.loads((opened.metadata() or {}).get("held_out", "true").lower()) is not False
    return True


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
        "without": {name: f1_result(p, 0.0) for name, p in scored.items()},
        "with": {name: f1_result(p, threshold) for name, p in scored.items()},
    }
