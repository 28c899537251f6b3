"""labelme, VIA 1 and 2, AlphaTracker and SLEAP's JSON: points count, other shapes do not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.errors import DataError


def read(folder: Path, content: Any, name: str = "a.json") -> list[Annotation]:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return annotations.read(folder / name)


def shape(label: str, kind: str, *points: list[float], group: int | None = None) -> dict[str, Any]:
    return {"label": label, "shape_type": kind, "points": list(points), "group_id": group, "mask": None}


def test_labelme(tmp_path: Path) -> None:
    shapes = [
        shape("cat", "rectangle", [30, 40], [10, 20], group=1), shape("nose", "point", [1, 2], group=1),
        shape("nose", "point", [3, 4], group=2), shape("c", "circle", [5, 5], [6, 6]), shape("1", "point", [7, 8]),
    ]  # fmt: skip
    content = {"version": "5", "shapes": shapes, "imagePath": "..\\x\\a.jpg", "imageHeight": 50, "imageWidth": 100}
    found = read(tmp_path, content)
    assert [(i.image, i.names, i.box, i.object, i.size) for i in found] == [
        ("../x/a.jpg", ("nose",), (10, 20, 20, 20), "1", (100, 50)),
        ("../x/a.jpg", ("nose",), None, "2", (100, 50)),
        ("../x/a.jpg", ("1",), None, "", (100, 50)),
    ]


def test_labelme_is_a_file_a_photograph(tmp_path: Path) -> None:
    items = [Annotation(f"{name}.jpg", ("nose",), np.array([[1.0, 2.0]]), size=(9, 9)) for name in ("a", "d/b")]
    annotations.write(tmp_path / "out", items, "labelme")
    assert json.loads((tmp_path / "out/d/b.json").read_text())["imagePath"] == "d/b.jpg"
    with pytest.raises(DataError, match=r"would both have the labels a.json"):
        annotations.write(
            tmp_path / "two", [items[0], Annotation("a.png", ("nose",), np.ones((1, 2)), size=(9, 9))], "labelme"
        )


@pytest.mark.parametrize("project", [False, True])
def test_via(tmp_path: Path, project: bool) -> None:
    regions: Any = [
        {"shape_attributes": {"name": "point", "cx": 51, "cy": 37}, "region_attributes": {"name": 'red "dot"'}},
        {"shape_attributes": {"name": "rect", "x": 1, "y": 2, "width": 3, "height": 4}, "region_attributes": {}},
        {"shape_attributes": {"name": "point", "cx": 5, "cy": 6}, "region_attributes": {}},
    ]
    regions = regions if project else {str(k): region for k, region in enumerate(regions)}
    content: Any = {"file://C:\\img\\a.jpg123": {"filename": "file://C:\\img\\a.jpg", "regions": regions}}
    (item,) = read(tmp_path, {"_via_settings": {}, "_via_img_metadata": content} if project else content)
    assert (item.image, item.names, item.keypoints.tolist()) == ("a.jpg", ('red "dot"', "2"), [[51, 37], [5, 6]])


@pytest.mark.parametrize("sign", ["#", ""])
def test_via_csv(tmp_path: Path, sign: str) -> None:
    head = (
        f"{sign}filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,region_attributes\n"
    )
    rows = (
        'a.jpg,1,"{}",1,0,"{""name"":""point"",""cx"":1,""cy"":2}","{""name"":""nose""}"\nb.jpg,-1,"{}",0,0,"{}","{}"'
    )
    first, second = read(tmp_path, head + rows, "a.csv")
    assert (first.names, first.keypoints.tolist(), second.names) == (("nose",), [[1, 2]], ())


def test_alphatracker(tmp_path: Path) -> None:
    face = {"class": "Face", "x": 1, "y": 1, "width": 3, "height": 3}
    shapes = [
        face,
        {"class": "point", "x": 1, "y": 2},
        face,
        {"class": "point", "x": 5, "y": 6},
        {"class": "point", "x": 7, "y": 8},
    ]
    first, second = read(tmp_path, [{"filename": "a.png", "class": "image", "annotations": shapes}])
    assert (first.names, second.keypoints.tolist(), second.box) == (("1",), [[5, 6], [7, 8]], (1, 1, 3, 3))


def test_old_sleap(tmp_path: Path) -> None:
    content = {
        "version": "2.0.0",
        "skeletons": [{"nodes": [{"id": 1}, {"id": 0}]}],
        "nodes": [{"name": "A"}, {"name": "B"}],
        "videos": [{"backend": {"filename": "C:\\x\\v.mp4"}}],
        "labels": [
            {
                "video": 0,
                "frame_idx": 3,
                "_instances": [{"skeleton": 0, "_points": {"0": {"x": 1.5, "y": 2, "visible": True}}}],
            }
        ],
    }
    (item,) = read(tmp_path, content)
    assert (item.image, item.names, item.order, item.keypoints.tolist()) == ("v.mp4:3", ("B",), ("B", "A"), [[1.5, 2]])
    content["nodes"] = []
    with pytest.raises(DataError, match="cannot be read as labels of SLEAP"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"shapes": [{"label": "a"}]}, "shape 0 is .*; expected a label, points and a shape_type"),
        ({"shapes": [shape("a", "point", [1, 2]), shape("a", "point", [3, 4])]}, "a second 'a'"),
        ({"a": {"filename": "a.jpg", "regions": [3]}}, "a region is 3; expected VIA's shape and attributes"),
    ],
)
def test_mistakes(tmp_path: Path, content: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read(tmp_path, content)
