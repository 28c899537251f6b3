"""Label Studio: points tied to boxes in all the ways there are, uploads' names, predictions with scores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.errors import DataError

SIZE = {"original_width": 200, "original_height": 100, "image_rotation": 0}


def point(key: str, name: str, x: float, y: float, **more: Any) -> dict[str, Any]:
    return {"id": key, "type": "keypointlabels", "value": {"x": x, "y": y, "keypointlabels": [name]}, **SIZE, **more}


def box(key: str, label: str, x: float) -> dict[str, Any]:
    value = {"x": x, "y": 10, "width": 20, "height": 50, "rotation": 0, "rectanglelabels": [label]}
    return {"id": key, "type": "rectanglelabels", "value": value, **SIZE}


def task(results: list[Any], image: str = "/data/upload/3/23082be9-a%20b.jpg", **annotation: Any) -> dict[str, Any]:
    return {
        "id": 7,
        "data": {"image": image},
        "annotations": [{"result": results, "was_cancelled": False, **annotation}],
    }


def read(folder: Path, content: Any) -> list[Annotation]:
    (folder / "a.json").write_text(json.dumps(content))
    return annotations.read(folder / "a.json")


def test_points_belong_to_boxes(tmp_path: Path) -> None:
    results = [
        point("p1", "nose", 50, 50, parentID="b1"), point("p2", "nose", 25, 10), point("p3", "corner", 1, 1),
        box("b1", "cat", 10), box("b2", "dog", 60),
        {"type": "relation", "from_id": "p2", "to_id": "b2"}, {"type": "relation", "from_id": "b1", "to_id": "b1"},
    ]  # fmt: skip
    found = read(tmp_path, [task(results)])
    assert [(i.label, i.names, i.keypoints.tolist(), i.box) for i in found] == [
        ("cat", ("nose",), [[100, 50]], (20, 10, 40, 50)),
        ("dog", ("nose",), [[50, 10]], (120, 10, 40, 50)),
        ("", ("corner",), [[2, 1]], None),
    ]
    assert {(i.image, i.size) for i in found} == {("a b.jpg", (200, 100))}


def test_the_annotation_that_counts(tmp_path: Path) -> None:
    cancelled = {"result": [point("p", "nose", 1, 1)], "was_cancelled": True}
    one = task([point("p", "nose", 50, 50)], "/data/local-files/?d=herd/a.jpg")
    one["annotations"].append(cancelled)
    two = {
        "data": {"image": "b.jpg"},
        "annotations": [],
        "predictions": [{"result": [point("p", "ear", 2, 2)], "score": 0.5}],
    }
    short = {"image": "c.jpg", "id": 3, "kp": [{"x": 10, "y": 10, "keypointlabels": ["tail"], **SIZE}]}
    found = read(tmp_path, [one, two, short])
    assert [(i.image, i.names, i.keypoints.tolist()) for i in found] == [
        ("herd/a.jpg", ("nose",), [[100, 50]]), ("b.jpg", ("ear",), [[4, 2]]), ("c.jpg", ("tail",), [[20, 10]]),
    ]  # fmt: skip
    assert found[1].scores is not None
    assert found[1].scores.tolist() == [0.5]
    with pytest.warns(UserWarning, match="the last of 2 annotations is read"):
        read(tmp_path, [one | {"annotations": one["annotations"][:1] * 2}])


def test_scores_make_predictions(tmp_path: Path) -> None:
    item = Annotation("a.jpg", ("nose",), np.array([[100.0, 25.0]]), scores=np.array([0.75]), size=(200, 100))
    annotations.write(tmp_path / "out.json", [item], "labelstudio")
    (written,) = json.loads((tmp_path / "out.json").read_text())
    (prediction,) = written["predictions"]
    assert (prediction["score"], written["data"], "annotations" in written) == (0.75, {"image": "a.jpg"}, False)
    assert prediction["result"][0]["value"] == {"x": 50, "y": 25, "width": 0.5, "keypointlabels": ["nose"]}
    assert prediction["result"][0]["original_width"] == 200


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([{"data": {"text": 3}}], "task 'number 0': expected the name of its photograph"),
        ([task([{"value": {"keypointlabels": ["a"], "x": "b", "y": 1}, **SIZE}])], "task 7: a point is at"),
        (
            [task([{"value": {"keypointlabels": ["a"], "x": 1, "y": 1}}])],
            "expected per cent x and y, and original_width",
        ),
        ([task([3])], "`result` must be a list of objects"),
    ],
)
def test_mistakes(tmp_path: Path, content: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read(tmp_path, content)
