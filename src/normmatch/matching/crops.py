"""From a photograph and its points to what the network sees: a square of pixels, points in it. No torch here."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from normmatch.errors import InputError
from normmatch.geometry import Box, clip_box, crop_keypoints, resize_crop
from normmatch.io import MAX_PIXELS, as_array, read_image, rgb_array

MAX_POINTS = 2048  # in an image: the graph's arrays grow with its square
MIN_SIDE = 8  # pixels of the image or box: less shows nothing that could be matched
OUTSIDE = 0.25  # how far beyond its border, as a share of the image or box, a keypoint may lie
EXPECTED = "a path, a PIL image, a numpy array (H, W, 3) of uint8 or floats in [0, 1], or a tensor (3, H, W)"

ViewKey = tuple[bytes, bytes]


@dataclass(frozen=True, eq=False)
class Square:
    """An image, or its box, as the network sees it."""

    pixels: np.ndarray  # (3, S, S) uint8
    key: bytes  # tells equal pixels
    crop: Box  # what it shows, in pixels of the image
    name: str  # what messages call the image


@dataclass(frozen=True, eq=False)
class View:
    """A square with keypoints."""

    square: Square
    keypoints: np.ndarray  # (N, 2) float32, in pixels of the square

    @property
    def key(self) -> ViewKey:
        """Tells equal pixels with equal keypoints."""
        return self.square.key, self.keypoints.tobytes()


def make_view(image: Any, keypoints: Any, box: Any, size: int, name: str) -> View:
    """Crop and resize an image to a square of `size` pixels, and move its keypoints along; see the two steps."""
    return place_points(keypoints, make_square(image, box, size, name))


def make_square(image: Any, box: Any, size: int, name: str) -> Square:
    """Crop and resize an image to a square of `size` pixels.

    Args:
        image: what `load_image` takes.
        box: xmin, ymin, width and height of the object in pixels of the upright image, or None for the whole image.
        size: side of the square.
        name: what messages call the image; a file is called by its path.
    """
    name = str(image) if isinstance(image, str | Path) else name
    array = load_image(image, name)
    crop = _crop(box, (array.shape[1], array.shape[0]), name)
    square = np.asarray(resize_crop(Image.fromarray(array), crop, (size, size)))  # (S, S, 3)
    pixels = np.ascontiguousarray(square.transpose(2, 0, 1))  # (3, S, S)
    return Square(pixels, hashlib.blake2b(pixels.data).digest(), crop, name)


def place_points(keypoints: Any, square: Square) -> View:
    """Move keypoints along with their image: (N, 2) xy in its pixels; an array, a tensor or a list; may be empty."""
    points = _points(keypoints, square.crop, square.name)
    _, height, width = square.pixels.shape
    return View(square, crop_keypoints(points, square.crop, (width, height)))


def load_image(image: Any, name: str = "image") -> np.ndarray:
    """An image of any kind as (H, W, 3) uint8 RGB, upright: files and PIL images are turned as their EXIF data say."""
    if isinstance(image, str | Path):
        return read_image(image)
    if isinstance(image, Image.Image):
        _check_size(*image.size, name)
        try:
            return rgb_array(ImageOps.exif_transpose(image))
        except (OSError, SyntaxError, ValueError) as error:  # a file that PIL opened, and now fails to decode
            raise InputError(f"{name} cannot be decoded ({error}); expected an undamaged image.") from error
    array = as_array(image)
    if hasattr(image, "detach") and array.ndim == 3:  # a tensor
        array = array.transpose(1, 2, 0)  # (H, W, 3)
    if array.ndim == 2:
        array = np.broadcast_to(array[:, :, None], (*array.shape, 3))  # grey; not copied before its size is checked
    if array.ndim != 3 or array.shape[2] != 3 or (array.dtype != np.uint8 and array.dtype.kind != "f"):
        kind = f"{array.dtype} of shape {array.shape}" if array.dtype != object else f"a {type(image).__name__}"
        raise InputError(f"{name} is {kind}; expected {EXPECTED}.")
    _check_size(array.shape[1], array.shape[0], name)
    return np.ascontiguousarray(array) if array.dtype == np.uint8 else _to_bytes(array, name)


def _to_bytes(array: np.ndarray, name: str) -> np.ndarray:
    """Floats in [0, 1] as uint8, which is what the network was trained on."""
    low, high = float(array.min()), float(array.max())
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # also when one is NaN
        raise InputError(f"{name} has floats from {low:.3g} to {high:.3g}; expected them in [0, 1], or uint8.")
    return np.rint(array.clip(0, 1) * 255).astype(np.uint8)


def _check_size(width: int, height: int, name: str) -> None:
    if width * height == 0:
        raise InputError(f"{name} has {width} x {height} pixels; expected at least {MIN_SIDE} a side.")
    if width * height > MAX_PIXELS:
        raise InputError(
            f"{name} has {width} x {height} pixels, more than the {MAX_PIXELS:,} that can be read; make it smaller."
        )


def _crop(box: Any, size: tuple[int, int], name: str) -> Box:
    """The part of the image that is looked at."""
    if box is None:
        if min(size) < MIN_SIDE:
            raise InputError(f"{name} has {size[0]} x {size[1]} pixels; expected at least {MIN_SIDE} a side.")
        return 0.0, 0.0, float(size[0]), float(size[1])
    values = _floats(box)
    if values is None or values.shape != (4,):
        raise InputError(f"The box of {name} is {box!r}; expected xmin, ymin, width and height in pixels.")
    x, y, width, height = values.tolist()
    crop = clip_box((x, y, width, height), size)
    if crop is None or min(crop[2:]) < MIN_SIDE:
        raise InputError(
            f"The box of {name}, {x:g}, {y:g}, {width:g}, {height:g} (xmin, ymin, width, height), covers less than "
            f"{MIN_SIDE} x {MIN_SIDE} pixels of the image, which has {size[0]} x {size[1]}."
        )
    return crop


def _points(keypoints: Any, crop: Box, name: str) -> np.ndarray:
    """Checked keypoints (N, 2) float64 in pixels of the image."""
    points = _floats(keypoints)
    if points is not None and points.size == 0:
        return np.zeros((0, 2))
    if points is None or points.ndim != 2 or points.shape[1] != 2:
        shape = "no numbers" if points is None else f"of shape {points.shape}"
        raise InputError(f"The keypoints of {name} are {shape}; expected (N, 2), x and y in pixels.")
    if len(points) > MAX_POINTS:
        raise InputError(f"{name} has {len(points):,} keypoints; expected at most {MAX_POINTS:,}.")
    x, y, width, height = crop
    beyond = np.abs((points - (x, y)) / (width, height) - 0.5).max(1)  # 0.5 is the border
    wrong = ~(beyond <= 0.5 + OUTSIDE)  # also when a coordinate is NaN
    if wrong.any():
        k = int(wrong.argmax())
        px, py = points[k].tolist()
        where = f"{width:g} x {height:g} pixels from ({x:g}, {y:g})" if x or y else f"{width:g} x {height:g} pixels"
        raise InputError(
            f"The keypoint number {k} of {name} is at ({px:g}, {py:g}), far outside the picture or box of {where}; "
            "expected finite coordinates inside it."
        )
    return points


def _floats(values: Any) -> np.ndarray | None:
    """The values as float64; None where they are no numbers."""
    try:
        return as_array(values).astype(np.float64)
    except (TypeError, ValueError):
        return None
