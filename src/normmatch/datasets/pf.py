"""PF-PASCAL and PF-WILLOW: lists of pairs of photographs, with the same keypoints in both, as CSV.

    source_image,target_image,class,XA,YA,XB,YB     PF-PASCAL: numbers separated by ;, class 1 to 20
    imageA,imageB,XA1,...,XA10,YA1,...,YB10         PF-WILLOW: ten keypoints

The threshold of PF-PASCAL is a share of the image, that of PF-WILLOW of the keypoints' box, as is usual there.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from normmatch.annotations import MAX_BYTES, Annotation
from normmatch.annotations.images import find_image, upright_size
from normmatch.datasets.layout import ZERO_BASED_TO_OURS
from normmatch.datasets.pascal_voc import CLASSES
from normmatch.datasets.types import Split
from normmatch.errors import DataError
from normmatch.io import read_text

HEADS = ("source_image,target_image,class,XA,YA,XB,YB", "imageA,imageB,XA1")


def is_list(path: Path) -> bool:
    """Whether a file is such a list."""
    return path.suffix.lower() == ".csv" and path.is_file() and read_text(path, MAX_BYTES).startswith(HEADS)


def read_list(path: Path, root: Path) -> Split:
    """The pairs of a list, whose photographs are seen from its folder, the folder above, or `root`."""
    objects: list[Annotation] = []
    for number, row in enumerate(csv.DictReader(read_text(path, MAX_BYTES).splitlines()), 2):
        try:
            objects += _pair(row, (path.parent, path.parent.parent, root))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise DataError(
                f"{path} line {number} is not as in the lists of PF-PASCAL or PF-WILLOW ({error})."
            ) from error
    if not objects:
        raise DataError(f"{path} has no pair.")
    return Split(tuple(objects), np.arange(len(objects)).reshape(-1, 2))


def _pair(row: Mapping[str, str], folders: tuple[Path, ...]) -> list[Annotation]:
    pascal = "source_image" in row
    found = []
    for side, key in (("A", "source_image" if pascal else "imageA"), ("B", "target_image" if pascal else "imageB")):
        columns = (
            [row[axis + side].split(";") for axis in "XY"]
            if pascal
            else [[row[f"{axis}{side}{i}"] for i in range(1, 11)] for axis in "XY"]
        )
        points = np.array(columns, float).T + ZERO_BASED_TO_OURS  # (K, 2)
        image = find_image(row[key], folders)
        if image is None:
            raise DataError(f"The photograph {row[key]} is not beside the list, nor in {folders[-1]} (--root).")
        width, height = (upright_size(image) or (0, 0)) if pascal else np.ptp(points, axis=0).tolist()
        low = (0.0, 0.0) if pascal else points.min(0).tolist()
        label = CLASSES[int(row["class"]) - 1] if pascal else Path(row[key]).parent.name
        names = tuple(map(str, range(1, len(points) + 1)))
        found.append(Annotation(str(image), names, points, (*low, float(width), float(height)), label))
    return found
