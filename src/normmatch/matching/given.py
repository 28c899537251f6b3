"""What a user gives: pairs, references, points and boxes, each mistake in one sentence. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from normmatch.checks import check_list, shown
from normmatch.errors import InputError
from normmatch.geometry import MAX_POINTS, Box, clip_box
from normmatch.io import as_numbers

MARGIN = 0.15  # around the landmarks' box, on each side
PAIR = "(image0, image1, keypoints0, keypoints1), which may go on with box0 and box1"
SMALLEST = 0.25  # of the crop's longer side: an object is not taken to be smaller


@dataclass(frozen=True, eq=False)
class Reference:
    """An annotated photograph: a path, a PIL image, an array or a tensor, as `load_image` takes it."""

    image: Any
    keypoints: Any  # (K, 2) xy in pixels, the same landmarks in every reference; NaN where one is not shown
    box: Any = None  # xmin, ymin, width and height of the object in pixels


class Pair(NamedTuple):
    """Two images, their keypoints, and boxes (xmin, ymin, width, height) of the objects if wanted."""

    image0: Any
    image1: Any
    keypoints0: Any
    keypoints1: Any
    box0: Any = None
    box1: Any = None


def as_pair(number: int, given: Any) -> Pair:
    """A tuple as what it stands for."""
    values = check_list(given, f"Pair number {number}", PAIR)
    if not 4 <= len(values) <= 6:
        raise InputError(f"Pair number {number} has {len(values)} parts; expected {PAIR}.")
    return Pair(*values)


def check_flip(flip: Sequence[int] | None, landmarks: int) -> np.ndarray:
    order = np.arange(landmarks) if flip is None else as_numbers(flip, "The numbers of flip")
    if order.ndim != 1 or sorted(order.tolist()) != list(range(landmarks)):
        raise InputError(f"flip is {shown(flip)}; expected each of the numbers 0 to {landmarks - 1} once.")
    return order.astype(int)


def as_reference(given: Any, number: int) -> Reference:
    """A tuple as what it stands for."""
    expected = "(image, keypoints), which may go on with a box"
    values = check_list(given, f"reference {number}", expected)
    if len(values) not in (2, 3):
        raise InputError(f"reference {number} has {len(values)} parts; expected {expected}.")
    return Reference(*values)


def check_references(references: Sequence[Reference]) -> None:
    """Every mistake that can be seen without opening the photographs is one sentence."""
    if not check_list(references, "references"):
        raise InputError("There are no references; expected at least one annotated photograph.")
    for number, one in enumerate(references):
        if not isinstance(one, Reference):
            raise InputError(f"reference {number} is {shown(one)}; expected a Reference.")
    points = [_as_points(one.keypoints, f"reference {number}") for number, one in enumerate(references)]
    counts = sorted({len(item) for item in points})
    if len(counts) > 1:
        raise InputError(
            f"The references have {counts[0]} and {counts[-1]} keypoints; expected the same landmarks in each, NaN "
            "where one is not shown."
        )
    shown_in = np.isfinite(np.stack(points)).all(2).any(0)  # (K,)
    if not shown_in.all():
        raise InputError(
            f"The landmark number {shown_in.argmin()} is in none of the references; expected each in at least one."
        )


def _as_points(keypoints: Any, name: str) -> np.ndarray:
    points = as_numbers(keypoints, f"The keypoints of {name}", "(N, 2), x and y in pixels")
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise InputError(f"The keypoints of {name} have the shape {points.shape}; expected (N, 2), x and y in pixels.")
    if len(points) > MAX_POINTS:
        raise InputError(f"{name} has {len(points):,} keypoints; expected at most {MAX_POINTS:,}.")
    return np.where(np.isfinite(points).all(1, keepdims=True), points, np.nan)


def check_points(keypoints: Any, size: tuple[int, int], name: str) -> np.ndarray:
    """Points (K, 2) of an image so wide and high, NaN where one is not shown."""
    points = _as_points(keypoints, name)
    far = np.flatnonzero((np.abs(points / size - 0.5) > 0.75).any(1))
    if len(far):
        x, y = points[far[0]].tolist()
        raise InputError(
            f"The keypoint number {far[0]} of {name} is at ({x:g}, {y:g}), far outside the picture of "
            f"{size[0]} x {size[1]} pixels; expected coordinates inside it, or NaN."
        )
    return points


def check_box(box: Any, size: tuple[int, int], name: str) -> Box:
    """The part of the box that lies in the image; the whole image without one."""
    if box is None:
        return whole_box(size)
    values = as_numbers(box, f"The numbers of the box of {name}", "xmin, ymin, width and height in pixels")
    if values.shape != (4,):
        raise InputError(f"The box of {name} is {shown(box)}; expected xmin, ymin, width and height in pixels.")
    x, y, width, height = values.tolist()
    clipped = clip_box((x, y, width, height), size) if max(width, height) < 1e9 else None
    if clipped is None:
        raise InputError(
            f"The box of {name}, {x:g}, {y:g}, {width:g}, {height:g} (xmin, ymin, width, height), covers less than one "
            f"pixel of the image, which has {size[0]} x {size[1]}."
        )
    return clipped


def whole_box(size: tuple[int, int]) -> Box:
    return 0.0, 0.0, float(size[0]), float(size[1])


def box_of(points: np.ndarray, size: tuple[int, int]) -> Box:
    """The box of landmarks (K, 2) with its margin, inside the image; the whole image where they tell none."""
    seen = points[np.isfinite(points).all(1)]
    if len(seen) < 3 or np.ptp(seen, 0).min() < 8:
        return whole_box(size)
    low, high = seen.min(0), seen.max(0)
    margin = MARGIN * (high - low)
    low, high = np.maximum(low - margin, 0), np.minimum(high + margin, size)
    if (high - low).min() < 8:
        return whole_box(size)
    return float(low[0]), float(low[1]), float(high[0] - low[0]), float(high[1] - low[1])


def size_of(points: np.ndarray, box: Box) -> float:
    """The longer side of the landmarks' box in pixels, and not much less than that of the crop."""
    seen = points[np.isfinite(points).all(1)]
    return max(float(np.ptp(seen, 0).max()) if len(seen) else 0.0, SMALLEST * max(box[2:]))
