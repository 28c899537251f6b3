"""Tables: wide ones with any names of columns, ImageJ's points, SLEAP's analysis."""

from pathlib import Path

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.reading import Reading
from normmatch.annotations.tables import columns_of
from normmatch.errors import DataError


def read(folder: Path, text: str, name: str = "a.csv", **how: object) -> list[Annotation]:
    (folder / name).write_text(text)
    return annotations.read(folder / name, how=Reading(**how), turned=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("id,X1,Y1,X2,Y2", ["1", "2"]),
        ("image,nose_x,nose_y,tail_x,tail_y", ["nose", "tail"]),
        ("NAME_ID,P1X,P1Y,P2X,P2Y", ["P1", "P2"]),
        ("file,nose.x,nose.y,x_tail,y_tail", ["nose", "tail"]),
        (",Sex,Pop,index,yaw", []),
    ],
)
def test_columns(header: str, names: list[str]) -> None:
    assert [name for name, _, _ in columns_of(header.split(","))] == names


def test_wide_tables(tmp_path: Path) -> None:
    found = read(tmp_path, "id;nose_x;nose_y;tail_x;tail_y;sex;mm_per_pixel\na.jpg;1;2;;;m;0.5\nb.jpg;5;6;NA;8;f;\n")
    assert [(i.image, i.names, i.order, i.scale) for i in found] == [
        ("a.jpg", ("nose",), ("nose", "tail"), 0.5), ("b.jpg", ("nose",), ("nose", "tail"), None),
    ]  # fmt: skip
    (item,) = read(tmp_path, "id,X1,Y1\na.jpg,3,4\n", y="up", size=(10, 10), names=("tip",))
    assert (item.names, item.keypoints.tolist()) == (("tip",), [[3, 6]])
    found = read(tmp_path, "2\nlefteye_x lefteye_y nose_x nose_y\n1.jpg 165  184  244  176\n2.jpg 1 2 3 4\n", "a.txt")
    assert (found[0].names, found[1].keypoints.tolist()) == (("lefteye", "nose"), [[1, 2], [3, 4]])


def test_what_is_written(tmp_path: Path) -> None:
    xy = np.array([[1.0, 2.5]])
    annotations.write(tmp_path / "a.csv", [Annotation("a.jpg", ("nose",), xy), Annotation("=b", ("tail",), xy)], "wide")
    text = (tmp_path / "a.csv").read_text()
    assert text == "image,nose_x,nose_y,tail_x,tail_y\na.jpg,1.0,2.5,,\n'=b,,,1.0,2.5\n"


def test_imagej(tmp_path: Path) -> None:
    found = read(tmp_path, " ,Area,X,Y,Slice\r\n1,0,1.5,2,1\r\n2,0,3,4,1\r\n3,0,5,6,2\r\n", names=("nose", "ear"))
    assert [(i.image, i.names) for i in found] == [("1", ("nose", "ear")), ("2", ("nose",))]
    found = read(tmp_path, " \tLabel\tX\tY\n1\ta.jpg\t1\t2\n2\tstack.tif:b.jpg\t3\t4\n", "a.txt")
    assert [(i.image, i.keypoints.tolist()) for i in found] == [("a.jpg", [[1, 2]]), ("b.jpg", [[3, 4]])]


def test_sleap(tmp_path: Path) -> None:
    """The middle of the first pixel is 0 there and 0.5 here."""
    text = "track,frame_idx,instance.score,A.x,A.y,A.score,B.x,B.y,B.score\nt1,7,nan,1,2,0.5,,nan,\n"
    (item,) = read(tmp_path, text)
    assert (item.image, item.object, item.names, item.keypoints.tolist()) == ("7", "t1", ("A",), [[1.5, 2.5]])
    assert item.scores is not None
    assert item.scores.tolist() == [0.5]


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("id,X1,Y1\na.jpg,3\n", "a.csv", "row 2: 2 values; expected 3"),
        ("id,X1,Y1\na.jpg,3,four\n", "a.csv", "row 2: 'four' is no pixel coordinate"),
        (",Sex\na,F\n", "a.csv", "the columns are ,Sex; expected image,name,x,y"),
        (
            "one two\n3 four\n",
            "a.txt",
            "expected image,name,x,y, or the name of a photograph and two for each landmark",
        ),
        (" ,X,Y\n1,2\n", "a.csv", "row 2: 2 values; expected 3"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, name: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read(tmp_path, text, name)
