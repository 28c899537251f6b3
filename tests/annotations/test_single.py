"""Formats with a file for each photograph: .pts, .tem and StereoMorph, one by one and in a folder."""

from pathlib import Path

import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations.reading import Reading
from normmatch.errors import DataError

STEREOMORPH = """<shapes type=list>
\t<scaling type=logical names=FALSE length=1 as.numeric=FALSE >0.02</scaling>
\t<scaling.units type=character>mm</scaling.units>
\t<landmarks.pixel type=matrix rownames=TRUE colnames=FALSE nrow=3 ncol=2 as.numeric=TRUE >
\t\tnose tip\t12.5\t30
\t\tear\tNA\tNA
\t\ttail\t1\t2
\t</landmarks.pixel>
\t<landmarks.scaled type=matrix rownames=TRUE>
\t\tnose tip\t0.25\t-0.6
\t</landmarks.scaled>
</shapes>
"""


def put(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_pts(tmp_path: Path) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / "face 1.png")
    (item,) = annotations.read(put(tmp_path, "face 1.pts", "version: 1\r\nn_points:  2\r\n{\r\n3.5 4\r\n5 6\r\n}\r\n"))
    assert (item.image, item.names, item.keypoints.tolist()) == ("face 1.png", ("1", "2"), [[3.5, 4], [5, 6]])
    with pytest.raises(DataError, match="is no .pts file"):
        annotations.read(put(tmp_path, "a.pts", "version: 1\nn_points: 3\n{\n1 2\n}\n"))


def test_tem(tmp_path: Path) -> None:
    (item,) = annotations.read(
        put(tmp_path, "a.tem", '2\n264\t545\n273\t555\n1\n0\n2\n0 1\n0\n\n{"image": "/x/lisa.jpg"}\n')
    )
    assert (item.image, item.keypoints.tolist()) == ("lisa.jpg", [[264, 545], [273, 555]])
    assert annotations.read(put(tmp_path, "b.tem", "1\n2\t3\n0\n"))[0].image == "b"
    for text in ("3\n1 2\n", "x\n1 2\n"):
        with pytest.raises(DataError, match="is no template of webmorph"):
            annotations.read(put(tmp_path, "c.tem", text))


def test_stereomorph(tmp_path: Path) -> None:
    """Of the two blocks that in pixels counts; a folder has a file for each photograph."""
    for name in ("a.txt", "b.txt"):
        put(tmp_path, name, STEREOMORPH)
    Image.new("RGB", (40, 40)).save(tmp_path / "a.jpg")
    first, second = annotations.read(tmp_path)
    assert (first.image, second.image, first.scale) == ("a.jpg", "b", 0.02)
    assert (first.names, first.order) == (("nose tip", "tail"), ("nose tip", "ear", "tail"))
    assert first.keypoints.tolist() == [[12.5, 30], [1, 2]]
    with pytest.raises(DataError, match="no landmarks in pixels"):
        annotations.read(put(tmp_path, "c.txt", "<shapes type=list></shapes>"))
    with pytest.raises(DataError, match="has 2 landmarks; expected the 3 that names are given for"):
        annotations.read(put(tmp_path, "d.pts", "n_points: 2 {\n1 2\n3 4\n}"), how=Reading(names=("a", "b", "c")))
