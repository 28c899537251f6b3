"""YOLO pose: shares of a photograph, with and without visibility, the data.yaml and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation, Landmarks
from normmatch.annotations.reading import Reading
from normmatch.errors import DataError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for part in ("images/train", "labels/train"):
        (tmp_path / part).mkdir(parents=True)
    Image.new("RGB", (200, 100)).save(tmp_path / "images/train/a.jpg")
    return tmp_path


def put(root: Path, config: str, labels: str) -> Path:
    (root / "data.yaml").write_text(config)
    (root / "labels/train/a.txt").write_text(labels)
    return root / "data.yaml"


def test_with_visibility(root: Path) -> None:
    config = (
        "path: C:\\Users\\ann\\set\ntrain: images\\train\nkpt_shape: [3, 3]\nflip_idx:\n  [0, 2, 1]\nnames:\n  0: cat\n"
    )
    path = put(root, config, "# made by hand\n0 0.5 0.5 0.4 0.2 0.5 0.5 2 0.25 0.1 1 0.3 0.3 0")
    for source in (path, root, root / "labels/train/a.txt"):
        (item,) = annotations.read(source)
        assert (item.image.rpartition("/")[2], item.label, item.split) == ("a.jpg", "cat", "train")
        assert (item.names, item.keypoints.tolist()) == (("1", "2"), [[100, 50], [50, 10]])
        assert item.visible is not None
        assert (item.visible.tolist(), item.box) == ([True, False], (60, 40, 80, 20))
        assert item.landmarks == Landmarks(("1", "2", "3"), (), (("2", "3"),))
    (item,) = annotations.read(root / "labels/train/a.txt", how=Reading(names=("nose", "left", "right")))
    assert item.names == ("nose", "left")


def test_without_visibility_zero_is_missing(root: Path) -> None:
    (item,) = annotations.read(put(root, "kpt_shape: [2, 2]\nnames: [cat]\n", "0 0.5 0.5 0.4 0.2 0 0 0.25 0.1\n"))
    assert (item.names, item.visible, item.label) == (("2",), None, "cat")


def test_without_a_yaml_the_columns_tell(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 0.5 0.5 0.4 0.2 0.5 0.5 2 0.25 0.1 1\n")
    (tmp_path / "b.txt").write_text("0 0.5 0.5 0.4 0.2 0.5 0.5 0.25 0.1\n")
    how = Reading(size=(100, 100))
    assert [len(annotations.read(tmp_path / name, how=how)[0].order) for name in ("a.txt", "b.txt")] == [2, 2]
    with pytest.raises(DataError, match="a photograph that was not found; expected a or its size"):
        annotations.read(tmp_path / "a.txt")


def test_what_is_written(tmp_path: Path) -> None:
    kind = Landmarks(("tip", "left", "right"), (), (("left", "right"),))
    item = Annotation(
        "x/a.jpg", ("right",), np.array([[50.0, 25.0]]), (40, 20, 20, 10), "wing", size=(100, 50), landmarks=kind
    )
    annotations.write(tmp_path / "set", [item], "yolo")
    config = yaml.safe_load((tmp_path / "set/data.yaml").read_text())
    assert (config["kpt_shape"], config["flip_idx"], config["names"]) == ([3, 3], [0, 2, 1], {0: "wing"})
    assert (tmp_path / "set/labels/train/a.txt").read_text() == "0 0.5 0.5 0.2 0.2 0 0 0 0 0 0 0.5 0.5 2\n"
    with pytest.raises(DataError, match="x/a.jpg and y/a.jpg would both have the labels|y/a.jpg and x/a.jpg"):
        annotations.write(
            tmp_path / "two", [item, Annotation("y/a.jpg", ("tip",), np.ones((1, 2)), size=(9, 9))], "yolo"
        )


@pytest.mark.parametrize(
    ("config", "labels", "sentence"),
    [
        ("kpt_shape: [2, 3]\n", "0 0.5 0.5 0.4 0.2 0.5 0.5 2\n", "a.txt line 1: 8 values; expected 11 numbers"),
        ("kpt_shape: [1, 3]\n", "0 0.5 0.5 0.4 0.2 x 0.5 2\n", "a.txt line 1: 8 values; expected 8 numbers"),
        ("kpt_shape: 17\n", "", "expected `kpt_shape"),
        ("a: [", "", "is not a YAML file"),
        ("kpt_shape: [2, 2]\nflip_idx: [0, 0]\n", "0 0.5 0.5 0.4 0.2 0 0 0.25 0.1\n", "flip_idx is"),
    ],
)
def test_mistakes(root: Path, config: str, labels: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        annotations.read(put(root, config, labels))
