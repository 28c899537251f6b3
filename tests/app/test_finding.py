"""What the page of two pictures is answered after a click: as the matcher says, and one sentence for bad requests."""

import json
from typing import Any

import pytest

from normmatch import Matcher
from normmatch.app.finding import MAX_REFERENCES, locate_pictures
from normmatch.app.parcel import File
from normmatch.errors import NormMatchError
from normmatch.matching.samples import find_samples
from tests.app.conftest import Stub, encoded

CAT, RACCOON = (File(sample.path.name, sample.path.read_bytes()) for sample in find_samples()[:2])
POINTS = [[317, 136], [172, 114], [266, 241]]


def asked(*keypoints: Any, **more: Any) -> dict[str, Any]:
    return {"references": [{"keypoints": points, "box": None} for points in keypoints], "box": None, **more}


def test_pictures_points_boxes_and_looks_reach_the_matcher() -> None:
    stub = Stub()
    question = asked(POINTS, looks=1, box=[250, 10, 430, 400])
    question["references"][0]["box"] = [0, 0, 400, 300]
    answer = locate_pictures(stub, [CAT, RACCOON], question)
    ((image, points, box),) = stub.references
    assert (image.shape, points, box) == ((300, 451, 3), POINTS, [0, 0, 400, 300])
    assert stub.given == ([[250, 10, 430, 400]], {"looks": 1})
    assert answer["keypoints"][0] == pytest.approx([317 / 451 * 720, 136 / 300 * 540], abs=0.01)
    assert answer["scores"] == [0.9, 0.6, 0.9]
    assert json.loads(json.dumps(answer)) == answer


def test_a_reference_may_lack_a_point() -> None:
    stub = Stub()
    files = [File("a.png", encoded(100, 50)), File("b.png", encoded(100, 50)), File("c.png", encoded(200, 100))]
    answer = locate_pictures(stub, files, asked([[10, 10], None], [[10, 10], [30, 20]]))
    assert answer["keypoints"] == [[20, 20], [60, 40]]


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({}, "The page sent a request that cannot be read"),
        ({"references": [1]}, "The page sent a request that cannot be read"),
        ({**asked(POINTS), "looks": "two"}, "The page sent a request that cannot be read"),
        (asked(), "The page sent 2 pictures with points on 0; expected 1 to 12 references and one picture more"),
        (asked(*[POINTS] * (MAX_REFERENCES + 1)), "The page sent 2 pictures with points on 13"),
        (asked([]), "cat.jpg has no points; click on it to place some"),
        (asked([None]), "cat.jpg has no points"),
        (asked([[1, 1]] * 501), "cat.jpg has 501 points; expected at most 500"),
        (asked([[1, float("inf")]]), "cat.jpg has points that are no pairs of numbers"),
        (asked([[1, 1]], box=[1, 2]), "The box of raccoon.jpg is none; expected x, y, width and height"),
        (asked([[9000, 1]]), "The keypoint number 0 of reference 0 is at (9000, 1), far outside the picture"),
        (asked(POINTS, looks=3), "looks is 3; expected 1 or 2"),
    ],
)
def test_requests_that_cannot_be_met(matcher: Matcher, question: Any, sentence: str) -> None:
    with pytest.raises(NormMatchError) as error:
        locate_pictures(matcher, [CAT, RACCOON], question)
    assert str(error.value).startswith(sentence)
