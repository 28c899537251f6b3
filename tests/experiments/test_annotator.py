"""The simulated annotator: what it counts, and that references help it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.experiments.annotator import Review, annotate, auc, plot, read_tasks, summary
from tests.app.test_labelling import NAMES, Colors, make_photographs


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A keypoints file of six photographs; in one a landmark is absent."""
    items = []
    for number, (file, points) in enumerate(make_photographs(tmp_path, 6).items()):
        names = NAMES[: 2 if number == 3 else 3]
        xy = np.array([[points[name]["x"], points[name]["y"]] for name in names])
        items.append(Annotation(file, names, xy, label="spots"))
    annotations.write(tmp_path / "points.json", items)
    return tmp_path / "points.json"


def test_all_photographs_but_the_first_are_reviewed(source: Path, tmp_path: Path) -> None:
    (task,) = read_tasks(source, [], 10, seed=0)
    assert (task.name, task.points.shape) == ("spots", (6, 3, 2))
    assert np.isnan(task.points).all(2).sum() == 1
    (few,) = read_tasks(source, ["spots"], 2, seed=0)
    assert few.files == task.files[:2]
    options: dict[str, Any] = {"looks": 1, "learn": False}
    reviews = list(annotate(task, Colors(), 0.2, **options))
    assert [one.reviewed for one in reviews] == [1, 2, 3, 4, 5]
    for one in reviews:
        assert len(one.certainty) == len(one.wrong) in (2, 3)  # of landmarks that a reference shows
        assert one.hand >= sum(one.wrong)
        assert one.shown_hand == sum(off > 0.2 for off in one.off)
    strict = list(annotate(task, Colors(), 0.001, growing=False, **options))
    assert sum(one.shown_hand for one in strict) > sum(one.shown_hand for one in reviews)
    figures = summary(reviews)
    assert figures["clicks a photograph"] == sum(one.hand for one in reviews) / 5
    plot({"all": reviews}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_auc() -> None:
    certainty = np.array([0.1, 0.2, 0.8, 0.9])
    assert auc(certainty, np.array([True, True, False, False])) == 1
    assert auc(certainty, np.array([False, True, True, False])) == 0.5
    assert np.isnan(auc(certainty, np.zeros(4, bool)))


def test_tasks_count_the_same() -> None:
    good = Review("a", 1, 10, 1, 10, 1, (0.9,) * 10, (True, *[False] * 9), (0.2, *[0.01] * 9))
    bad = Review("b", 1, 4, 4, 2, 2, (0.1,) * 4, (True,) * 4, (0.07, 9.0))
    figures = summary([good, good, good, bad])
    assert figures["hand"] == pytest.approx((10 + 100) / 2)
    assert figures["beyond 0.05"] == pytest.approx((10 + 100) / 2)
