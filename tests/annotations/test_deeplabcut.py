"""DeepLabCut's CSV: old and new index columns, several animals, ragged rows, likelihoods, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.errors import DataError

MULTI = """scorer,,,a,a,a,a,a,a,a,a
individuals,,,m1,m1,m1,m1,m2,m2,single,single
bodyparts,,,nose,nose,tail,tail,nose,nose,corner,corner
coords,,,x,y,x,y,x,y,x,y
labeled-data,v,1.png,0,1,2,,5,6,,
labeled-data,v,2.png,,,,
labeled-data,v,3.png,,,,,,,7,8
"""


def read(folder: Path, text: str) -> list[Annotation]:
    (folder / "a.csv").write_text(text)
    return annotations.read(folder / "a.csv")


def test_several_animals_and_ragged_rows(tmp_path: Path) -> None:
    """0 is a place, x without y is none, and what is `single` belongs to no animal."""
    found = read(tmp_path, MULTI)
    about = [(item.image, item.object, item.names, item.keypoints.tolist()) for item in found]
    assert about == [
        ("labeled-data/v/1.png", "m1", ("nose",), [[0, 1]]),
        ("labeled-data/v/1.png", "m2", ("nose",), [[5, 6]]),
        ("labeled-data/v/2.png", "", (), []),
        ("labeled-data/v/3.png", "single", ("corner",), [[7, 8]]),
    ]
    assert [item.order for item in found] == [("nose", "tail"), ("nose",), ("nose", "tail", "corner"), ("corner",)]


def test_predictions_by_frame(tmp_path: Path) -> None:
    head = "scorer,DLC,DLC,DLC\nbodyparts,nose,nose,nose\ncoords,x,y,likelihood\n"
    first, second = read(tmp_path, head + "0,1.5,2,0.9\n1,3,4,\n")
    assert (first.image, second.image, second.scores) == ("0", "1", None)
    assert first.scores is not None
    assert first.scores.tolist() == [0.9]


def test_what_is_written(tmp_path: Path) -> None:
    xy = np.array([[1.0, 2.0], [3.0, 4.5]])
    one = [
        Annotation("labeled-data/v/1.png", ("nose", "tail"), xy),
        Annotation("labeled-data/v/2.png", ("tail",), xy[1:]),
    ]
    annotations.write(tmp_path / "a.csv", one, "deeplabcut")
    assert (tmp_path / "a.csv").read_text() == (
        "scorer,,,NormMatch,NormMatch,NormMatch,NormMatch\nbodyparts,,,nose,nose,tail,tail\ncoords,,,x,y,x,y\n"
        "labeled-data,v,1.png,1.0,2.0,3.0,4.5\nlabeled-data,v,2.png,,,3.0,4.5\n"
    )
    found = read(tmp_path, MULTI)
    annotations.write(tmp_path / "b.csv", found, "deeplabcut")
    again = annotations.read(tmp_path / "b.csv")
    assert [(i.image, i.object, i.names) for i in again] == [(i.image, i.object, i.names) for i in found]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("scorer,a,a,a\nbodyparts,n,n,n\ncoords,x,y,z\n0,1,2,3\n", "the points have three dimensions"),
        ("scorer,a,a\nbodyparts,n,n\ncoords,x,w\n0,1,2\n", "a column 'w'; expected x, y and perhaps likelihood"),
        ("scorer,a\nbodyparts,n\ncoords,x\n0,1\n", "expected a column x and one y for each body part"),
        ("scorer,a,a\nx,n,n\ny,x,y\n", "expected the rows scorer, bodyparts and coords"),
        ("scorer,a,a\nbodyparts,n\ncoords,x,y\n", "rows of the header have different lengths"),
        ("scorer,a,a\nbodyparts,n,n\ncoords,x,y\n0,one,2\n", "line 4: 'one' is no pixel coordinate"),
        ("scorer,a,a\nbodyparts,n,n\ncoords,x,y\n", "has no keypoints"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read(tmp_path, text)
