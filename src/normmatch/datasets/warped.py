"""Synthetic homographies of any folder of images: pairs with exact truth, to train on geometric matching.

An object is an image as it is, or warped by a homography, with the same grid of keypoints moved along.
"""

import zlib
from pathlib import Path

import numpy as np

from normmatch.annotations import Annotation
from normmatch.annotations.images import image_files, upright_size
from normmatch.datasets.layout import Skipped, main_reasons
from normmatch.datasets.types import Dataset, Split
from normmatch.errors import DataError

LABEL = "homography"
FEWEST_INSIDE = 4  # grid points that a warp must keep in the image
SMALLEST_IMAGE = 16  # pixels a side
MAGNITUDE = (0.25, 0.75)  # of m: a warp moves each corner by up to m times half the width and half the height
COPIES = 4  # of each image
GRID = 6  # keypoints a side
VAL_SHARE = 0.1  # of the images
SEED = 0


def grid_points(size: tuple[int, int], grid: int) -> np.ndarray:
    """(grid * grid, 2) keypoints, row by row: the centres of the cells that divide the image."""
    width, height = size
    steps = (np.arange(grid) + 0.5) / grid  # (grid,)
    x, y = np.meshgrid(steps * width, steps * height)  # (grid, grid) each
    return np.stack([x, y], axis=-1).reshape(-1, 2)  # (grid * grid, 2)


def project(homography: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(K, 2) points moved by a homography (3, 3); nan for those that it throws behind the camera."""
    moved = np.column_stack([points, np.ones(len(points))]) @ homography.T  # (K, 3)
    depth = np.where(moved[:, 2:] > 1e-9, moved[:, 2:], np.nan)  # (K, 1)
    return moved[:, :2] / depth  # (K, 2)


def projected_object(
    image: Path, label: str, size: tuple[int, int], points: np.ndarray, homography: np.ndarray | None = None
) -> Annotation:
    """The object whose keypoints are those of the numbered points that lie inside an image of `size`."""
    inside = np.flatnonzero(((points >= 0) & (points <= size)).all(axis=1))  # (K,); nan is not inside
    names = tuple(str(i) for i in inside)
    return Annotation(str(image), names, points[inside], label=label, homography=homography)


def load(folder: Path) -> Dataset:
    """Make pairs of each image, also of folders below, with its warped copies; some images become the split `val`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; expected one with images.")
    skipped = Skipped()
    families = []
    for path in image_files(folder, recursive=True):
        # The seed of an image is its name, so its warps stay when others come or go.
        rng = np.random.default_rng([SEED, zlib.crc32(path.relative_to(folder).as_posix().encode())])
        size = upright_size(path)
        if size is None:
            skipped.add("images that cannot be read", path)
        elif min(size) < SMALLEST_IMAGE:
            skipped.add("images that are too small", path, expected=True)
        else:
            families.append(_warped_copies(path, size, rng))
    if not families:
        raise DataError(f"{folder} has no readable image ({main_reasons(skipped)}); expected jpg, png or the like.")
    skipped.warn(f"the image folder {folder}")
    order = np.random.default_rng(SEED).permutation(len(families))
    held = max(1, round(VAL_SHARE * len(families))) if len(families) > 1 else 0
    splits = {"train": _split([families[i] for i in sorted(order[held:])])}
    if held:
        splits["val"] = _split([families[i] for i in sorted(order[:held])])
    return Dataset("synthetic", "nmt", splits, skipped)


def random_homography(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """(3, 3) homography of the image's plane, in pixels with centres at +0.5, that moves its corners at random.

    A range m is drawn from MAGNITUDE; then corner i goes to c_i + u_i * (width, height) / 2 with u_i uniform in
    [-m, m]^2. Draws whose corners are no convex quadrilateral in the old order are refused: the others are exactly
    those that keep the image before the camera and do not mirror it (det H > 0).
    """
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])  # of the unit square, clockwise on the screen
    while True:
        m = rng.uniform(*MAGNITUDE)
        moved = corners + rng.uniform(-m, m, (4, 2)) / 2
        edges = np.roll(moved, -1, axis=0) - moved  # (4, 2)
        turns = edges[:, 0] * np.roll(edges[:, 1], -1) - edges[:, 1] * np.roll(edges[:, 0], -1)  # (4,)
        if turns.min() > 0.05:  # 1 for a square; near 0 a corner is nearly flat and the map nearly singular
            scale = np.diag([*size, 1.0])
            return scale @ _homography_of(corners, moved) @ np.linalg.inv(scale)


def _homography_of(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The homography, last entry 1, that maps four points (4, 2) to four others: two linear equations a point."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    return np.append(np.linalg.solve(np.array(rows), target.reshape(8)), 1.0).reshape(3, 3)


def _warped_copies(path: Path, size: tuple[int, int], rng: np.random.Generator) -> list[Annotation]:
    """The image as it is, then its warped copies."""
    points = grid_points(size, GRID)  # (GRID * GRID, 2)
    family = [projected_object(path, LABEL, size, points)]
    while len(family) <= COPIES:
        homography = random_homography(size, rng)
        warped = projected_object(path, LABEL, size, project(homography, points), homography)
        if len(warped.names) >= FEWEST_INSIDE:
            family.append(warped)
    return family


def _split(families: list[list[Annotation]]) -> Split:
    """All objects in a row; each image is paired with its own copies."""
    objects: list[Annotation] = []
    pairs = []
    for family in families:
        first = len(objects)
        pairs += [[first, first + i] for i in range(1, len(family))]
        objects += family
    return Split(tuple(objects), np.array(pairs, dtype=np.int64).reshape(-1, 2))
