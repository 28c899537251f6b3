"""Our own JSON: what it may leave out, what is written is read again, and every mistake is one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation, native
from normmatch.errors import DataError
from normmatch.outputs import MADE_BY


def write(folder: Path, content: Any) -> Path:
    path = folder / "points.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_names_that_are_left_out(tmp_path: Path) -> None:
    (item,) = annotations.read(write(tmp_path, {"images": [{"image": "a.jpg", "keypoints": [{"x": 1, "y": 2}]}]}))
    assert (item.names, item.label, item.box, item.split) == (("0",), "", None, "")
    assert (item.visible, item.scores, item.source) == (None, None, "points.json image number 0")


def test_an_image_without_keypoints(tmp_path: Path) -> None:
    (item,) = annotations.read(write(tmp_path, {"images": [{"image": "a.jpg", "keypoints": []}]}))
    assert item.keypoints.shape == (0, 2)


def test_what_is_written(tmp_path: Path) -> None:
    """Scores that are not known are left out, and so is everything that an object does not have."""
    xy, scores = np.array([[1.5, 2.0], [3.0, 4.0]]), np.array([0.25, np.nan])
    item = Annotation("a.jpg", ("eye", "nose"), xy, (1, 2, 3, 4), "cat", "val", np.array([True, False]), scores)
    entry = {
        "image": "a.jpg",
        "keypoints": [
            {"name": "eye", "x": 1.5, "y": 2.0, "visible": True, "score": 0.25},
            {"name": "nose", "x": 3.0, "y": 4.0, "visible": False},
        ],
        "box": [1, 2, 3, 4],
        "class": "cat",
        "split": "val",
    }
    plain = {"image": "b.jpg", "keypoints": [{"name": "eye", "x": 1.5, "y": 2.0}]}
    text = native.write([item, Annotation("b.jpg", ("eye",), xy[:1])])
    assert json.loads(text) == {"made_by": MADE_BY, "images": [entry, plain]}
    first, second = annotations.read(write(tmp_path, text))
    assert first.visible is not None
    assert first.scores is not None
    assert first.visible.tolist() == [True, False]
    np.testing.assert_array_equal(first.scores, scores)
    assert (first.split, second.split, second.visible, second.scores) == ("val", "", None, None)


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
    (point(visible=2), "keypoint number 1: the value of `visible` is 2; expected true or false"),
    (point(visible=[]), r"the value of `visible` is \[\]"),
    (point(score="high"), "keypoint number 1: the score is 'high'; expected a number"),
    (point(score=float("inf")), "the score is inf"),
    (point(score=True), "the score is True"),
    (ours(split=3), "the split is 3; expected printable text"),
    (point(name="nose"), r"keypoint number 1: a second 'nose' in a.jpg"),
    (point(name=3), "the name is 3; expected text"),
    (point(name=""), "the value of `name` is empty"),
    (point(name="a\nb"), "expected printable characters"),
]


@pytest.mark.parametrize(("content", "sentence"), BAD_JSON)
def test_bad_json(tmp_path: Path, content: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        annotations.read(write(tmp_path, content))
    assert "points.json" in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
