"""From an annotated object to its crop: read, warp, cut out and resize, for the cache and for looking at."""

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from normmatch.errors import DataError
from normmatch.io import read_image

if TYPE_CHECKING:  # its file needs torch, which cropping does not
    from normmatch.data.pairs import AnnotatedObject

Box = tuple[float, float, float, float]  # xmin, ymin, width, height


def read_crop(item: "AnnotatedObject") -> tuple[Image.Image, Box]:
    """The object's upright, warped image, and its box clipped to that image (xmin, ymin, width, height)."""
    image = Image.fromarray(read_image(item.image))
    if item.homography is not None:
        image = _warp(image, item)
    crop = clip_box(item.box or (0.0, 0.0, *image.size), image.size)
    if crop is None:
        raise DataError(
            f"The box {item.box} (xmin, ymin, width, height) of a {item.label} in {item.image} covers less than one "
            f"pixel of the image, which has {image.width} x {image.height}."
        )
    return image, crop


def clip_box(box: Box, size: tuple[int, int]) -> Box | None:
    """The part of a box that lies in an image of size (width, height); None where it covers less than one pixel."""
    x, y, width, height = box
    x0, y0 = max(x, 0.0), max(y, 0.0)
    width, height = min(x + width, size[0]) - x0, min(y + height, size[1]) - y0
    if not (width >= 1 and height >= 1):  # also when a number is not finite
        return None
    return float(x0), float(y0), float(width), float(height)


def resize_crop(image: Image.Image, crop: Box, size: tuple[int, int]) -> Image.Image:
    """Crop and resize in one antialiased step, to fractions of a pixel."""
    x, y, width, height = crop
    edges = (x, y, min(x + width, image.width), min(y + height, image.height))  # the sum may round up past the edge
    return image.resize(size, Image.Resampling.BICUBIC, box=edges)


def crop_keypoints(keypoints: np.ndarray, crop: Box, size: tuple[int, int]) -> np.ndarray:
    """Keypoints (K, 2) of the image in pixels of the resized crop: x -> (x - xmin) * size / width."""
    x, y, width, height = crop
    moved = (np.asarray(keypoints, dtype=np.float64) - (x, y)) * (size[0] / width, size[1] / height)
    return moved.astype(np.float32)


def _warp(image: Image.Image, item: "AnnotatedObject") -> Image.Image:
    """Warp by the homography into an image of the same size, bilinearly, black outside."""
    try:
        inverse = np.linalg.inv(np.asarray(item.homography, dtype=np.float64))  # (3, 3)
    except np.linalg.LinAlgError:
        inverse = np.full((3, 3), np.nan)
    if not np.isfinite(inverse).all() or inverse[2, 2] == 0:
        raise DataError(f"The homography of {item.image} cannot be inverted; expected an invertible 3 x 3 matrix.")
    # Pillow asks where each output pixel comes from, with centres at +0.5 as ours, and takes the last entry to be 1.
    coefficients = (inverse / inverse[2, 2]).ravel()[:8].tolist()
    return image.transform(image.size, Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BILINEAR)
