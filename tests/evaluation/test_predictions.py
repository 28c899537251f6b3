"""Files of predictions: what is written is read, and nothing else is taken for one."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from normmatch.errors import DataError
from normmatch.evaluation.predictions import ARRAYS, load_predictions, save_predictions
from tests.evaluation.test_score import make_predictions


def test_round_trip(tmp_path: Path) -> None:
    predictions = make_predictions()
    path = tmp_path / "new" / "p.safetensors"
    save_predictions(predictions, path)
    again = load_predictions(path)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(again, name), getattr(predictions, name))
    assert again.meta == predictions.meta
    assert again.words == predictions.words
    assert again.accuracy() == predictions.accuracy()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("matches0", np.array([0, 1, 2, 0, 1, 1])),  # points outside what there is
        ("truth0", np.array([0, 1, -2, 0, 1, 1])),
        ("label", np.array([0, 0, 5])),
        ("scores0", np.zeros(5, np.float32)),
        ("counts", np.array([[3, 2], [1, 1], [2, 1]])),  # do not add up
    ],
)
def test_damaged_content(tmp_path: Path, name: str, value: np.ndarray) -> None:
    path = tmp_path / "p.safetensors"
    save_predictions(make_predictions(), path)
    about = {"version": 1, "words": make_predictions().words, **make_predictions().meta}
    save_file(load_file(path) | {name: value}, path, metadata={"predictions": json.dumps(about)})
    with pytest.raises(DataError, match="no whole file of predictions"):
        load_predictions(path)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="do not exist"):
        load_predictions(tmp_path / "missing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(DataError, match="no file of predictions"):
        load_predictions(tmp_path / "text")
    save_file({"a": np.zeros(1)}, tmp_path / "weights")
    with pytest.raises(DataError, match="expected format 1"):
        load_predictions(tmp_path / "weights")


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        save_predictions(make_predictions(), tmp_path / "file" / "p.safetensors")
