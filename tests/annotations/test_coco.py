"""COCO keypoints: what is read, what is written with and without scores, and every mistake with its annotation.

More mistakes are in `tests/datasets/test_folder.py`, where a whole COCO folder is at hand.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation, coco
from normmatch.errors import DataError


def content(**change: Any) -> dict[str, Any]:
    """One cat with a visible eye, a hidden nose and no tail; `change` is of its annotation."""
    annotation = {"id": 5, "image_id": 1, "category_id": 7, "keypoints": [3.5, 4, 2, 5, 6, 1, 0, 0, 0]}
    return {
        "images": [{"id": 1, "file_name": "a.jpg", "split": "val"}],
        "categories": [{"id": 7, "name": "cat", "keypoints": ["eye", "nose", "tail"]}],
        "annotations": [annotation | change],
    }


def write(folder: Path, values: Any) -> Path:
    path = folder / "points.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
    return path


def test_hidden_points_scores_and_the_split(tmp_path: Path) -> None:
    (item,) = annotations.read(write(tmp_path, content(keypoint_scores=[0.5, 0.25, 0], bbox=[1, 2, 3, 4])))
    assert (item.image, item.names, item.label, item.split) == ("a.jpg", ("eye", "nose"), "cat", "val")
    assert (item.box, item.source) == ((1, 2, 3, 4), "points.json annotation 5")
    assert item.visible is not None
    assert item.scores is not None
    assert item.visible.tolist() == [True, False]
    assert item.scores.tolist() == [0.5, 0.25]


def test_an_annotation_without_labelled_keypoints_is_an_object_without_keypoints(tmp_path: Path) -> None:
    (item,) = annotations.read(write(tmp_path, content(keypoints=[0] * 9, bbox=[0, 0, 0, 0])))
    assert (item.names, item.keypoints.shape, item.box) == ((), (0, 2), None)


def test_what_is_written() -> None:
    """Each class has all the names of its objects; v is 0 for a name that an object has not, 1 where it is hidden."""
    xy = np.array([[1.5, 2.0], [3.0, 4.0]])
    first = Annotation("a.jpg", ("eye", "nose"), xy, (1, 2, 3, 4), "cat", "train", np.array([True, False]))
    second = Annotation("a.jpg", ("tail",), xy[:1], None, "cat", scores=np.array([0.5]))
    third = Annotation("b/c.jpg", ("wing",), xy[:1])
    found = json.loads(coco.write([first, second, third], {"a.jpg": (80, 60)}, "what it is"))
    assert found["info"] == {"description": "what it is"}
    assert found["images"] == [
        {"id": 1, "file_name": "a.jpg", "split": "train", "width": 80, "height": 60},
        {"id": 2, "file_name": "b/c.jpg"},
    ]
    assert found["categories"] == [
        {"id": 1, "name": "cat", "keypoints": ["eye", "nose", "tail"], "skeleton": []},
        {"id": 2, "name": "object", "keypoints": ["wing"], "skeleton": []},
    ]
    one, two, three = found["annotations"]
    assert (one["keypoints"], one["num_keypoints"]) == ([1.5, 2, 2, 3, 4, 1, 0, 0, 0], 2)
    assert (one["bbox"], one["area"]) == ([1, 2, 3, 4], 12)
    assert "score" not in one
    assert (two["keypoints"], two["keypoint_scores"], two["score"]) == ([0] * 6 + [1.5, 2, 2], [0, 0, 0.5], 0.5)
    assert "bbox" not in two
    assert [(item["id"], item["image_id"], item["category_id"]) for item in (one, two, three)] == [
        (1, 1, 1), (2, 1, 1), (3, 2, 2),
    ]  # fmt: skip


def test_an_object_of_which_nothing_was_found() -> None:
    known = Annotation("a.jpg", ("eye",), np.ones((1, 2)), label="cat")
    empty = Annotation("b.jpg", (), np.zeros((0, 2)), (0, 0, 5, 5), "cat", scores=np.zeros(0))
    entry = json.loads(coco.write([known, empty]))["annotations"][1]
    assert (entry["keypoints"], entry["num_keypoints"]) == ([0, 0, 0], 0)
    assert (entry["score"], entry["keypoint_scores"]) == (0, [0])


def test_images_beside_the_file_are_measured(tmp_path: Path) -> None:
    Image.new("RGB", (80, 60)).save(tmp_path / "a.png")
    items = [Annotation(name, ("eye",), np.ones((1, 2))) for name in ("a.png", "b.png")]
    annotations.write(tmp_path / "points.json", items, "coco")
    images = json.loads((tmp_path / "points.json").read_text())["images"]
    assert [(image.get("width"), image.get("height")) for image in images] == [(80, 60), (None, None)]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"annotations": []}, "is not a COCO-keypoints file"),
        ({"images": [], "annotations": [], "categories": []}, "has no keypoints"),
        (content(image_id=2), "annotation 5: its image_id or category_id is not in the file"),
        (content(keypoints=[1, 2]), "annotation 5: `keypoints` must hold x, y, v for each of the 3 names"),
        (content(keypoint_scores=[0.5]), r"`keypoint_scores` is \[0.5\]; expected a score for each of 3 names"),
        (content(keypoint_scores=["a", 0, 0]), "annotation 5: the score is 'a'; expected a number"),
        (content(bbox=[1, 2, -3, 4]), "annotation 5: the box is -3 wide and 4 high"),
    ],
)
def test_mistakes(tmp_path: Path, values: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        annotations.read(write(tmp_path, values))
    assert "\n" not in str(caught.value)
