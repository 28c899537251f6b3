"""From photographs and points to crops: what is moved where, and what is refused with one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from normmatch.errors import InputError
from normmatch.geometry import CropWithKeypoints, make_crop, place_keypoints
from normmatch.io import MIN_SIDE, load_image

IMAGE = np.zeros((40, 60, 3), np.uint8)


def crop(image: Any, keypoints: Any, box: Any, size: int, name: str) -> CropWithKeypoints:
    return place_keypoints(keypoints, make_crop(image, box, size, name))


def test_keypoints_move_with_the_pixels() -> None:
    image = IMAGE.copy()
    image[20, 30] = 255
    found = crop(image, [[30.5, 20.5], [0, 0], [60, 40]], None, 120, "image")
    assert found.crop.pixels.shape == (3, 120, 120)
    np.testing.assert_allclose(found.keypoints, [[61, 61.5], [0, 0], [120, 120]])
    brightest = np.argwhere(found.crop.pixels[0] == found.crop.pixels[0].max()).mean(0)[::-1] + 0.5
    np.testing.assert_allclose(brightest, found.keypoints[0], atol=0.6)
    boxed = crop(image, [[30.5, 20.5]], (20, 10, 20, 20), 120, "image")
    np.testing.assert_allclose(boxed.keypoints, [[63, 63]])
    brightest = np.argwhere(boxed.crop.pixels[0] == boxed.crop.pixels[0].max()).mean(0)[::-1] + 0.5
    np.testing.assert_allclose(brightest, [63, 63], atol=0.6)


def test_a_box_is_clipped_to_the_image() -> None:
    whole, larger = (crop(IMAGE, [[6, 4]], box, 32, "image") for box in (None, (-10, -10, 100, 100)))
    np.testing.assert_array_equal(whole.keypoints, larger.keypoints)
    assert whole.crop.key == larger.crop.key


def test_grey_and_transparent_images() -> None:
    grey = np.arange(2400, dtype=np.uint16).reshape(40, 60).astype(np.uint8)
    assert load_image(grey).shape == (40, 60, 3)
    np.testing.assert_array_equal(load_image(Image.fromarray(grey)), load_image(grey))
    assert load_image(Image.new("RGBA", (9, 9), (0, 0, 0, 0))).min() == 255  # on white


BAD_IMAGES: list[tuple[Any, str]] = [
    (np.zeros((3, 40, 60), np.uint8), r"image is uint8 of shape \(3, 40, 60\); expected a path, "),
    (np.zeros((40, 60, 3), np.int64), "image is int64 of shape"),
    (np.zeros((0, 60, 3)), "image has 60 x 0 pixels; expected at least 8 a side"),
    (np.full((40, 60, 3), 255.0), "image has floats from 255 to 255; expected them in"),
    (np.full((40, 60, 3), np.nan), "image has floats from nan to nan"),
    (torch.zeros(40, 60, 3), r"image is float32 of shape \(60, 3, 40\)"),
    (None, "image is a NoneType; expected a path"),
    (["a.jpg"], "image is "),
    (np.zeros((1, 1, 3), np.uint8), "image has 1 x 1 pixels; expected at least 8 a side"),
    (np.broadcast_to(np.uint8(0), (3000, 40_000, 3)), "image has 40000 x 3000 pixels, more than the 100,000,000"),
    (np.broadcast_to(np.float32(0), (3000, 40_000)), "image has 40000 x 3000 pixels"),
]


@pytest.mark.parametrize(("image", "sentence"), BAD_IMAGES)
def test_bad_images(image: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        crop(image, [[1, 1]], None, 32, "image")


BAD_POINTS: list[tuple[Any, str]] = [
    ([[1, 2, 3]], r"The keypoints of image are of shape \(1, 3\); expected \(N, 2\)"),
    ([1, 2], r"of shape \(2,\)"),
    ([["a", "b"]], "are no numbers"),
    ([[1, 2], [3]], "are no numbers"),
    ([[1, 1], [np.nan, 2]], r"keypoint number 1 of image is at \(nan, 2\)"),
    ([[1, 1], [2, np.inf]], r"at \(2, inf\)"),
    ([[1000, 1]], r"at \(1000, 1\), far outside the picture or box of 60 x 40 pixels"),
    (np.zeros((5000, 2)), "image has 5,000 keypoints; expected at most 2,048"),
]


@pytest.mark.parametrize(("keypoints", "sentence"), BAD_POINTS)
def test_bad_points(keypoints: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        crop(IMAGE, keypoints, None, 32, "image")


@pytest.mark.parametrize(
    ("box", "sentence"),
    [
        ((0, 0, 10), "expected xmin, ymin, width and height"),
        ("box", "expected xmin, ymin, width and height"),
        ((0, 0, np.nan, 10), "covers less than 8 x 8 pixels of the image, which has 60 x 40"),
        ((0, 0, -5, 10), "covers less than"),
        ((100, 100, 20, 20), "covers less than"),
        ((0, 0, 3, 20), "covers less than"),
    ],
)
def test_bad_boxes(box: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        crop(IMAGE, [[1, 1]], box, 32, "image")


def test_points_outside_the_box() -> None:
    with pytest.raises(InputError, match=r"box of 10 x 10 pixels from \(20, 20\)"):
        crop(IMAGE, [[21, 21], [50, 21]], (20, 20, 10, 10), 32, "image")


def test_a_pil_image_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    Image.effect_noise((200, 200), 90).save(path)
    path.write_bytes(path.read_bytes()[:4000])
    with Image.open(path) as image, pytest.raises(InputError, match="image0 cannot be decoded"):
        crop(image, [[1, 1]], None, 32, "image0")


def test_a_wide_image_is_matched_in_bounded_memory() -> None:
    found = crop(np.broadcast_to(np.uint8(7), (100, 40_000, 3)), [[39_999, 50]], None, 32, "image")
    np.testing.assert_allclose(found.keypoints, [[32, 16]], atol=0.01)
    assert (found.crop.pixels == 7).all()


def test_messages_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "small.png"
    Image.new("RGB", (1, 1)).save(path)
    with pytest.raises(InputError, match="small.png has 1 x 1 pixels"):
        crop(path, [], None, 32, "image0")
    assert MIN_SIDE == 8
