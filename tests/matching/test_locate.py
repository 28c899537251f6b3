"""Landmarks of one photograph, found in others."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch.errors import NormMatchError
from normmatch.matching.given import Reference
from normmatch.matching.landmarks import Landmarks
from normmatch.matching.locate import locate, locate_many
from normmatch.matching.sight import Sight
from tests.matching.locating_scene import FakeEncoder, photograph, points

FAKE = FakeEncoder()


def test_in_the_same_photograph_points_are_where_they_were() -> None:
    image, places = photograph(0), points(0, 40)
    found = locate(image, image, places, encoder=FakeEncoder())
    assert (np.linalg.norm(found.keypoints - places, axis=1) < 4).mean() >= 0.95
    assert found.scores.min() > 0.2
    assert (found.visible >= found.scores).all()
    assert (found.spread > 0).all()


@pytest.mark.parametrize("looks", [1, 2])
def test_in_boxes_of_two_sizes(looks: Any) -> None:
    image, places = photograph(1), points(1, 10)
    larger = np.asarray(Image.fromarray(image).resize((360, 300), Image.Resampling.BICUBIC))
    found = locate(
        image, larger, places, (20, 20, 200, 170), (30, 30, 300, 255), encoder=FakeEncoder(), looks=looks
    )  # fmt: skip
    assert np.linalg.norm(found.keypoints - 1.5 * places, axis=1).max() < (6 if looks == 2 else 9)
    assert found.box == (30, 30, 300, 255)


def test_an_object_is_found_in_a_larger_photograph() -> None:
    image, places = photograph(2), points(2, 10)
    scene = photograph(3, 400, 330, 4)
    scene[90:290, 120:360] = image
    found = locate(image, scene, places, encoder=FakeEncoder())
    assert np.median(np.linalg.norm(found.keypoints - places - (120, 90), axis=1)) < 12


def test_several_references_and_a_missing_landmark() -> None:
    image, places = photograph(4), points(4, 6)
    first, second = places.copy(), places.copy()
    first[0] = second[5] = np.nan
    references = [Reference(image, first), Reference(image, second)]
    (found,) = locate_many(references, [image], encoder=FakeEncoder())
    assert np.linalg.norm(found.keypoints - places, axis=1).max() < 6


def test_many_are_a_generator_and_each_is_encoded_once() -> None:
    encoder, places = FakeEncoder(), points(5, 4)
    images = [photograph(5 + i) for i in range(6)]
    many = locate_many([Reference(images[0], places, (0, 0, 240, 200))], images, [(0, 0, 240, 200)] * 6,
                       encoder=encoder, looks=1)  # fmt: skip
    assert encoder.seen == 0
    assert len(list(many)) == 6
    assert encoder.seen == 6  # the reference is one of the images


def test_images_may_be_endless() -> None:
    def forever() -> Any:
        while True:
            yield photograph(6)

    many = locate_many([Reference(photograph(6), points(6, 4))], forever(), encoder=FakeEncoder(), looks=1)
    assert np.linalg.norm(next(many).keypoints - points(6, 4), axis=1).max() < 9


def test_the_same_answer_twice() -> None:
    found = [locate(photograph(7), photograph(8), points(7, 5), encoder=FakeEncoder()) for _ in range(2)]
    np.testing.assert_array_equal(found[0].keypoints, found[1].keypoints)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_points(count: int) -> None:
    image, places = photograph(9), points(9, count)
    found = locate(image, image, places, encoder=FakeEncoder())
    assert np.linalg.norm(found.keypoints - places, axis=1).max() < 6


def test_two_thousand_points() -> None:
    image, places = photograph(10), points(10, 2000)  # more than decide together
    found = locate(image, image, places, encoder=FakeEncoder(), looks=1)
    assert np.median(np.linalg.norm(found.keypoints - places, axis=1)) < 6


@pytest.mark.parametrize("image", [np.zeros((200, 240, 3), np.uint8), np.zeros((1, 1, 3), np.uint8), photograph(99)])
def test_where_there_is_nothing_scores_are_low(image: np.ndarray) -> None:
    found = locate(photograph(11), image, points(11, 8), encoder=FakeEncoder())
    assert np.isfinite(found.keypoints).all()
    assert found.scores.mean() < 0.2


def mistake(**changes: Any) -> Callable[[], Any]:
    given: dict[str, Any] = {
        "image0": photograph(0), "image1": photograph(1), "keypoints0": points(0, 4), "encoder": FakeEncoder(),
    }  # fmt: skip
    return lambda: locate(**given | changes)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (mistake(keypoints0=np.zeros((0, 2))), "expected (N, 2)"),
        (mistake(keypoints0=[["a", "b"]]), "expected (N, 2)"),
        (mistake(keypoints0=np.zeros((3000, 2))), "at most 2,048"),
        (mistake(keypoints0=[[5000.0, 5.0]]), "far outside the picture"),
        (mistake(keypoints0=[[np.nan, 5.0]]), "in none of the references"),
        (mistake(box1=(0, 0, -5, 5)), "covers less than one pixel"),
        (mistake(box1=(900, 0, 5, 5)), "covers less than one pixel"),
        (mistake(box1=(1, 2, 3)), "expected xmin"),
        (mistake(looks=3), "expected 1 or 2"),
        (mistake(image1="nowhere.jpg"), "does not exist"),
        (lambda: next(locate_many([], [photograph(0)], encoder=FakeEncoder())), "no references"),
        (
            lambda: next(
                locate_many(
                    [Reference(photograph(0), points(0, 3)), Reference(photograph(0), points(0, 4))],
                    [photograph(0)],
                    encoder=FakeEncoder(),
                )
            ),
            "have 3 and 4 keypoints",
        ),
        (
            lambda: list(
                locate_many(
                    [Reference(photograph(0), points(0, 3))], [photograph(0)] * 3, [None], encoder=FakeEncoder()
                )
            ),
            "3 images and 1 boxes",
        ),
    ],
)
def test_a_mistake_is_one_sentence(wrong: Callable[[], Any], says: str) -> None:
    with pytest.raises(NormMatchError) as caught:
        wrong()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_references_calibrate_each_other() -> None:
    """Where references never find each other's landmarks, scores fall; where they always do, they rise."""
    places = points(12, 6)
    alike = Landmarks([Reference(photograph(12), places)] * 3, Sight(FakeEncoder()), 1)
    strange = Landmarks([Reference(photograph(20 + i), points(20 + i, 6)) for i in range(3)], Sight(FakeEncoder()), 1)
    alike.calibrate()
    strange.calibrate()
    assert alike.shift > 0 > strange.shift


def test_nothing_here_needs_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import normmatch.matching.locate"
    subprocess.run([sys.executable, "-c", code], check=True)
