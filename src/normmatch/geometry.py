"""Geometry of keypoints in numpy: boxes and crops, the Delaunay graph, padding.

Coordinates are x right, y down, in pixels, and the centre of the first pixel is at 0.5: resizing by s maps x to s * x.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from normmatch.checks import shown
from normmatch.errors import InputError
from normmatch.io import MIN_SIDE, as_numbers, load_image

Box = tuple[float, float, float, float]  # xmin, ymin, width, height
CropKey = tuple[bytes, bytes]

MAX_POINTS = 2048  # in an image: the graph's arrays grow with its square
OUTSIDE = 0.25  # how far beyond its border, as a share of the image or box, a keypoint may lie
FLAT = 3e-3  # the height of a triangle over its longest side


@dataclass(frozen=True, eq=False)
class Crop:
    """An image, or its box, resized to the square of pixels that the network takes."""

    pixels: np.ndarray  # (3, S, S) uint8
    key: bytes  # a hash of the pixels
    box: Box  # what it shows, in pixels of the image
    name: str  # what messages call the image


@dataclass(frozen=True, eq=False)
class CropWithKeypoints:
    """A crop with keypoints."""

    crop: Crop
    keypoints: np.ndarray  # (N, 2) float32, in pixels of the crop

    @property
    def key(self) -> CropKey:
        """The same for equal pixels with equal keypoints."""
        return self.crop.key, self.keypoints.tobytes()


def make_crop(image: Any, box: Any, size: int, name: str) -> Crop:
    """Crop an image to a box and resize it to a square.

    Args:
        image: what `load_image` takes.
        box: xmin, ymin, width and height of the object in pixels of the upright image, or None for the whole image.
        size: side of the square.
        name: what messages call the image; a file is called by its path.
    """
    name = str(image) if isinstance(image, str | Path) else name
    array = load_image(image, name)
    box = _find_crop(box, (array.shape[1], array.shape[0]), name)
    square = np.asarray(resize_crop(Image.fromarray(array), box, (size, size)))  # (S, S, 3)
    pixels = np.ascontiguousarray(square.transpose(2, 0, 1))  # (3, S, S)
    return Crop(pixels, hashlib.blake2b(pixels.data).digest(), box, name)


def place_keypoints(keypoints: Any, crop: Crop) -> CropWithKeypoints:
    """Move keypoints along with their image: (N, 2) xy in its pixels; an array, a tensor or a list; may be empty."""
    points = _check_keypoints(keypoints, crop.box, crop.name)
    _, height, width = crop.pixels.shape
    return CropWithKeypoints(crop, crop_keypoints(points, crop.box, (width, height)))


def _find_crop(box: Any, size: tuple[int, int], name: str) -> Box:
    """The part of an image of size (width, height) that a box covers; all of it without one."""
    if box is None:
        if min(size) < MIN_SIDE:
            raise InputError(f"{name} has {size[0]} x {size[1]} pixels; expected at least {MIN_SIDE} a side.")
        return 0.0, 0.0, float(size[0]), float(size[1])
    values = as_numbers(box, f"The numbers of the box of {name}", "xmin, ymin, width and height in pixels")
    if values.shape != (4,):
        raise InputError(f"The box of {name} is {shown(box)}; expected xmin, ymin, width and height in pixels.")
    x, y, width, height = values.tolist()
    crop = clip_box((x, y, width, height), size)
    if crop is None or min(crop[2:]) < MIN_SIDE:
        raise InputError(
            f"The box of {name}, {x:g}, {y:g}, {width:g}, {height:g} (xmin, ymin, width, height), covers less than "
            f"{MIN_SIDE} x {MIN_SIDE} pixels of the image, which has {size[0]} x {size[1]}."
        )
    return crop


def _check_keypoints(keypoints: Any, crop: Box, name: str) -> np.ndarray:
    """Checked keypoints (N, 2) float64 in pixels of the image."""
    points = as_numbers(keypoints, f"The keypoints of {name}", "(N, 2), x and y in pixels")
    if points.shape in ((0,), (0, 2)):
        return np.zeros((0, 2))
    if points.ndim != 2 or points.shape[1] != 2:
        raise InputError(f"The keypoints of {name} are of shape {points.shape}; expected (N, 2), x and y in pixels.")
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


def delaunay(keypoints: np.ndarray) -> np.ndarray:
    """Adjacency (N, N) of the Delaunay triangulation of keypoints (N, 2): symmetric, no self-loops.

    Valid range: any number of points, anywhere. Fewer than three points, points on a line and coinciding points have no
    triangulation: they give the complete graph. Between points of a straight border, as a grid has, rounding makes flat
    triangles; their long sides, which would set the scale of the whole graph, are left out.
    """
    n = len(keypoints)
    complete = ~np.eye(n, dtype=bool)
    if n < 4:  # a triangle is complete, and so is everything smaller
        return complete
    from scipy.spatial import Delaunay, QhullError  # which takes longer to import than to use

    order = np.lexsort(keypoints.T)  # on a grid Qhull picks the diagonals by the order of the points, so fix the order
    try:
        triangulation = Delaunay(keypoints[order])
    except QhullError:  # on a line
        return complete
    if len(triangulation.coplanar):  # a point that Qhull left out: it coincides with another
        return complete
    corners = order[triangulation.simplices]  # (T, 3)
    sides = corners[:, [[0, 1], [1, 2], [2, 0]]]  # (T, 3, 2)
    linked = _linked(sides, n)
    long = _long_sides_of_flat_triangles(keypoints[sides].astype(np.float64))  # (T, 3)
    if not long.any():
        return linked
    flat = long.any(1)  # (T,)
    if flat.all():  # nearly on a line
        return complete
    return _linked(sides[~flat], n) | linked & ~_linked(sides[long], n)


def _long_sides_of_flat_triangles(sides: np.ndarray) -> np.ndarray:
    """Which sides (T, 3) of triangles, given as sides (T, 3, 2, 2), are nearly as long as the two others together.

    They are the longest of a circle of edges, so the graph is connected without them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        way = sides[:, :, 1] - sides[:, :, 0]  # (T, 3, 2)
        x, y = way[:, :, 0], way[:, :, 1]
        length = x * x + y * y  # (T, 3), squared
        area = np.abs(x[:, 0] * y[:, 1] - y[:, 0] * x[:, 1])  # (T,), twice: height times base
        return (area < FLAT * length.max(1))[:, None] & (2 * length > length.sum(1, keepdims=True))


def _linked(edges: np.ndarray, n: int) -> np.ndarray:
    """Adjacency (n, n) of edges (..., 2)."""
    adjacency = np.zeros((n, n), dtype=bool)
    adjacency[edges[..., 0], edges[..., 1]] = adjacency[edges[..., 1], edges[..., 0]] = True
    return adjacency


def pad_points(
    points: Sequence[np.ndarray], n: int, graphs: Sequence[np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """The keypoints (K, 2) of B images filled up to n points with zeros, which points are real, and their graphs.

    Graphs (K, K) that are known are not made again. Returns keypoints (B, n, 2) float32, mask (B, n) and adjacency
    (B, n, n) bool.
    """
    keypoints = np.zeros((len(points), n, 2), np.float32)
    mask = np.zeros((len(points), n), bool)
    adjacency = np.zeros((len(points), n, n), bool)
    for b, xy in enumerate(points):
        k = len(xy)
        graph = delaunay(xy) if graphs is None else graphs[b]
        keypoints[b, :k], mask[b, :k], adjacency[b, :k, :k] = xy, True, graph
    return {"keypoints": keypoints, "mask": mask, "adjacency": adjacency}
