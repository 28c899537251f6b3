"""Reading and writing annotations of any format: told by ending and content, alike, whole, and one sentence if not."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.config import Format
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
    first, second = annotations.read(write(tmp_path, content, name))
    assert_first(first)
    assert (second.image, second.names, second.box) == ("b/c.jpg", ("eye",), None)


@pytest.mark.parametrize(("ending", "format"), [("json", None), ("json", "coco"), ("csv", None), ("csv", "csv")])
def test_what_is_written_is_read_again(tmp_path: Path, ending: str, format: Format | None) -> None:
    path = tmp_path / f"new/points.{ending}"
    comma = Annotation("a, b.jpg", ("left, \"x\"",), np.array([[1 / 3, 2.0]]))  # fmt: skip
    annotations.write(path, [*annotations.read(write(tmp_path, OURS)), comma], format)
    first, _, last = annotations.read(path)
    assert_first(first)
    assert (last.image, last.names, last.keypoints.tolist()) == (comma.image, comma.names, comma.keypoints.tolist())


@pytest.mark.parametrize(("name", "format"), [("p.doc", None), ("p", None), ("p.csv", "coco"), ("p.json", "csv")])
def test_an_ending_that_does_not_fit(tmp_path: Path, name: str, format: Format | None) -> None:
    with pytest.raises(DataError, match=r"expected \.(json|csv)"):
        annotations.write(tmp_path / name, [], format)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latin.csv").write_bytes("image,name,x,y\ngröße.png,eye,1,2\n".encode("latin-1"))
    (tmp_path / "points.doc").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    for path, sentence in {
        "latin.csv": "line 2 is not UTF-8 text",
        "points.doc": "no keypoints file by its ending",
        "missing.json": "cannot be read: No such file",
        "folder": "is a folder without keypoints files",
        "pipe.json": "is not a regular file",
        "null\0.json": "cannot be opened",
    }.items():
        with pytest.raises(DataError, match=sentence):
            annotations.read(tmp_path / path)
    with pytest.raises(DataError, match="is a web address"):
        annotations.read("https://example.org/points.json")
    monkeypatch.setattr(annotations, "MAX_BYTES", 1 << 20)
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(DataError, match=r"large.json has 2 MiB; expected an annotation file of 1 MiB at most"):
        annotations.read(tmp_path / "large.json")
