"""Failure analysis: which pairs are the worst, and what they have in common."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch import viz
from normmatch.datasets import drawn
from normmatch.evaluation.failures import draw_worst, rank, swapped_share, swapped_sides, worst_pairs
from normmatch.evaluation.predictions import Predictions
from normmatch.outputs import made_by_us
from tests.evaluation.test_score import META

# pairs: 0 and 3 are the same two objects; 1 is mirrored and has left and right swapped; 2 is all right
WORDS = ("cat", "dog", "left_eye", "right_eye", "nose")


@pytest.fixture(scope="module")
def predictions() -> Predictions:
    left_to_right = np.array([[10, 5], [50, 5], [30, 40]], np.float32)
    mirrored = left_to_right * (-1, 1) + (60, 0)
    keypoints1 = [left_to_right, mirrored, left_to_right, left_to_right]
    return Predictions(
        words=WORDS,
        label=np.array([0, 0, 1, 0]),
        pairs=np.array([[0, 1], [1, 2], [3, 4], [1, 0]]),
        sizes=np.array([[[40, 40], [80, 80]], [[90, 40], [60, 60]], [[200, 200], [300, 300]], [[80, 80], [40, 40]]]),
        counts=np.full((4, 2), 3),
        names0=np.tile([2, 3, 4], 4),
        names1=np.tile([2, 3, 4], 4),
        keypoints0=np.tile(left_to_right, (4, 1)),
        keypoints1=np.concatenate(keypoints1).astype(np.float32),
        truth0=np.tile([0, 1, 2], 4),
        matches0=np.array([0, 1, 1, 1, 0, 2, 0, 1, 2, 0, 1, 2]),
        scores0=np.full(12, 0.5, np.float32),
        meta=META | {"sampling": "intersection"},
    )


def test_swapped_sides(predictions: Predictions) -> None:
    assert np.flatnonzero(swapped_sides(predictions)).tolist() == [3, 4]
    assert swapped_share(predictions) == pytest.approx(2 / 3)


def test_the_hardest_class_and_its_worst_pair_come_first(predictions: Predictions) -> None:
    ranked = rank(predictions)
    assert [rows.tolist() for rows in ranked] == [[1, 0], [2]]  # pair 3 repeats pair 0
    assert worst_pairs(ranked, 2) == [1, 2]  # in turn
    assert worst_pairs(ranked, 9) == [1, 2, 0]


def test_pictures_and_summary(predictions: Predictions, tmp_path: Path) -> None:
    split = drawn.make(3, 64, seed=0, split="val")
    viz.save_plot(viz.plot_similarity([[1.0]]), tmp_path / "07-old.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "08-mine.png")
    draw_worst(predictions, split, 2, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "01-cat.png",
        "02-dog.png",
        "08-mine.png",
    ]
    with Image.open(tmp_path / "01-cat.png") as picture:
        assert picture.width > 400
    assert all(made_by_us(file) for file in tmp_path.iterdir() if file.name != "08-mine.png")
