"""TPS: from where y counts, what is missing, the many ways to write it, and mistakes with their lines."""

from pathlib import Path

import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.reading import Reading
from normmatch.errors import DataError


def read(folder: Path, text: str, **how: object) -> list[Annotation]:
    path = folder / "a.TPS"
    path.write_bytes(text.encode())
    return annotations.read(path, how=Reading(**how), turned=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "image",
    ["wing 1.jpg", "WING 1.JPG", r"C:\Users\Ann\Desktop\wing 1.jpg", "wing 1 .jpg", "wing 1", "/gone/wing 1.jpg"],
)
def test_y_counts_from_the_bottom_of_the_photograph(tmp_path: Path, image: str) -> None:
    (tmp_path / "photographs").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "photographs" / "wing 1.jpg")
    (item,) = read(tmp_path, f"LM=2\r\n10. 8.\r\n1.5E+001\t9 \r\nSCALE=0.5\r\nIMAGE={image}\r\nID=x1")
    assert item.keypoints.tolist() == [[10, 40], [15, 39]]
    assert (item.object, item.scale, item.size, item.y_up) == ("x1", 0.5, (64, 48), False)
    assert Path(item.image).name == "wing 1.jpg"


def test_a_photograph_of_another_size_gives_no_height(tmp_path: Path) -> None:
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    (item,) = read(tmp_path, "LM=2\n10 8\n15 200\nIMAGE=a.png\n")
    assert item.y_up
    assert item.keypoints.tolist() == [[10, 8], [15, 200]]
    assert read(tmp_path, "LM=1\n10 8\nID=lost\n", y="down")[0].y_up is False
    assert read(tmp_path, "LM=1\n10 8\nID=lost\n", size=(20, 10))[0].keypoints.tolist() == [[10, 2]]


def test_what_is_missing(tmp_path: Path) -> None:
    text = "LM=4\n-1 -1\n3 4\nNA NA\n-2 5\nID=a\n"
    (item,) = read(tmp_path, text)
    assert (item.names, item.order) == (("2", "4"), ("1", "2", "3", "4"))
    assert read(tmp_path, text, negative_missing=True)[0].names == ("2",)
    (item, other) = read(tmp_path, "LM=2\n0 0\n0 0\nSCALE=0\nID=a\nLM=2\n0 0\n1 2\nID=b\n")
    assert (item.names, item.scale, other.names) == ((), None, ("1", "2"))


def test_rows_counted_from_the_top_with_a_minus(tmp_path: Path) -> None:
    items = read(tmp_path, "LM=2\n10 -8\n15 -20\nID=a\nLM=2\n1 -3\n4 -9\nID=b\n")
    assert [item.keypoints.tolist() for item in items] == [[[10, 8], [15, 20]], [[1, 3], [4, 9]]]
    assert not items[0].y_up
    (shape,) = read(tmp_path, "LM=2\n0.3 -0.1\n-0.2 -0.4\nID=a\n")
    assert (shape.keypoints.tolist(), shape.y_up) == ([[0.3, -0.1], [-0.2, -0.4]], True)


def test_ways_to_write_it(tmp_path: Path) -> None:
    text = """# made by hand
lm=2\tfirst beetle
1 2 0
3 4 0
CURVES=1
POINTS=2
5 6
7 8
POINTS=1
9 9
VARIABLES=OrigNum=57
COMMENT=free text = nothing
SCALE=

lm=2
1 2
3 4
IMAGE=b.jpg"""
    first, second = read(tmp_path, text)
    assert (first.image, [len(curve) for curve in first.curves], first.scale) == ("first beetle", [2, 1], None)
    assert (second.image, second.object) == ("b.jpg", "")
    assert read(tmp_path, "LM=2\n1 2\n3 4\nID=a\n", names=("tip", "end"))[0].names == ("tip", "end")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ID=3\n", "is no TPS file: expected a line such as LM=12"),
        ("LM=2\n1 2\nID=3\n", "line 3: 1 more points were announced before ID"),
        ("LM=2\n1 2\n", "ends 1 points before the number that was announced"),
        ("LM=1\n1 2\n3 4\n", "line 3: '3 4' is more than the points that were announced"),
        ("LM=1\n1 x\n", "line 2: '1 x' is no point; expected x and y"),
        ("LM=1\n1 2e9\n", "is no point"),
        ("LM=1\n1 2 3\n", "line 2: the landmarks have three dimensions"),
        ("LM3=1\n1 2 0\n", "three dimensions"),
        ("LM=x\n", "line 1: LM=x; expected the number of points"),
        ("LM=0\nOUTLINES=1\nPOINTS=1\n1 2\n", "0 landmarks in its 1 specimens, only curves"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="has 2 landmarks; expected the 3 that names are given for"):
        read(tmp_path, "LM=2\n1 2\n3 4\n", names=("a", "b", "c"))
