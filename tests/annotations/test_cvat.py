"""CVAT: skeletons, many places in an element, one element a landmark, points without identity, video, boxes."""

from pathlib import Path

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.errors import DataError

META = """<meta><task><labels><label><name>bee</name><type>skeleton</type></label>
<label><name>2</name><parent>bee</parent></label><label><name>1</name><parent>bee</parent></label></labels>
<owner><username>ann</username><email>ann@example.org</email></owner></task></meta>"""


def read(folder: Path, body: str) -> list[Annotation]:
    (folder / "a.xml").write_text(f'<?xml version="1.0"?><annotations><version>1.1</version>{META}{body}</annotations>')
    return annotations.read(folder / "a.xml")


def image(body: str, name: str = "a.jpg", more: str = "") -> str:
    return f'<image id="0" name="{name}" width="100" height="50" {more}>{body}</image>'


def test_skeletons(tmp_path: Path) -> None:
    body = """<skeleton label="bee" z_order="0" group_id="1"><points label="1" occluded="1" outside="0" points="1.5,2">
    </points><points label="2" occluded="0" outside="1" points="9,9"></points></skeleton>
    <skeleton label="bee" group_id="2"><points label="2" occluded="0" outside="0" points="3,4"/></skeleton>
    <box label="bee" xtl="1" ytl="2" xbr="11" ybr="22" group_id="2"/>"""
    first, second = read(tmp_path, image(body))
    assert (first.names, first.order, first.absent, first.label) == (("1",), ("2", "1"), ("2",), "bee")
    assert first.visible is not None
    assert (first.visible.tolist(), first.box, second.box) == ([False], None, (1, 2, 10, 20))
    assert (second.keypoints.tolist(), second.size) == ([[3, 4]], (100, 50))


def test_one_element_with_all_points_or_one_for_each(tmp_path: Path) -> None:
    one = '<box label="tool" xtl="0" ytl="0" xbr="9" ybr="9"/><points label="tool" points="1,2;3,4;5,6"/>'
    each = '<points label="tail" points="1,2"/><points label="nose" points="3,4"/><polyline label="" points="1,2;3,4"/>'
    first, second, empty = read(tmp_path, image(one) + image(each, "d/b.jpg") + image("", "c.jpg"))
    assert (first.names, first.label, first.box) == (("1", "2", "3"), "tool", (0, 0, 9, 9))
    assert (second.names, second.image, second.keypoints.tolist()) == (("tail", "nose"), "d/b.jpg", [[1, 2], [3, 4]])
    assert (empty.image, empty.names) == ("c.jpg", ())


def test_points_without_identity_are_no_landmarks(tmp_path: Path) -> None:
    body = '<points label="point" points="1,2"/><points label="point" points="3,4"/>'
    with pytest.warns(UserWarning, match="4 points share their label with others of their photograph"):
        found = read(tmp_path, image(body) + image(body, "b.jpg"))
    assert [(i.image, i.names) for i in found] == [(name, ("point",)) for name in ("a.jpg", "a.jpg", "b.jpg", "b.jpg")]


def test_subsets_and_video(tmp_path: Path) -> None:
    point = '<points label="nose" points="1,2"/>'
    found = read(
        tmp_path, image(point, more='subset="Train"') + image(point, more='subset="Test"') + image(point, "b.jpg")
    )
    assert [(i.image, i.split) for i in found] == [("Train/a.jpg", "train"), ("Test/a.jpg", "test"), ("b.jpg", "")]
    track = """<track id="3" label="bee"><skeleton frame="1"><points label="1" outside="0" points="1,2"/></skeleton>
    <skeleton frame="0"><points label="2" outside="0" points="3,4"/></skeleton></track>"""
    first, second = read(tmp_path, track)
    assert [(i.image, i.object, i.names, i.label) for i in (first, second)] == [
        ("0", "3", ("2",), "bee"), ("1", "3", ("1",), "bee"),
    ]  # fmt: skip


def test_what_is_written_has_all_landmarks_and_no_code(tmp_path: Path) -> None:
    item = Annotation('a"<&.jpg', ("<b>",), np.array([[1.0, 2.0]]), label='"&', size=(9, 9), absent=("tail",))
    annotations.write(tmp_path / "a.xml", [item], "cvat")
    (again,) = annotations.read(tmp_path / "a.xml")
    assert (again.image, again.names, again.label) == (item.image, item.names, item.label)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<annotations>", "is not an XML file that can be read"),
        ("<View><KeyPointLabels/></View>", "it is a labelling configuration"),
        ("<other/>", "it is <other>; expected the <annotations> of CVAT"),
        ("<annotations/>", "has no keypoints"),
        (
            '<annotations><image name="a"><points label="x" points="1,2,3"/></image></annotations>',
            "the points are '1,2,3'",
        ),
        ('<annotations><image name="a"><points label="x" points="1,z"/></image></annotations>', "'z' is no pixel"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(DataError, match=sentence):
        annotations.read(tmp_path / "a.xml")
