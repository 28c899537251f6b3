"""HPatches: sequences of one flat scene, seen from other sides (`v_*`) or in other light (`i_*`).

    root/hpatches-sequences-release/<sequence>/{1..6}.ppm, H_1_2 .. H_1_6

Image 1 has keypoints on a grid, image k those of their true projections that lie inside it.
"""

from pathlib import Path

import numpy as np

from normmatch.annotations import Annotation
from normmatch.annotations.images import image_files, upright_size
from normmatch.datasets.layout import UNUSABLE, ZERO_BASED_TO_OURS, Skipped, find_folder, main_reasons
from normmatch.datasets.types import Dataset, Split
from normmatch.datasets.warped import grid_points, project, projected_object
from normmatch.errors import DataError

LABELS = {"v_": "viewpoint", "i_": "illumination"}
FEWEST_INSIDE = 2  # a pair with fewer points is no matching problem

# The files' homographies count pixels from 0.
TO_OURS = np.array([[1.0, 0.0, ZERO_BASED_TO_OURS], [0.0, 1.0, ZERO_BASED_TO_OURS], [0.0, 0.0, 1.0]])


def load(root: Path, grid: int = 8) -> Dataset:
    """Read HPatches as one split `test`: pairs (1, k) of each sequence, the class `viewpoint` or `illumination`.

    Args:
        root: the folder that the archive was unpacked into, or hpatches-sequences-release itself.
        grid: keypoints a side of the grid on image 1.
    """
    top = find_folder(Path(root), ("hpatches-sequences-release", ".", "hpatches"), "[vi]_*")
    skipped = Skipped()
    objects: list[Annotation] = []
    pairs = []
    for folder in sorted(top.glob("[vi]_*")):
        sequence = _read_sequence(folder, grid, skipped) if folder.is_dir() else []
        first = len(objects)
        pairs += [[first, first + i] for i in range(1, len(sequence))]
        objects += sequence
    if not pairs:
        reasons = main_reasons(skipped)
        raise DataError(f"{top} has no sequence with a first image, another one and its homography ({reasons}).")
    skipped.warn("hpatches")
    return Dataset("hpatches", "nmt", {"test": Split(tuple(objects), np.array(pairs, dtype=np.int64))}, skipped)


def read_homography(path: Path) -> np.ndarray:
    """(3, 3) homography for pixels with centres at +0.5."""
    homography = np.loadtxt(path)  # (3, 3)
    if homography.shape != (3, 3) or not np.isfinite(homography).all() or np.linalg.det(homography) == 0:
        raise ValueError("no homography")
    return TO_OURS @ (homography / homography[2, 2]) @ np.linalg.inv(TO_OURS)


def _read_sequence(folder: Path, grid: int, skipped: Skipped) -> list[Annotation]:
    """Image 1 with the grid, then the other images with the grid's projections; empty without a usable image 1."""
    images = {path.stem: path for path in image_files(folder)}
    label = LABELS[folder.name[:2]]
    sequence: list[Annotation] = []
    for number in range(1, 7):
        try:
            image = images[str(number)]
            size = upright_size(image)
            homography = read_homography(folder / f"H_1_{number}") if number > 1 else np.eye(3)
            if size is None or (number > 1 and not sequence):
                raise ValueError("no image, or no first one")
        except UNUSABLE:
            skipped.add("images that are missing or broken, or whose homography is", folder / f"{number}.ppm")
            continue
        if number == 1:
            points = grid_points(size, grid)  # (grid * grid, 2)
        obj = projected_object(image, label, size, project(homography, points))
        if len(obj.names) < FEWEST_INSIDE:
            skipped.add(f"images with fewer than {FEWEST_INSIDE} keypoints inside", image, expected=True)
        else:
            sequence.append(obj)
    return sequence if len(sequence) > 1 else []
