"""A user's own data: a folder of images and one annotation file of any format that `annotations` reads.

Images are named relative to the folder, or to its subfolder `images`. Coordinates are used as given; a file that names
no class has one. What cannot be used is an error with its place, except objects without a labelled keypoint, which are
counted.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.images import find_image, upright_size
from normmatch.datasets.layout import Skipped
from normmatch.datasets.types import Dataset, Split
from normmatch.datasets.validation_split import can_pair, validation_split
from normmatch.errors import DataError
from normmatch.io import EXPECTED, MAX_PIXELS
from normmatch.outputs import made_by_us

OUTSIDE = 0.25  # how far beyond its border, as a share of the image, a keypoint may lie: the matcher takes no more
SPLITS = ("train", "val", "test")
ONE_CLASS = "object"  # what the objects are called where no class is given

Size = tuple[int, int]  # width, height


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
    labelled = []
    for item in annotations.read(path):
        if item.names:
            labelled.append(item)
        else:
            skipped.add("annotations without a labelled keypoint", item.source, expected=True)
    if not labelled:
        raise DataError(f"{path} has no annotated keypoint.")
    items = _checked(root, labelled)
    _check_classes(path, items)
    objects = {split: tuple(item for item in items if item.split == split) for split in SPLITS}
    if not objects["val"]:
        objects["train"], objects["val"] = validation_split(objects["train"], val_share, seed)
    return Dataset(name, "nmt", {split: Split(items) for split, items in objects.items() if items}, skipped)


def _annotation_file(root: Path) -> Path:
    """The folder's one CSV or JSON file; results that were written there, and a project's last version, are none."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; expected one with images and a .csv or .json file.")
    files = sorted(path for path in root.iterdir() if path.suffix.lower() in (".csv", ".json") and path.is_file())
    files = [path for path in files if not (path.name.endswith(".previous.json") or made_by_us(path))]
    if len(files) != 1:
        found = "several (" + ", ".join(path.name for path in files) + ")" if files else "none"
        raise DataError(f"{root} must hold one annotation file, {annotations.ENDINGS}; found {found}.")
    return files[0]


def _checked(root: Path, items: Iterable[Annotation]) -> list[Annotation]:
    """The objects with the paths of their images, a class and a split each, once they are fit for training."""
    items = list(items)
    classes = any(item.label for item in items)
    images: dict[str, tuple[Path, Size]] = {}  # each is looked for and measured once
    checked = []
    for item in items:
        if item.image not in images:
            images[item.image] = _find(root, item)
        path, size = images[item.image]
        if classes and not item.label:
            raise DataError(f"{item.source}: the value of `class` is empty.")
        if (split := item.split or "train") not in SPLITS:
            raise DataError(f"{item.source}: the split is {split!r}; expected one of {', '.join(SPLITS)}.")
        _check_places(item, path, size)
        checked.append(replace(item, image=str(path), label=item.label or ONE_CLASS, split=split))
    return checked


def _find(root: Path, item: Annotation) -> tuple[Path, Size]:
    """The image of an object, and how large it is."""
    path = find_image(item.image, (root, root / "images"))
    if path is None:
        raise DataError(f"{item.source}: there is no image {item.image!r} in {root} or its subfolder images.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of large images, which are refused here, and of damaged EXIF blocks
        size = upright_size(path)
    if size is None or not 0 < size[0] * size[1] <= MAX_PIXELS:
        raise DataError(
            f"{item.source}: the image {str(path)!r} cannot be read; expected {EXPECTED} of {MAX_PIXELS:,} pixels "
            "at most."
        )
    return path, size


def _check_places(item: Annotation, path: Path, size: Size) -> None:
    """Whether the box covers some of the image, and the keypoints lie in it or nearly."""
    width, height = size
    pixels = f"{path.name}, which has {width} x {height} pixels"
    if item.box is not None:
        x, y, w, h = item.box
        if min(x + w, width) - max(x, 0) < 1 or min(y + h, height) - max(y, 0) < 1:
            raise DataError(f"{item.source}: the box covers less than one pixel of {pixels}.")
    beyond = np.maximum(-item.keypoints / size, item.keypoints / size - 1).max(axis=1)  # (N,)
    for index in np.flatnonzero(beyond > OUTSIDE)[:1]:
        x, y = item.keypoints[index]
        raise DataError(
            f"{item.source}: the keypoint {item.names[index]!r} at ({x:g}, {y:g}) is far outside {pixels}; expected it "
            f"inside, or {OUTSIDE:.0%} of that beyond the border at most."
        )


def _check_classes(path: Path, items: Sequence[Annotation]) -> None:
    """Whether every image has one split, and every class objects that can be matched."""
    splits: dict[str, str] = {}
    classes: dict[str, list[Annotation]] = {}
    for item in items:
        classes.setdefault(item.label, []).append(item)
        if splits.setdefault(item.image, item.split) != item.split:
            raise DataError(f"{item.source}: {item.path.name} is in {splits[item.image]} as well; expected one split.")
    for label, group in classes.items():
        if len(group) < 2:
            raise DataError(f"{group[0].source}: this is the only object of the class {label!r}; expected at least 2.")
        _check_names(label, group)
        if not can_pair(item.names for item in group):
            where = " or ".join(split for split in SPLITS if any(item.split == split for item in group))
            raise DataError(
                f"{path}: no two objects of the class {label!r} in {where} have two keypoint names in common."
            )


def _check_names(label: str, group: Sequence[Annotation]) -> None:
    """Names that are in one object only: an error where the object has no others, else a warning, for it may be so."""
    counts = Counter(name for item in group for name in item.names)
    for item in group:
        lonely = [name for name in item.names if counts[name] == 1]
        if not lonely:
            continue
        sentence = f"{item.source}: no other object of the class {label!r} has a keypoint {lonely[0]!r}"
        if len(lonely) == len(item.names):
            raise DataError(f"{sentence}, nor any other name of this object, so it can never be matched.")
        warnings.warn(f"{sentence}, so it can never be matched; is the name right?", stacklevel=2)
