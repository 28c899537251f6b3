"""The scores of located landmarks."""

from typing import Any

import numpy as np
import pytest

from normmatch.evaluation.located import area, calibration_error, make_tables, score


def row(**change: Any) -> dict[str, Any]:
    truth = [[0, 0], [100, 0], [50, 50], None]
    return {
        "class": "a", "references": 1, "draw": 0, "image": "a.png", "size": 100.0, "seconds": 0.1,
        "names": ["left", "right", "top", "tail"], "flip": [1, 0, 2, 3], "truth": truth,
        "keypoints": [[0, 0], [100, 4], [50, 57], [3, 3]], "scores": [0.9, 0.8, 0.7, 0.1],
        "visible": [0.9, 0.9, 0.9, 0.1], "spread": [5, 5, 5, 5],
    } | change  # fmt: skip


def test_shares_of_the_object() -> None:
    (found,) = score([row()])
    assert found["pck 0.01"] == pytest.approx(1 / 3)
    assert found["pck 0.05"] == pytest.approx(2 / 3)
    assert found["pck 0.1"] == 1
    assert found["by hand"] == pytest.approx(1 / 3)
    assert found["in spread"] == pytest.approx(2 / 3)
    assert (found["auc"], found["auc visible"]) == (1, 1)
    assert found["ece"] == pytest.approx((0.1 + 0.2 + 0.3 + 0.1) / 4)


def test_by_image_and_by_point_differ() -> None:
    """A photograph with one landmark counts as much as one with three, by image."""
    few = row(truth=[[500, 500], None, None, None])
    (found,) = score([row(), few])
    assert found["by image 0.1"] == pytest.approx(0.5)
    assert found["pck 0.1"] == pytest.approx(3 / 4)


def test_left_for_right() -> None:
    swapped = row(keypoints=[[98, 0], [1, 0], [0, 0], [0, 0]])
    assert score([swapped])[0]["sides confused"] == 1
    assert score([swapped, row()])[0]["sides confused"] == pytest.approx(0.5)
    assert score([row(flip=[0, 1, 2, 3])])[0]["sides confused"] is None


def test_classes_draws_and_counts_stand_apart() -> None:
    other = row(**{"class": "b", "draw": 1, "keypoints": [[0, 0], [900, 0], [900, 0], [0, 0]]})
    found = score([row(), other, row(references=5)])
    assert [one["references"] for one in found] == [1, 5]
    assert found[0]["class mean"]["pck 0.1"] == pytest.approx((1 + 1 / 3) / 2)
    assert found[0]["spread"]["pck 0.1"] == pytest.approx(1 / 3)
    tables = make_tables({"data": "spair-71k", "results": found})
    assert [len(table.rows) for table in tables[:3]] == [2, 2, 3]
    assert "published" in tables[-1].title


def test_equal_scores_share_their_rank() -> None:
    assert area(np.array([0.5, 0.5]), np.array([True, False])) == pytest.approx(0.5)
    assert area(np.array([0.2, 0.9, 0.4]), np.array([False, True, True])) == 1
    assert area(np.array([0.2]), np.array([True])) is None
    assert calibration_error(np.array([1.0, 1.0]), np.array([True, False])) == pytest.approx(0.5)
