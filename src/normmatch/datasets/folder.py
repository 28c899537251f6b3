"""A user's own data: a folder of images and one annotation file, a CSV or a COCO-keypoints JSON.

    image,class,name,x,y            one row a keypoint; optional columns: xmin,ymin,width,height (the object's box),
    cats/tom.jpg,cat,nose,120,88    object (tells several objects of an image apart), split (train, val or test)

Images are named relative to the folder, or to its subfolder `images`. Coordinates are used as given: x right, y down,
in pixels of the image as a viewer shows it (EXIF rotation applied), the centre of the first pixel at 0.5. Tools that
write COCO files do not agree whether it is at 0 or 0.5; nothing is added here. What cannot be used is an error with its
line, except COCO annotations without a labelled keypoint, which are counted.
"""

import os
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from normmatch.annotations.coco import coco_rows
from normmatch.annotations.images import upright_size
from normmatch.annotations.text import (
    BOX_COLUMNS,
    Row,
    csv_rows,
    filled,
    number,
    parse_json,
    printable,
    read_text,
)
from normmatch.datasets.layout import Skipped
from normmatch.datasets.types import AnnotatedObject, Dataset, Split
from normmatch.datasets.validation_split import can_pair, hold_out
from normmatch.errors import DataError
from normmatch.geometry import Box
from normmatch.io import EXPECTED, MAX_PIXELS

MAX_BYTES = 512 << 20  # of the annotation file; COCO's own, with 150,000 persons, has 230 MB
OUTSIDE = 0.25  # how far beyond its border, as a share of the image, a keypoint may lie: the matcher takes no more
COLUMNS = ("image", "class", "name", "x", "y")
SPLITS = ("train", "val", "test")

Size = tuple[int, int]  # width, height


@dataclass
class _Draft:
    """An object while its annotation is read."""

    where: str  # file and line, or file and annotation id: every message starts with it
    image: Path
    label: str
    split: str
    box: Box | None
    points: dict[str, tuple[float, float]] = field(default_factory=dict)


def load(root: Path, val_share: float = 0.2, seed: int = 0, name: str = "folder") -> Dataset:
    """Read a folder of the user's.

    Where no object is marked `val`, a share of the training images of each class becomes that split, if there are
    enough of them.

    Args:
        root: the folder with the images and one annotation file.
        val_share: share of the training objects that becomes the split `val`; 0 makes none.
        seed: fixes which ones.
        name: what the dataset calls itself.
    """
    root = Path(root)
    skipped = Skipped()
    path = _annotation_file(root)
    text = read_text(path, MAX_BYTES)
    if path.suffix.lower() == ".csv":
        rows = csv_rows(path, text, COLUMNS, ("object", "split"))
    else:
        rows = coco_rows(path, parse_json(path, text), skipped)
    drafts = _read_objects(root, rows)
    _check_classes(path, drafts)
    objects: dict[str, tuple[AnnotatedObject, ...]] = {
        split: tuple(_finished(draft) for draft in drafts if draft.split == split) for split in SPLITS
    }
    if not objects["val"]:
        objects["train"], objects["val"] = hold_out(objects["train"], val_share, seed)
    return Dataset(name, "nmt", {split: Split(items) for split, items in objects.items() if items}, skipped)


def _annotation_file(root: Path) -> Path:
    """The one CSV or JSON file of the folder."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder: expected one with images and a CSV or COCO-keypoints JSON file.")
    files = sorted(path for path in root.iterdir() if path.suffix.lower() in (".csv", ".json") and path.is_file())
    if len(files) != 1:
        found = "several (" + ", ".join(path.name for path in files) + ")" if files else "none"
        raise DataError(f"{root} must hold one annotation file, a .csv or a COCO-keypoints .json; found {found}.")
    return files[0]


def _read_objects(root: Path, rows: Iterable[tuple[str, Row]]) -> list[_Draft]:
    """One object for each image, or for each image and `object`."""
    images = _Images(root)
    drafts: dict[tuple[Path, str], _Draft] = {}
    for where, row in rows:
        image, size = images.find(where, filled(where, row, "image"))
        name, label = printable(where, row, "name"), printable(where, row, "class")
        split = _split(where, row.get("split", "train"))
        new = _Draft(where, image, label, split, _box(where, row, image, size))
        draft = drafts.setdefault((image, row.get("object", "")), new)
        if (new.label, new.box, new.split) != (draft.label, draft.box, draft.split) or name in draft.points:
            what = f"a second {name!r}" if name in draft.points else "another class, box or split"
            raise DataError(
                f"{where}: {what} in the object that begins at {draft.where}; "
                "several objects of an image need a column `object` that tells them apart."
            )
        draft.points[name] = _point(where, row, image, size)
    return list(drafts.values())


class _Images:
    """Finds images by name and measures them, each once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[str, tuple[Path, Size]] = {}

    def find(self, where: str, name: str) -> tuple[Path, Size]:
        if name not in self.known:
            candidates = (self.root / name, self.root / "images" / name)
            path = next((path for path in candidates if os.path.isfile(path)), None)
            if path is None:
                raise DataError(f"{where}: there is no image {name!r} in {self.root} or its subfolder images.")
            self.known[name] = path, _measure(where, path)
        return self.known[name]


def _measure(where: str, path: Path) -> Size:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of large images, which are refused here, and of damaged EXIF blocks
        size = upright_size(path)
    if size is None or not 0 < size[0] * size[1] <= MAX_PIXELS:
        raise DataError(
            f"{where}: the image {str(path)!r} cannot be read; expected {EXPECTED} of {MAX_PIXELS:,} pixels at most."
        )
    return size


def _point(where: str, row: Row, image: Path, size: Size) -> tuple[float, float]:
    name, (width, height) = row["name"], size
    x, y = number(where, name, row["x"]), number(where, name, row["y"])
    if max(-x / width, -y / height, x / width - 1, y / height - 1) > OUTSIDE:
        raise DataError(
            f"{where}: the keypoint {name!r} at ({x:g}, {y:g}) is far outside {image.name}, which has "
            f"{width} x {height} pixels; expected it inside, or {OUTSIDE:.0%} of that beyond the border at most."
        )
    return x, y


def _box(where: str, row: Row, image: Path, size: Size) -> Box | None:
    values = [row.get(column, "") for column in BOX_COLUMNS]
    if all(value == "" for value in values):
        return None
    x, y, width, height = (number(where, name, value) for name, value in zip(BOX_COLUMNS, values, strict=True))
    if width <= 0 or height <= 0:
        raise DataError(f"{where}: the box is {width:g} wide and {height:g} high; expected more than 0.")
    if min(x + width, size[0]) - max(x, 0) < 1 or min(y + height, size[1]) - max(y, 0) < 1:
        raise DataError(
            f"{where}: the box covers less than one pixel of {image.name}, which has {size[0]} x {size[1]} pixels."
        )
    return x, y, width, height


def _split(where: str, value: Any) -> str:
    if not isinstance(value, str) or value not in SPLITS:
        raise DataError(f"{where}: the split is {value!r}; expected one of {', '.join(SPLITS)}.")
    return value


def _finished(draft: _Draft) -> AnnotatedObject:
    xy = np.array(list(draft.points.values()), dtype=np.float32)  # (K, 2)
    return AnnotatedObject(draft.image, draft.label, tuple(draft.points), xy, draft.box)


def _check_classes(path: Path, drafts: list[_Draft]) -> None:
    """Whether every image has one split, and every class objects that can be matched."""
    if not drafts:
        raise DataError(f"{path} has no annotated keypoint.")
    splits: dict[Path, str] = {}
    classes: dict[str, list[_Draft]] = {}
    for draft in drafts:
        classes.setdefault(draft.label, []).append(draft)
        if splits.setdefault(draft.image, draft.split) != draft.split:
            raise DataError(
                f"{draft.where}: {draft.image.name} is in {splits[draft.image]} as well; expected one split."
            )
    for label, group in classes.items():
        if len(group) < 2:
            raise DataError(f"{group[0].where}: this is the only object of the class {label!r}; expected at least 2.")
        _check_names(label, group)
        if not can_pair(draft.points for draft in group):
            where = " or ".join(split for split in SPLITS if any(draft.split == split for draft in group))
            raise DataError(
                f"{path}: no two objects of the class {label!r} in {where} have two keypoint names in common."
            )


def _check_names(label: str, group: list[_Draft]) -> None:
    """Names that are in one object only: an error where the object has no others, else a warning, for it may be so."""
    counts = Counter(name for draft in group for name in draft.points)
    for draft in group:
        lonely = [name for name in draft.points if counts[name] == 1]
        if not lonely:
            continue
        sentence = f"{draft.where}: no other object of the class {label!r} has a keypoint {lonely[0]!r}"
        if len(lonely) == len(draft.points):
            raise DataError(f"{sentence}, nor any other name of this object, so it can never be matched.")
        warnings.warn(f"{sentence}, so it can never be matched; is the name right?", stacklevel=2)
