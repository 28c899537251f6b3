"""NTS and morphologika: labels in all places, line breaks anywhere, missing values, three dimensions refused."""

from pathlib import Path

import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.errors import DataError


def read(folder: Path, text: str, name: str = "a.nts") -> list[Annotation]:
    (folder / name).write_text(text)
    return annotations.read(folder / name, turned=False)


@pytest.mark.parametrize(
    "text",
    [
        '" made by hand\n1 2L 4 0 dim=2\n17 b\n1 2 3\n4 5 6\n7 8\n',
        "1 2B 4 0 DIM=2\n17 1 2 3 4\nb 5 6 7 8",
        "1 2E 4 0 dim=2\n1 2 3 4 17\n5 6 7 8 b",
        "1 2L 4L 0 dim=2\n17 b\nx1 y1 x2 y2\n1 2 3 4 5 6 7 8",
    ],
)
def test_labels_in_all_places(tmp_path: Path, text: str) -> None:
    first, second = read(tmp_path, text)
    assert [(i.image, i.keypoints.tolist(), i.y_up) for i in (first, second)] == [
        ("17", [[1, 2], [3, 4]], True), ("b", [[5, 6], [7, 8]], True),
    ]  # fmt: skip
    Image.new("RGB", (10, 10)).save(tmp_path / "b.png")
    assert read(tmp_path, text)[1].keypoints.tolist() == [[5, 4], [7, 2]]


def test_missing_values(tmp_path: Path) -> None:
    (item,) = read(tmp_path, "1 1L 6 1 -999 dim=2\na\n1 2 -999 -999 -1 -1\n")
    assert (item.names, item.order) == (("1",), ("1", "2", "3"))


def test_morphologika(tmp_path: Path) -> None:
    text = (
        "[individuals]\n2\n[landmarks]\n2\n[Dimensions]\n2\n[names]\na\nb\n[rawpoints]\n'#1\n1 2\n3 4\n'#2\n5,6\n7,8\n"
    )
    first, second = read(tmp_path, text, "a.txt")
    assert (first.image, second.keypoints.tolist()) == ("a", [[5, 6], [7, 8]])
    with pytest.raises(DataError, match="have 3 dimensions; expected 2"):
        read(tmp_path, text.replace("[Dimensions]\n2", "[Dimensions]\n3"), "a.txt")
    with pytest.raises(DataError, match="the same number of x and y"):
        read(tmp_path, text.replace("7,8", "7"), "a.txt")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('" centroid sizes\n1 3L 1 0\na b c\n1 2 3\n', "is no NTS file of landmarks"),
        ('"0.0,0.0"\n"1.0,2.0"\n', "is no NTS file of landmarks"),
        ("1 1L 6 0 dim=3\na\n1 2 3 4 5 6\n", "have 3 dimensions"),
        ("1 2L 4 0 dim=2\na b\n1 2 3\n", "3 values; expected 8 for 2 specimens"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read(tmp_path, text)
