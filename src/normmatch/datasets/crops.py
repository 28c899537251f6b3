"""From an annotated object to its crop: read, warp, cut out and resize, for the cache and for looking at."""

import numpy as np
from PIL import Image

from normmatch.annotations import Annotation
from normmatch.errors import DataError
from normmatch.geometry import Box, clip_box
from normmatch.io import read_image


def read_crop(item: Annotation) -> tuple[Image.Image, Box]:
    """The object's upright, warped image, and its box clipped to that image (xmin, ymin, width, height)."""
    image = Image.fromarray(read_image(item.path))
    if item.homography is not None:
        image = _warp(image, item)
    crop = clip_box(item.box or (0.0, 0.0, *image.size), image.size)
    if crop is None:
        raise DataError(
            f"The box {item.box} (xmin, ymin, width, height) of a {item.label} in {item.image} covers less than one "
            f"pixel of the image, which has {image.width} x {image.height}."
        )
    return image, crop


def _warp(image: Image.Image, item: Annotation) -> Image.Image:
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
