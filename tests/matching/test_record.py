"""The record of a match, and the table that `match` prints."""

import numpy as np
import pytest

from normmatch.annotations import Annotation
from normmatch.commands.match import print_matches
from normmatch.matching.record import make_record


@pytest.mark.parametrize(("names", "said"), [(("nose", "ear"), True), (("0", "1"), False)])
def test_points_without_names_have_no_namesakes(
    names: tuple[str, ...], said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those are called by their numbers, which say nothing about who is who."""
    points = Annotation("a.png", names, np.zeros((2, 2)))
    scores = np.array([0.9, 0.8])
    result = {"matches0": np.array([0, 1]), "matching_scores0": scores, "matches": np.array([[0, 0], [1, 1]])}
    print_matches(points, points, result)
    out = capsys.readouterr().out
    assert "2 of 2 points have a partner" in out
    assert ("2 of the 2 points with a namesake" in out) == said


def test_a_record_says_every_score_once() -> None:
    first, second = (Annotation(f"{name}.png", ("nose", "ear"), np.eye(2)) for name in "ab")
    result = {
        "matches0": np.array([1, -1]), "matches1": np.array([-1, 0]), "matches": np.array([[0, 1]]),
        "matching_scores0": np.array([0.12345678, 0.1], np.float32),
        "matching_scores1": np.array([0.1, 0.12345678], np.float32),
    }  # fmt: skip
    record = make_record(first, second, result)
    assert record["matches"] == [{"name0": "nose", "name1": "ear", "score": 0.123457}]
    assert record["matching_scores0"] == [0.123457, 0.1]
    assert (record["image1"], record["names0"], record["keypoints1"]) == ("b.png", ["nose", "ear"], [[1, 0], [0, 1]])


def test_it_is_said_when_many_points_are_withheld_for_their_score(capsys: pytest.CaptureFixture[str]) -> None:
    points = Annotation("a.png", ("0", "1", "2"), np.zeros((3, 2)))
    scores = np.array([0.9, 0.3, 0.2])
    result = {"matches0": np.array([0, -1, -1]), "matching_scores0": scores, "matches": np.array([[0, 0]])}
    print_matches(points, points, result, min_score=0.35)
    assert "1 of 3 points answered; 2 of the others are below 0.35 (see --min-score)" in capsys.readouterr().out
    print_matches(points, points, result, min_score=0.1)  # not for their score: --mutual dropped them
    assert "1 of 3 points have a partner" in capsys.readouterr().out
