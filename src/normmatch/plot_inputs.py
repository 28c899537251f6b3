"""What `viz` is handed, as what it draws: images, keypoints, matches, names and colours; all else is refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from normmatch.checks import check_list, shown
from normmatch.errors import InputError, readable
from normmatch.io import MAX_PIXELS, as_array, as_numbers

Array = Any  # of numpy or torch


def read_image(image: Array, what: str) -> np.ndarray:
    """The image as (H, W, 3), uint8 or float in [0, 1]."""
    array = as_array(image, what)
    if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] != 3:
        array = array.transpose(1, 2, 0)  # (H, W, 3)
    known = array.dtype == np.uint8 or np.issubdtype(array.dtype, np.floating)
    if array.ndim != 3 or array.shape[2] != 3 or array.size == 0 or not known:
        raise InputError(
            f"{what} has the shape {array.shape} and type {array.dtype}; expected (H, W, 3) uint8 or (3, H, W) floats."
        )
    if array.size > 3 * MAX_PIXELS or not np.isfinite(array).all():
        raise InputError(f"{what} has more than {MAX_PIXELS:,} pixels, or values that are not finite.")
    return array if array.dtype == np.uint8 else np.clip(array.astype(np.float32), 0, 1)


def read_points(keypoints: Array, what: str) -> np.ndarray:
    points = as_numbers(keypoints, what)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise InputError(f"{what} has the shape {points.shape}; expected (N, 2) with finite coordinates.")
    return points


def read_indices(values: Array, what: str, count: int, limit: int) -> np.ndarray:
    """Checked matches (count,), each -1 or an index below `limit`."""
    indices = as_array(values, what)
    if indices.shape != (count,) or not np.issubdtype(indices.dtype, np.integer):
        raise InputError(f"{what} has the shape {indices.shape} and type {indices.dtype}; expected {count} integers.")
    if count and (indices.min() < -1 or indices.max() >= limit):
        raise InputError(f"{what} has values from {indices.min()} to {indices.max()}; expected -1 to {limit - 1}.")
    return indices


def read_list(what: str, values: Sequence[Any] | None, count: int, of: str) -> list[Any] | None:
    if values is None:
        return None
    found = check_list(values, what)
    if len(found) != count:
        raise InputError(f"There are {len(found)} {what} for {count} {of}; expected as many.")
    return found


def read_texts(what: str, values: Sequence[Any] | None, count: int, of: str) -> list[str] | None:
    """Names as they can be drawn: characters that no font has are escaped."""
    words = read_list(what, values, count, of)
    for word in words or ():
        if not isinstance(word, str):
            raise InputError(f"One of the {what} is {shown(word)}; expected text.")
    return words and [readable(word) for word in words]


def check_color(color: Any, count: int) -> Any:
    """One colour, or a list of `count`."""
    from matplotlib.colors import to_rgba_array

    try:
        found = len(to_rgba_array(color))
    except Exception:  # of numpy, of matplotlib
        found = -1
    if found != count and not (found == 1 and isinstance(color, str)):
        raise InputError(f"The colour is {shown(color)}; expected a colour, or a list of {count}.")
    return color
