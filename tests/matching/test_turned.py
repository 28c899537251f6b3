"""Things that lie any way round."""

import numpy as np
import pytest
from PIL import Image

from normmatch.errors import InputError
from normmatch.matching.given import Reference
from normmatch.matching.landmarks import Landmarks
from normmatch.matching.locate import locate_many
from normmatch.matching.sight import Photograph, Sight
from normmatch.matching.turned import Turntable, angle_between
from tests.matching.locating_scene import FakeEncoder, photograph, points


@pytest.mark.parametrize("angle", [0.0, 37.0, 90.0, 200.0])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_point_of_the_turned_square_is_where_it_was(angle: float, mirrored: bool) -> None:
    image = np.zeros((120, 160, 3), np.uint8)
    image[40:46, 90:96] = 255
    turned = Turntable(image, (40, 10, 90, 80)).turn(angle, mirrored)
    y, x = np.argwhere(turned.image[:, :, 0] > 128).mean(0) + 0.5
    np.testing.assert_allclose(turned.back(np.array([[x, y]])), [[93, 43]], atol=0.6)


def test_the_angle_between_two_shapes() -> None:
    shape = points(0, 6)
    turn = np.deg2rad(30)
    turned = 1.3 * shape @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]).T + 5
    assert angle_between(turned, shape, np.ones(6)) == pytest.approx(30)
    assert angle_between(shape[:1], shape[:1], np.ones(1)) == 0


@pytest.mark.parametrize(("angle", "mirrored"), [(90, False), (130, False), (0, True)])
def test_a_turned_thing_is_found(angle: int, mirrored: bool) -> None:
    image, places = photograph(1, 200, 200), points(1, 10, 200, 200)
    view = Turntable(image, (0, 0, 200, 200)).turn(angle, mirrored)
    flip = [1, 0, *range(2, 10)]
    (found,) = locate_many([Reference(image, places)], [view.image], encoder=FakeEncoder(), turned=angle > 0,
                           mirrored=mirrored, flip=flip)  # fmt: skip
    expected = places[flip] if mirrored else places
    assert np.median(np.linalg.norm(view.back(found.keypoints) - expected, axis=1)) < 8


def test_a_wrong_flip_says_so() -> None:
    with pytest.raises(InputError, match="expected each of the numbers 0 to 2 once"):
        next(locate_many([Reference(photograph(0), points(0, 3))], [], encoder=FakeEncoder(), flip=[0, 0, 1]))


def test_upright_photographs_pay_nothing() -> None:
    encoder = FakeEncoder()
    image = Image.fromarray(photograph(2))
    other = photograph(3)
    next(locate_many([Reference(image, points(2, 5), (0, 0, 240, 200))], [other], [(0, 0, 240, 200)],
                     encoder=encoder, looks=1))  # fmt: skip
    assert encoder.seen == 2


@pytest.mark.parametrize("angle", [0, 90])
def test_the_cheap_check(angle: int) -> None:
    image, places = photograph(1, 200, 200), points(1, 10, 200, 200)
    view = Turntable(image, (0, 0, 200, 200)).turn(angle)
    landmarks = Landmarks([Reference(image, places)], Sight(FakeEncoder()), 1)
    assert landmarks.seems_turned(Photograph.of(view.image, "view")) == (angle > 0)
