"""The label project's file: what is written is read again, and what cannot be is refused with the backup named."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch.annotations.project import Landmark, Photograph, Point, Project
from normmatch.annotations.project_file import landmarks_of, previous, project_of, read_project, write_project
from normmatch.errors import DataError
from normmatch.outputs import made_by_us

FOUND = Point("proposed", (10.25, 20.5), False, 0.61, 0.9, 12.0)
POINTS = {
    "Left eye": Point("person", (11.0, 21.0), was=FOUND),
    "Right eye": Point("proposed", (40.0, 20.0), False, 0.4, 0.95, 30.0),
    "Tail": Point("person", absent=True),
}


def make_project(reviewed: bool = False) -> Project:
    landmarks = (
        Landmark("Left eye", "#4fd0ff", "Right eye"),
        Landmark("Right eye", None, "Left eye"),
        Landmark("Tail"),
    )
    scale = {"points": [[0.0, 0.0], [30.0, 40.0]], "length": 10.0, "unit": "mm"}
    photographs = {
        "a.jpg": Photograph("a.jpg", 60, 40, POINTS, reviewed, box=(1.0, 2.0, 30.0, 20.0), scale=scale),
        "sub/ö.jpg": Photograph("sub/ö.jpg", 600, 400, skipped=True, changed=3),
    }
    return Project("Beetles", landmarks, photographs, (("Left eye", "Tail"),), revision=7, saved_by="w", saved_edit="e")


def test_a_project_is_read_as_it_was_written(tmp_path: Path) -> None:
    project = make_project()
    write_project(tmp_path / "p.json", project.text())
    assert read_project(tmp_path / "p.json") == project
    assert not made_by_us(tmp_path / "p.json")  # the user's work: no other command replaces it unasked


def test_the_version_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "normmatch.json"
    write_project(path, "first")
    assert not previous(path).exists()
    write_project(path, "second", "first")
    assert (path.read_text(), previous(path).read_text()) == ("second", "first")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is no JSON"),
        ('{"format": "normmatch project", "format', "it is no JSON"),
        ('{"images": []}', 'expected "format"'),
        ('{"format": "normmatch project", "format_version": 2}', "newer NormMatch"),
        ('{"format": "normmatch project", "format_version": 1, "landmarks": 3}', "`landmarks` is 3"),
    ],
)
def test_a_damaged_or_newer_file_is_refused_and_the_backup_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "normmatch.json"
    path.write_text(text)
    with pytest.raises(DataError) as without:
        read_project(path)
    previous(path).write_text("anything")
    with pytest.raises(DataError) as error:
        read_project(path)
    assert said in str(error.value)
    assert "the version before it is normmatch.previous.json" in str(error.value)
    assert "version before" not in str(without.value)
    assert str(error.value).count(". ") == 0


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("file",), "../a.jpg", "in the project's folder"),
        (("file",), "/etc/a.jpg", "in the project's folder"),
        (("file",), "C:\\a.jpg", "in the project's folder"),
        (("width",), -1, "`width` of a.jpg"),
        (("reviewed",), 1, "expected true or false"),
        (("box",), [1, 2, 0, 4], "the box of a.jpg"),
        (("scale",), {"length": 3}, "the scale of a.jpg"),
        (("points", "Nose"), {"x": 1, "y": 2, "from": "person"}, "the points of a.jpg"),
        (("points", "Tail"), {"x": 1, "y": 2}, "Tail of a.jpg"),
        (("points", "Tail"), {"x": 1, "from": "person"}, "Tail of a.jpg"),
        (("points", "Tail"), {"x": 1, "y": math.inf, "from": "person"}, "no pixel coordinate"),
        (("points", "Tail"), {"x": 1, "y": 2, "from": "person", "score": -1}, "`score`"),
        (("points", "Tail"), {"x": 1, "y": 2, "from": "person", "was": 3}, "Tail of a.jpg is 3"),
    ],
)
def test_every_mistake_has_its_place(where: tuple[str, ...], value: Any, said: str) -> None:
    content = json.loads(make_project().text())
    entry = content["photographs"][0]
    for key in where[:-1]:
        entry = entry[key]
    entry[where[-1]] = value
    with pytest.raises(DataError, match=said):
        project_of(content)


def test_pairs_are_told_by_left_and_right_unless_they_are_given() -> None:
    names = [{"name": "left eye"}, {"name": "right eye", "pair": None}, {"name": "L_Ear"}, {"name": "R_Ear"}]
    assert [one.pair for one in landmarks_of(names)] == [None, None, "R_Ear", "L_Ear"]
    with pytest.raises(DataError, match="name each other"):
        landmarks_of([{"name": "a", "pair": "b"}, {"name": "b"}])


def test_keypoints_and_annotations() -> None:
    project = make_project(reviewed=True)
    np.testing.assert_array_equal(
        project.keypoints(project.photographs["a.jpg"]), [[11, 21], [40, 20], [math.nan, math.nan]]
    )
    (item,) = project.as_annotations()
    assert (item.image, item.names, item.box) == ("a.jpg", ("Left eye", "Right eye"), (1.0, 2.0, 30.0, 20.0))
    np.testing.assert_array_equal(item.scores, [math.nan, 0.4])  # what a person has set has none
    assert make_project().as_annotations() == []  # nobody has reviewed it
    assert len(make_project().as_annotations(everything=True)) == 1
