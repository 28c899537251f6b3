"""What the page's server answers: right for good input, one sentence for bad."""

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import Matcher
from normmatch.app import answers
from normmatch.app.answers import locate_picture, match_pictures
from normmatch.app.parcel import File
from normmatch.errors import NormMatchError
from tests.app.client import question
from tests.app.conftest import Stub, encoded


@pytest.fixture(autouse=True)
def upload_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where points files lie while they are read; every test ends with it empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def read_points_file(data: bytes, name: str) -> dict[str, Any]:
    return answers.read_points_file(File(name, data))


# ---- points files ----


def test_points_files_of_each_kind() -> None:
    ours = {"images": [{"image": "a.png", "keypoints": [{"name": "eye", "x": 3, "y": 4}], "box": [0, 0, 9, 9]}]}
    expected = {"image": "a.png", "keypoints": [{"name": "eye", "x": 3.0, "y": 4.0}]}
    [entry] = read_points_file(json.dumps(ours).encode(), "points.json")["images"]
    assert entry == {**expected, "box": [0.0, 0.0, 9.0, 9.0]}
    assert read_points_file(b"image,name,x,y\na.png,eye,3,4\n", "points.csv")["images"] == [expected]
    coco = {
        "images": [{"id": 1, "file_name": "a.png", "width": 9, "height": 9}],
        "categories": [{"id": 1, "name": "cat", "keypoints": ["eye"]}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "keypoints": [3, 4, 2], "bbox": [0, 0, 9, 9]}],
    }
    [entry] = read_points_file(json.dumps(coco).encode(), "coco.json")["images"]
    assert (entry["image"], entry["keypoints"][0]["name"]) == ("a.png", "eye")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"{", "p.json"),
        (b"", "p.json"),
        (b"[1, 2]", "p.json"),
        (b'{"images": []}', "p.json"),
        (b'{"images": [{"image": "a", "keypoints": [{"name": "n", "x": NaN, "y": 1}]}]}', "p.json"),
        (b"image,name,x,y\na,n,1,2\na,n,3,4\n", "p.csv"),
        (b"image,name,x,y\na,n,far,2\n", "p.csv"),
        (b"\xff\xfe\x00", "p.csv"),
        (b"points", "p.txt"),
        (b" " * (answers.MAX_POINTS_FILE + 1), "p.json"),
        (b"[" * 100_000, "p.json"),
    ],
    ids=[
        "cut off",
        "empty",
        "a list",
        "no image",
        "NaN",
        "twice a name",
        "no number",
        "no text",
        "other",
        "huge",
        "deep",
    ],
)
def test_points_files_that_cannot_be_read(data: bytes, name: str, upload_folder: Path) -> None:
    with pytest.raises(NormMatchError) as error:
        read_points_file(data, name)
    assert "p." in str(error.value)
    assert str(upload_folder) not in str(error.value)
    assert "\n" not in str(error.value)


# ---- matching ----


def test_matches_agree_with_the_matcher(matcher: Matcher) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (60, 80, 3), dtype=np.uint8) for _ in range(2)]
    points0, points1 = [[10, 10], [40, 50], [70, 20]], [[20, 20], [60, 30], [30, 55], [5, 40]]
    files = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(File("a.png", file.getvalue()))
    box = [2, 2, 70, 55]
    for one_to_one in (False, True):
        asked = question(points0, points1, one_to_one=one_to_one)
        for side in asked["sides"]:
            side["box"] = box
        answer = match_pictures(matcher, files, asked)
        expected = matcher.match(*images, points0, points1, box0=box, box1=box, one_to_one=one_to_one, min_score=0)
        assert answer["matches0"] == expected["matches0"].tolist()
        np.testing.assert_allclose(answer["matching_scores0"], expected["matching_scores0"], atol=1e-4)
        np.testing.assert_allclose(answer["similarity"], expected["similarity"], atol=1e-3)
        assert answer["min_score"] == matcher.backend.min_score
        assert json.loads(json.dumps(answer)) == answer


def test_one_point_matches_one_point(matcher: Matcher, picture: bytes) -> None:
    files = [File("a.png", picture)] * 2
    assert match_pictures(matcher, files, question([[10, 10]], [[20, 20]]))["matches0"] == [0]


def boxed(box: Any) -> dict[str, Any]:
    return {"sides": [{"keypoints": [[1, 1]], "box": box}] * 2, "one_to_one": False}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (question([], [[1, 1]]), "The first picture has no points; click on it"),
        (question([[1, 1]], []), "The second picture has no points; click on it"),
        (question([[1, 1]] * 2000, [[1, 1]]), "The first picture has 2,000 points; expected at most 500"),
        (question([[1, float("nan")]], [[1, 1]]), "The first picture has points that are no pairs of numbers"),
        (question([[1, 1]], [[9000, 1]]), "The keypoint number 0 of the second picture is at (9000, 1), far outside"),
        (question([[1, 1, 1]], [[1, 1]]), "The first picture has points that are no pairs of numbers"),
        (question([["1", "2"]], [[1, 1]]), "The first picture has points that are no pairs of numbers"),
        (boxed([5, 5, 2, 2]), "The box of the first picture, 5, 5, 2, 2 (xmin, ymin, width, height), covers less"),
        (boxed("all"), "The box of the first picture is none; expected x, y, width and height"),
        (boxed([0, 0, float("inf"), 5]), "The box of the first picture is none; expected x, y, width and height"),
        ({}, "The page sent a request that cannot be read"),
        ({"sides": [], "one_to_one": True}, "The page sent 0 sides; expected 2"),
        ({**boxed(None), "one_to_one": 1}, "The page sent a request that cannot be read"),
    ],
)
def test_requests_that_cannot_be_met(matcher: Matcher, picture: bytes, asked: Any, sentence: str) -> None:
    with pytest.raises(NormMatchError) as error:
        match_pictures(matcher, [File("a.png", picture)] * 2, asked)
    assert str(error.value).startswith(sentence)


def test_the_sentence_names_the_picture_that_is_wrong(matcher: Matcher, picture: bytes) -> None:
    """And only that: a file that is called as our own names for the two is not confused with them."""
    files, asked = [File("a.png", picture), File("image0.png", encoded(1, 1))], question([[1, 1]], [[0.5, 0.5]])
    with pytest.raises(NormMatchError, match="^The second picture has 1 x 1 pixels; expected at least 8 a side"):
        match_pictures(matcher, files, asked)
    with pytest.raises(NormMatchError, match="^image0.png is not a readable image"):
        match_pictures(matcher, [files[0], File("image0.png", b"x")], asked)


# ---- locating ----


def looked_for(*keypoints: Any, **more: Any) -> dict[str, Any]:
    return {"references": [{"keypoints": points, "box": None} for points in keypoints], "box": None, **more}


def test_pictures_points_boxes_and_looks_reach_the_matcher() -> None:
    stub, files = Stub(), [File("a.png", encoded(100, 50)), File("b.png", encoded(200, 100))]
    asked = looked_for([[10, 10], [30, 20]], looks=1)
    asked["references"][0]["box"], asked["box"] = [0, 0, 90, 40], [5, 5, 100, 50]
    answer = locate_picture(stub, files, asked)
    ((image, points, box),) = stub.references
    assert (image.shape, points, box) == ((50, 100, 3), [[10, 10], [30, 20]], [0, 0, 90, 40])
    assert stub.given == ([[5, 5, 100, 50]], {"looks": 1})
    assert (answer["keypoints"], answer["scores"]) == ([[20, 20], [60, 40]], [0.9, 0.6])
    assert json.loads(json.dumps(answer)) == answer


def test_a_reference_may_lack_a_point() -> None:
    files = [File("a.png", encoded(100, 50)), File("b.png", encoded(100, 50)), File("c.png", encoded(200, 100))]
    answer = locate_picture(Stub(), files, looked_for([[10, 10], None], [[10, 10], [30, 20]]))
    assert answer["keypoints"] == [[20, 20], [60, 40]]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "The page sent a request that cannot be read"),
        (looked_for(), "The page sent a request that cannot be read"),
        (looked_for([None]), "Reference 1 has no points; click on it to place some"),
        (looked_for([[1, 1]] * 501), "Reference 1 has 501 points; expected at most 500"),
        (looked_for([[1, float("inf")]]), "Reference 1 has points that are no pairs of numbers"),
        (looked_for([[1, 1]], box=[1, 2]), "The box of the picture to search is none; expected x, y, width and height"),
    ],
)
def test_what_cannot_be_looked_for(asked: Any, sentence: str) -> None:
    with pytest.raises(NormMatchError) as error:
        locate_picture(Stub(), [File("a.png", encoded(9, 9))] * 2, asked)
    assert str(error.value).startswith(sentence)
