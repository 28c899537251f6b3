"""Scores of predictions that are written down by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from normmatch.errors import DataError
from normmatch.evaluation.floor import by_position
from normmatch.evaluation.predictions import Predictions
from normmatch.evaluation.score import (
    accuracy_result,
    best_threshold,
    f1_result,
    make_report,
    mma_result,
    pck_result,
)
from normmatch.evaluation.tables import make_tables, to_markdown

META: dict[str, Any] = {
    "dataset": "pascal-voc", "objects": "x", "split": "test", "protocol": "nmt", "sampling": "all", "seed": 0,
    "jitter": 0.0, "image_size": 96, "weights": "runs/a", "min_score": 0.5, "left_out": [],
}  # fmt: skip


def make_predictions(**meta: Any) -> Predictions:
    """Two pairs of cats and one of buses; the third cat point has no partner, and the network is unsure of it."""
    return Predictions(
        words=("cat", "bus", "a", "b", "c"),
        label=np.array([0, 0, 1]),
        pairs=np.array([[0, 1], [1, 2], [3, 4]]),
        sizes=np.full((3, 2, 2), 50),
        counts=np.array([[3, 2], [1, 1], [2, 2]]),
        names0=np.array([2, 3, 4, 2, 2, 3]),
        names1=np.array([2, 3, 2, 3, 2]),
        keypoints0=np.zeros((6, 2), np.float32),
        keypoints1=np.zeros((5, 2), np.float32),
        truth0=np.array([0, 1, -1, 0, 1, 0]),
        matches0=np.array([0, 1, 1, 0, 1, 1]),
        scores0=np.array([0.9, 0.8, 0.3, 0.6, 0.9, 0.7], np.float32),
        meta=META | meta,
    )


def test_accuracy() -> None:
    predictions = make_predictions()
    assert predictions.labels == ("cat", "cat", "bus")
    assert predictions.correct.tolist() == [2, 1, 1]
    assert predictions.total.tolist() == [2, 1, 2]
    result = accuracy_result(predictions)
    assert result["classes"] == {"bus": 0.5, "cat": 1.0}
    assert result["mean"] == 0.75


def test_a_threshold_drops_what_is_unsure() -> None:
    without, with_it = (f1_result(make_predictions(), threshold)["classes"] for threshold in (0.0, 0.5))
    assert without["cat"] == {"precision": 0.75, "recall": 1.0, "f1": pytest.approx(6 / 7)}
    assert with_it["cat"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    assert without["bus"] == with_it["bus"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5}


def test_the_best_threshold_is_the_lowest_with_the_best_mean() -> None:
    # 0.305 drops the cat's wrong match; 0.705 would also drop the bus's, but the second cat with it
    predictions = make_predictions()
    assert best_threshold(predictions) == pytest.approx(0.305)
    assert f1_result(predictions, 0.0)["mean"]["f1"] == pytest.approx((6 / 7 + 0.5) / 2)
    assert f1_result(predictions, 0.305)["mean"]["f1"] == pytest.approx(0.75)
    nothing = f1_result(predictions, 1.0)["mean"]
    assert (nothing["precision"], nothing["recall"]) == (1.0, 0.0)


def test_several_weights_give_mean_and_deviation() -> None:
    first = make_predictions(sampling="intersection")
    second = replace(make_predictions(sampling="intersection", weights="b"), matches0=first.truth0)
    report = make_report([first, second])
    (summary,) = report["summary"]
    assert summary["mean"] == pytest.approx((0.75 + 1.0) / 2)
    assert summary["deviation"] == pytest.approx(0.25 / 2**0.5)
    assert summary["classes"]["bus"] == (0.75, pytest.approx(0.5 / 2**0.5))
    text = to_markdown(make_tables(report))
    assert "| bus | 75.0 | 35.4 | 95.4 | 92.3 | 93.0 |" in text
    assert "| **mean of classes** | **87.50** | **17.68** | **88.7** | **82.7** | **80.1** |" in text
    assert "own authors' rules" in text


def test_protocols_are_never_in_one_table() -> None:
    predictions = [make_predictions(sampling="intersection", protocol=p) for p in ("nmt", "bbgm", "thinkmatch")]
    tables = make_tables(make_report(predictions))
    floors = ("position", "1 to 1", "chance")
    assert [t.columns for t in tables] == [
        ("class", "ours", "NMT", "COMMON", "BBGM", *floors),
        ("class", "ours", "BBGM", *floors),
        ("class", "ours", *floors),
    ]
    assert ["nmt" in tables[0].title, "thinkmatch" in tables[2].title] == [True, True]
    # by keypoints 3/3 of the cats; by pairs the mean of 2/2 and 1/1
    assert tables[2].rows[-1][:2] == ("mean of classes", "75.00")


def test_drops_stand_beside_the_papers() -> None:
    plain = replace(make_predictions(sampling="intersection"))
    worse = replace(make_predictions(sampling="intersection", jitter=5.0), matches0=np.array([0, 0, 1, 0, 1, 1]))
    report = make_report([worse, plain])
    assert report["summary"][1]["drop"] == pytest.approx(1 / 6)
    assert [row[:4] for row in make_tables(report)[1].rows] == [("5 px", "58.33", "16.67", "0.50")]


def test_unmatched_points_bring_f1() -> None:
    report = make_report([make_predictions()])
    assert report["results"][0]["f1"]["threshold"] == 0.5
    titles = [table.title for table in make_tables(report)]
    assert any("score of 0.5 or more" in title for title in titles)


def test_the_same_twice_is_refused() -> None:
    with pytest.raises(DataError, match="two predictions of runs/a"):
        make_report([make_predictions(), make_predictions()])


def test_mma_is_in_pixels_of_the_image_and_averages_pairs() -> None:
    predictions = replace(
        make_predictions(dataset="hpatches", sampling="intersection"),
        words=("illumination", "viewpoint", "a", "b", "c"),
        # a crop pixel of the last pair is two pixels of its image: the wrong match is 1 crop pixel, so 2 pixels, off
        sizes=np.array([[[96, 96]] * 2, [[96, 96]] * 2, [[96, 96], [192, 192]]]),
        keypoints1=np.array([[0, 0], [40, 0], [0, 0], [10, 10], [11, 10]], np.float32),
    )
    found = mma_result(predictions)
    assert found["1"] == {"illumination": 1.0, "viewpoint": 0.5, "overall": pytest.approx(2.5 / 3)}
    assert found["3"] == {"illumination": 1.0, "viewpoint": 1.0, "overall": 1.0}
    (row, *_) = make_tables(make_report([predictions]))[1].rows
    assert row == ("1 px", "50.00", "0.00", "74.31", "100.00", "100.00", "91.61", "83.33", "66.67", "82.81")


def test_a_floor_stands_beside_every_number() -> None:
    placed = replace(
        make_predictions(),
        keypoints0=np.array([[0, 0], [4, 0], [9, 9], [5, 5], [0, 0], [1, 0]], np.float32),
        keypoints1=np.array([[1, 0], [2, 0], [5, 5], [9, 0], [0, 1]], np.float32),
    )
    report = make_report([placed])
    (result,) = report["results"]
    floor = result["floor"]
    # cats: (0, 0) is nearest to 1, 0 and (4, 0) to 2, 0, which is right; the bus's points both to 0, 1, which is 1
    assert floor["position"]["classes"] == {"bus": 0.5, "cat": 1.0}
    assert floor["chance"]["classes"] == {"bus": 0.5, "cat": pytest.approx(2 / 3)}
    assert by_position(placed, one_to_one=True).matches0.tolist() == [0, 1, -1, 0, 1, 0]
    assert floor["1 to 1"]["classes"] == {"bus": 1.0, "cat": 1.0}
    assert report["summary"][0]["floor"] == floor
    tables = make_tables(report)
    assert tables[0].rows[0][-3:] == ("50.0", "100.0", "50.0")
    assert tables[1].columns[-1] == "F1, 1 to 1"


def test_pck_counts_near_misses_and_no_match_as_a_miss() -> None:
    predictions = replace(
        make_predictions(),
        sizes=np.full((3, 2, 2), 96),
        keypoints1=np.array([[0, 0], [40, 0], [0, 0], [10, 10], [17, 10]], np.float32),
        matches0=np.array([0, -1, 1, 0, 1, 1]),
    )
    # cats: 1 of 2 and 1 of 1; buses: one right, the other 7 px off, which is 0.073 of the crop
    assert pck_result(predictions) == {"0.05": 0.625, "0.1": 0.875, "0.15": 0.875}


def test_a_pair_without_true_matches_says_nothing() -> None:
    predictions = make_predictions()
    lonely = replace(predictions, truth0=np.array([0, 1, -1, 0, -1, -1]))  # no bus has a partner
    assert accuracy_result(lonely)["classes"] == {"cat": 1.0}
    assert set(mma_result(lonely)["1"]) == {"cat", "overall"}
    assert 0 < pck_result(lonely)["0.1"] <= 1
    with pytest.raises(DataError, match="no pair has keypoints in common"):
        accuracy_result(replace(predictions, truth0=np.full(6, -1)))
