"""CSV: which columns there may be, several objects in an image, and every mistake with its line."""

from pathlib import Path

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation, csv
from normmatch.annotations.images import ImageIndex
from normmatch.errors import DataError


def write(folder: Path, content: str) -> Path:
    path = folder / "p.csv"
    path.write_text(content, encoding="utf-8")
    return path


def test_the_fewest_columns(tmp_path: Path) -> None:
    (item,) = annotations.read(write(tmp_path, "image,name,x,y\na.jpg,eye,1,2\n"))
    assert (item.label, item.box, item.split, item.visible, item.scores) == ("", None, "", None, None)
    assert item.source == "p.csv line 2"


def test_several_objects_in_an_image(tmp_path: Path) -> None:
    path = write(tmp_path, "image,object,name,x,y\na.jpg,1,eye,1,2\na.jpg,2,eye,3,4\n")
    sets = annotations.read(path)
    assert [item.keypoints.tolist() for item in sets] == [[[1, 2]], [[3, 4]]]
    with pytest.raises(DataError, match=r"p.csv has 2 objects in a.jpg; expected keypoints of one"):
        ImageIndex(sets, path).find("a.jpg")
    assert ImageIndex(sets, path).all("a.jpg") == sets


def test_a_training_file_can_be_matched(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    body = "val,a.jpg,cat,1,eye,1,2,0,0,10,12\nval,a.jpg,cat,1,nose,2,2,0,0,10,12\n"
    path = write(tmp_path, "split,image,class,object,name,x,y,xmin,ymin,width,height\n" + body)
    item = ImageIndex(annotations.read(path), path).find(tmp_path / "a.jpg")
    assert (item.label, item.split, item.names, item.box) == ("cat", "val", ("eye", "nose"), (0, 0, 10, 12))


def test_hidden_points_and_scores(tmp_path: Path) -> None:
    body = "a.jpg,eye,1,2,1,0.5\na.jpg,nose,3,4,0,\na.jpg,ear,5,6,,0.25\n"
    (item,) = annotations.read(write(tmp_path, "image,name,x,y,visible,score\n" + body))
    assert item.visible is not None
    assert item.scores is not None
    assert item.visible.tolist() == [True, False, True]
    np.testing.assert_array_equal(item.scores, [0.5, np.nan, 0.25])
    again = annotations.read(write(tmp_path, csv.write([item])))[0]
    np.testing.assert_array_equal(again.scores, item.scores)
    np.testing.assert_array_equal(again.visible, item.visible)


def test_columns_that_no_object_needs_are_not_written() -> None:
    item = Annotation("a.jpg", ("eye",), np.array([[1.0, 2.5]]))
    header, row = csv.write([item]).splitlines()
    assert header == "image,class,object,name,x,y,xmin,ymin,width,height"
    assert row == "a.jpg,,0,eye,1.0,2.5,,,,"


BAD_CSV = [
    ("", "is empty"),
    ("image,name,x,y\n", "has no keypoints"),
    ("a,b\n1,2\n", "line 1: the columns are a,b; expected image,name,x,y"),
    ("image,name,x,y\na.jpg,eye,1\n", "line 2: there are more or fewer values"),
    ("image,name,x,y\na.jpg,eye,nan,2\n", "line 2: 'nan' is no pixel coordinate"),
    ("image,name,x,y\na.jpg,eye,-2e6,2\n", "'-2e6' is no pixel coordinate .* at most 1,000,000"),
    (
        "image,name,x,y\na.jpg,eye,1,2\na.jpg,eye,1,2\n",
        "line 3: a second 'eye' in the object that begins at p.csv line 2; .* `object`",
    ),
    (
        "image,class,name,x,y\na.jpg,cat,eye,1,2\na.jpg,dog,nose,1,2\n",
        "line 3: another class, box or split in the object that begins at p.csv line 2",
    ),
    ("image,name,x,y,split\na.jpg,eye,1,2,\n", "line 2: the value of `split` is empty"),
    ("image,name,x,y,visible\na.jpg,eye,1,2,no\n", "line 2: the value of `visible` is 'no'"),
    ("image,name,x,y,score\na.jpg,eye,1,2,high\n", "line 2: the score is 'high'; expected a number"),
    ("image,name,x,y\n,eye,1,2\n", "line 2: the value of `image` is empty"),
    ('image,name,x,y\n"a', "line 2: not a line of a CSV file"),
]


@pytest.mark.parametrize(("content", "sentence"), BAD_CSV)
def test_bad_csv(tmp_path: Path, content: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        annotations.read(write(tmp_path, content))


@pytest.mark.parametrize("text", ["=1+1", "+a", "-dash", "@home", "'=1", "''@", "'quoted'", "a=b"])
def test_formulas_are_escaped_and_come_back(tmp_path: Path, text: str) -> None:
    item = Annotation(text, (text, "eye"), np.array([[-1.5, 2.0], [3.0, 4.0]]), None, text, text)
    lines = csv.write([item]).splitlines()
    assert not any(cell[:1] in ("=", "+", "@") or cell[:2] == "-d" for line in lines for cell in line.split(","))
    (again,) = annotations.read(write(tmp_path, csv.write([item])))
    assert (again.image, again.names, again.label, again.split) == (text, (text, "eye"), text, text)
    np.testing.assert_array_equal(again.keypoints, item.keypoints)
