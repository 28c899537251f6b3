"""What the page's server answers: right for good input, one sentence for bad, and nothing left behind."""

import base64
import io
import json
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import Matcher
from normmatch.errors import NormMatchError
from normmatch.page import answers
from normmatch.page.answers import describe_picture, match_pictures, read_points_file
from tests.page.conftest import encoded


@pytest.fixture(autouse=True)
def upload_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where uploads lie while they are read; every test ends with it empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def request(points0: Any, points1: Any, box: Any = None, one_to_one: bool = False) -> str:
    sides = [{"name": f"{k}.png", "keypoints": xy, "box": box} for k, xy in enumerate((points0, points1))]
    return json.dumps({"sides": sides, "one_to_one": one_to_one})


def header_only(width: int, height: int) -> bytes:
    """A PNG that says how large it is and has no pixels."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return header + struct.pack(">I", 4) + b"IDAT" + b"none" + struct.pack(">I", zlib.crc32(b"IDATnone"))


# ---- pictures ----


def test_a_picture_is_shown_upright_and_small() -> None:
    image = Image.new("RGB", (4000, 100), "red")
    exif = image.getexif()
    exif[0x0112] = 6  # a quarter turn
    file = io.BytesIO()
    image.save(file, "JPEG", exif=exif)
    answer = describe_picture(file.getvalue(), "C:\\photos\\tall.jpg")
    assert (answer["name"], answer["width"], answer["height"]) == ("tall.jpg", 100, 4000)
    preview = base64.b64decode(answer["preview"].removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(preview)) as shown:
        assert shown.size == (40, answers.PREVIEW)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"hello", "own.jpg is not a readable image"),
        (b"", "own.jpg is empty"),
        (encoded(320, 240)[:200], "own.jpg is damaged or cut off"),
        (header_only(40_000, 30_000), "own.jpg has more than the 50,000,000 pixels"),
        (header_only(40_000, 1_500), "own.jpg has 40000 x 1500 pixels, more than the 50,000,000"),
        (b"\x00" * (answers.MAX_FILE + 1), "own.jpg has 25 MB; expected at most 25 MB"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "own.jpg is a EPS file"),
    ],
    ids=["text", "empty", "cut off", "huge", "40,000 pixels wide", "too large a file", "a program"],
)
def test_what_is_no_picture(data: bytes, sentence: str, upload_folder: Path) -> None:
    with pytest.raises(NormMatchError) as error:
        describe_picture(data, "../own.jpg")
    assert sentence in str(error.value)
    assert str(upload_folder) not in str(error.value)


def test_names_of_files_are_names_only(upload_folder: Path) -> None:
    assert answers.file_name("../../etc/passwd") == "passwd"
    assert answers.file_name("a\\b\n.png") == "b.png"
    assert answers.file_name("x" * 500 + ".png") == "x" * 76 + ".png"
    assert answers.file_name("") == "the picture"


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
        files.append(file.getvalue())
    for one_to_one in (False, True):
        answer = match_pictures(matcher, tuple(files), request(points0, points1, [2, 2, 70, 55], one_to_one))
        box = (2, 2, 70, 55)
        expected = matcher.match(*images, points0, points1, box0=box, box1=box, one_to_one=one_to_one, min_score=0)
        assert answer["matches0"] == expected["matches0"].tolist()
        np.testing.assert_allclose(answer["matching_scores0"], expected["matching_scores0"], atol=1e-4)
        np.testing.assert_allclose(answer["similarity"], expected["similarity"], atol=1e-3)
        assert answer["min_score"] == matcher.backend.min_score
        assert json.loads(json.dumps(answer)) == answer


def test_one_point_matches_one_point(matcher: Matcher, picture: bytes) -> None:
    assert match_pictures(matcher, (picture, picture), request([[10, 10]], [[20, 20]]))["matches0"] == [0]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (request([], [[1, 1]]), "The first picture has no points; click on it"),
        (request([[1, 1]], []), "The second picture has no points; click on it"),
        (request([[1, 1]] * 2000, [[1, 1]]), "The first picture has 2,000 points; expected at most 500"),
        (request([[1, float("nan")]], [[1, 1]]), "The keypoint number 0 of the first picture is at (1, nan)"),
        (request([[1, 1]], [[9000, 1]]), "The keypoint number 0 of the second picture is at (9000, 1), far outside"),
        (request([[1, 1, 1]], [[1, 1]]), "The first picture has points that are no pairs of numbers"),
        (request([["a", "b"]], [[1, 1]]), "The first picture has points that are no pairs of numbers"),
        (request([[1, 1]], [[1, 1]], box=[5, 5, 2, 2]), "The box of the first picture"),
        (request([[1, 1]], [[1, 1]], box="all"), "The box of the first picture"),
        ("{", "The page sent a request that cannot be read"),
        ("[]", "The page sent a request that cannot be read"),
        ('{"sides": [], "one_to_one": true}', "The page sent 0 pictures; expected 2"),
        ("[" * 100_000, "The page sent a request that cannot be read"),
    ],
)
def test_requests_that_cannot_be_met(matcher: Matcher, picture: bytes, asked: str, sentence: str) -> None:
    with pytest.raises(NormMatchError) as error:
        match_pictures(matcher, (picture, picture), asked)
    assert str(error.value).startswith(sentence)


def test_a_picture_of_one_pixel(matcher: Matcher, picture: bytes) -> None:
    with pytest.raises(NormMatchError, match="The first picture has 1 x 1 pixels; expected at least 8 a side"):
        match_pictures(matcher, (encoded(1, 1), picture), request([[0.5, 0.5]], [[1, 1]]))
