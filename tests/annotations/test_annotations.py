"""Keypoints files: the three kinds are read alike, what is written is read again, and every mistake is one sentence."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch import annotations as module
from normmatch.annotations import Annotation, PointIndex, read_points, write_points
from normmatch.errors import DataError

OURS: dict[str, Any] = {
    "images": [
        {
            "image": "a.jpg",
            "class": "cat",
            "box": [1, 2, 30, 40],
            "keypoints": [{"name": "eye", "x": 3.5, "y": 4}, {"name": "nose", "x": 5, "y": 6}],
        },
        {"image": "b/c.jpg", "keypoints": [{"name": "eye", "x": 7, "y": 8}]},
    ]
}
COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b/c.jpg"}],
    "categories": [{"id": 1, "name": "cat", "keypoints": ["eye", "nose"]}],
    "annotations": [
        {"image_id": 1, "category_id": 1, "keypoints": [3.5, 4, 2, 5, 6, 1], "bbox": [1, 2, 30, 40]},
        {"image_id": 2, "category_id": 1, "keypoints": [7, 8, 2, 0, 0, 0]},
    ],
}
CSV = """image,class,name,x,y,xmin,ymin,width,height
a.jpg,cat,eye,3.5,4,1,2,30,40
a.jpg,cat,nose,5,6,1,2,30,40
b/c.jpg,,eye,7,8,,,,
"""


def write(folder: Path, content: Any, name: str = "points.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def assert_first(item: Annotation) -> None:
    assert (item.image, item.names, item.box, item.label) == ("a.jpg", ("eye", "nose"), (1, 2, 30, 40), "cat")
    np.testing.assert_array_equal(item.keypoints, [[3.5, 4], [5, 6]])


@pytest.mark.parametrize(("content", "name"), [(OURS, "a.json"), (COCO, "b.json"), (CSV, "c.CSV")])
def test_three_kinds_are_read_alike(tmp_path: Path, content: Any, name: str) -> None:
    first, second = read_points(write(tmp_path, content, name))
    assert_first(first)
    assert (second.image, second.names, second.box) == ("b/c.jpg", ("eye",), None)


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_what_is_written_is_read_again(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"new/points.{ending}"
    comma = Annotation("a, b.jpg", ("left, \"x\"",), np.array([[1 / 3, 2.0]]))  # fmt: skip
    write_points(path, [*read_points(write(tmp_path, OURS)), comma])
    first, _, last = read_points(path)
    assert_first(first)
    assert (last.image, last.names, last.keypoints.tolist()) == (comma.image, comma.names, comma.keypoints.tolist())
    with pytest.raises(DataError, match="ending '.txt'"):
        write_points(tmp_path / "points.txt", [])


def test_a_plain_csv_and_names_that_are_left_out(tmp_path: Path) -> None:
    (item,) = read_points(write(tmp_path, "image,name,x,y\na.jpg,eye,1,2\n", "p.csv"))
    assert (item.label, item.box) == ("", None)
    (item,) = read_points(write(tmp_path, {"images": [{"image": "a.jpg", "keypoints": [{"x": 1, "y": 2}]}]}))
    assert item.names == ("0",)


def test_an_image_without_keypoints(tmp_path: Path) -> None:
    (item,) = read_points(write(tmp_path, {"images": [{"image": "a.jpg", "keypoints": []}]}))
    assert item.keypoints.shape == (0, 2)


def test_several_objects_in_an_image(tmp_path: Path) -> None:
    path = write(tmp_path, "image,object,name,x,y\na.jpg,1,eye,1,2\na.jpg,2,eye,3,4\n", "p.csv")
    sets = read_points(path)
    assert [item.keypoints.tolist() for item in sets] == [[[1, 2]], [[3, 4]]]
    with pytest.raises(DataError, match=r"p.csv has 2 objects in a.jpg; expected keypoints of one"):
        PointIndex(sets, path).find("a.jpg")
    assert PointIndex(sets, path).all("a.jpg") == sets


def test_an_image_is_found_as_a_file_or_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.jpg").touch()
    sets = [Annotation(image, (), np.zeros((0, 2))) for image in ("x/1.jpg", "y/1.jpg", "z/2.jpg")]
    source = tmp_path / "p.json"
    index = PointIndex(sets, source)
    assert index.find(tmp_path / "y/1.jpg") is sets[1]
    assert PointIndex(sets, "p.json").find("y/1.jpg") is sets[1]
    monkeypatch.chdir(tmp_path / "x")
    assert index.find("1.jpg") is sets[0]
    assert index.find("elsewhere/2.jpg") is sets[2]
    with pytest.raises(DataError, match=r"has keypoints of x/1.jpg and y/1.jpg; which of them is elsewhere/1.jpg"):
        index.find("elsewhere/1.jpg")
    assert PointIndex(sets, "elsewhere/p.json", tmp_path).find(tmp_path / "y/1.jpg") is sets[1]
    with pytest.raises(DataError, match=r"no keypoints of 3.jpg; it has those of x/1.jpg, y/1.jpg, z/2.jpg"):
        index.find("3.jpg")


def ours(**change: Any) -> dict[str, Any]:
    return {"images": [{"image": "a.jpg", "keypoints": [{"name": "eye", "x": 1, "y": 2}], **change}]}


def point(**change: Any) -> dict[str, Any]:
    return ours(keypoints=[{"name": "nose", "x": 1, "y": 2}, {"name": "eye", "x": 1, "y": 2, **change}])


BAD_JSON = [
    ("", "is empty; expected keypoints"),
    (" \n", "is empty"),
    ("{", "is not a JSON file that can be read"),
    ("[" * 100_000, "is not a JSON file that can be read"),
    ("[]", "is no keypoints file: expected a list `images`"),
    ("3", "is no keypoints file"),
    ({"images": 3}, "is no keypoints file"),
    ({"images": []}, "has no keypoints; expected those of at least one image"),
    ({"images": [], "annotations": [], "categories": []}, "has no keypoints"),
    ({"annotations": []}, "is not a COCO-keypoints file"),
    ({"images": [3]}, "image number 0: expected an object with `image`"),
    (ours(image=""), "the value of `image` is empty"),
    (ours(image=None), "expected an object with `image`"),
    (ours(points=[]), "the key 'points' is unknown"),
    (ours(keypoints=3), "`keypoints` must be a list"),
    (ours(keypoints=[[1, 2]]), "`keypoints` must be a list of objects with name, x and y"),
    (ours(keypoints=[{"x": 1}]), "`keypoints` must be a list of objects with name, x and y"),
    (ours(box=[1, 2, 3]), r"the box is \[1, 2, 3\]; expected xmin"),
    (ours(box=[1, 2, 0, 3]), "the box is 0 wide and 3 high"),
    (ours(box=[1, 2, "a", 3]), "'a' is no pixel coordinate"),
    (ours(**{"class": 3}), "the class is 3"),
    (point(x=float("nan")), r"keypoint number 1: nan is no pixel coordinate \(of eye\); expected a number"),
    (point(y=float("inf")), "inf is no pixel coordinate"),
    (point(y=1e300), r"1e\+300 is no pixel coordinate \(of eye\); expected a number of at most 1,000,000"),
    (point(y=None), "None is no pixel coordinate"),
    (point(y="x" * 1_000_000), "'x+...x+' is no pixel coordinate"),
    (point(name="nose"), r"keypoint number 1: a second 'nose' in a.jpg"),
    (point(name=3), "the name is 3; expected text"),
    (point(name=""), "the value of `name` is empty"),
    (point(name="a\nb"), "expected printable characters"),
]


@pytest.mark.parametrize(("content", "sentence"), BAD_JSON)
def test_bad_json(tmp_path: Path, content: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        read_points(write(tmp_path, content))
    assert "points.json" in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


BAD_CSV = [
    ("", "is empty"),
    ("image,name,x,y\n", "has no keypoints"),
    ("a,b\n1,2\n", "line 1: the columns are a,b; expected image,name,x,y"),
    ("image,name,x,y\na.jpg,eye,1\n", "line 2: there are more or fewer values"),
    ("image,name,x,y\na.jpg,eye,nan,2\n", "line 2: 'nan' is no pixel coordinate"),
    ("image,name,x,y\na.jpg,eye,-2e6,2\n", "'-2e6' is no pixel coordinate .* at most 1,000,000"),
    ("image,name,x,y\na.jpg,eye,1,2\na.jpg,eye,1,2\n", "line 3: a second 'eye' in a.jpg"),
    ("image,class,name,x,y\na.jpg,cat,eye,1,2\na.jpg,dog,nose,1,2\n", "line 3: another class or box than at p.csv"),
    ("image,name,x,y\n,eye,1,2\n", "line 2: the value of `image` is empty"),
    ('image,name,x,y\n"a', "line 2: not a line of a CSV file"),
]


@pytest.mark.parametrize(("content", "sentence"), BAD_CSV)
def test_bad_csv(tmp_path: Path, content: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read_points(write(tmp_path, content, "p.csv"))


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latin.csv").write_bytes("image,name,x,y\ngröße.png,eye,1,2\n".encode("latin-1"))
    (tmp_path / "points.txt").touch()
    os.mkfifo(tmp_path / "pipe.json")
    for path, sentence in {
        "latin.csv": "line 2 is not UTF-8 text",
        "points.txt": "no keypoints file by its ending",
        "missing.json": "cannot be read: No such file",
        ".": "cannot be read: Is a directory",
        "pipe.json": "is not a regular file",
        "null\0.json": "cannot be read",
    }.items():
        with pytest.raises(DataError, match=sentence):
            read_points(tmp_path / path)
    with pytest.raises(DataError, match="is a web address"):
        read_points("https://example.org/points.json")
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(DataError, match=r"large.json has 2 MiB; expected an annotation file of 1 MiB at most"):
        read_points(tmp_path / "large.json")
