"""WILLOW-ObjectClass: 5 classes, 10 keypoints in every image, `<Class>/<image>.png` with a .mat beside it."""

import warnings
from pathlib import Path

import numpy as np
import scipy.io

from normmatch.annotations import Annotation
from normmatch.annotations.images import image_files
from normmatch.datasets.layout import MATLAB_TO_OURS, Skipped, find_folder, main_reasons
from normmatch.datasets.types import Dataset, Split
from normmatch.datasets.validation_split import validation_split
from normmatch.errors import DataError

CLASSES = ("Car", "Duck", "Face", "Motorbike", "Winebottle")
KEYPOINTS = 10
TRAIN_IMAGES = 20  # a class, as in the papers
FEWEST_TEST_IMAGES = 2  # or there is no pair to test on


def load(root: Path, val_share: float = 0.2, seed: int = 0) -> Dataset:
    """Read WILLOW-ObjectClass: 20 images of each class, chosen by `seed`, are for training, the others for the test.

    A class with fewer than 22 images cannot be split like that: it is halved, with a warning.

    Args:
        root: the folder that the archive was unpacked into, or WILLOW-ObjectClass itself.
        val_share: share of the training images of each class that becomes the split `val`; 0 makes none.
        seed: fixes the training and the validation images.
    """
    top = _find(Path(root))
    skipped = Skipped()
    train: list[Annotation] = []
    test: list[Annotation] = []
    for index, label in enumerate(CLASSES):
        objects = _read_class(top / label, skipped)
        order = np.random.default_rng([seed, index]).permutation(len(objects))
        count = TRAIN_IMAGES
        if 0 < len(objects) < TRAIN_IMAGES + FEWEST_TEST_IMAGES:
            count = len(objects) // 2
            warnings.warn(
                f"WILLOW {label} has {len(objects)} usable images, too few for {TRAIN_IMAGES} training images: "
                f"{count} are used for training and {len(objects) - count} for the test.",
                stacklevel=2,
            )
        chosen = set(order[:count].tolist())
        train += [obj for i, obj in enumerate(objects) if i in chosen]
        test += [obj for i, obj in enumerate(objects) if i not in chosen]
    if not test:
        raise DataError(f"{top} has no image with a readable .mat beside it ({main_reasons(skipped)}).")
    skipped.warn("willow")
    splits = dict(zip(("train", "val"), validation_split(train, val_share, seed), strict=True)) | {"test": tuple(test)}
    return Dataset("willow", "nmt", {name: Split(items) for name, items in splits.items() if items}, skipped)


def _find(root: Path) -> Path:
    """The folder that has the classes' folders."""
    for label in CLASSES:
        try:
            return find_folder(root, ("WILLOW-ObjectClass", ".", "WILLOW-ObjectClass/WILLOW-ObjectClass"), label)
        except DataError:
            if not root.is_dir():
                raise
    raise DataError(f"There is no folder of a WILLOW class ({', '.join(CLASSES)}) in {root}.")


def _read_class(folder: Path, skipped: Skipped) -> list[Annotation]:
    """The images of one class with their keypoints; what cannot be used is counted."""
    objects: dict[str, Annotation] = {}
    names = tuple(map(str, range(KEYPOINTS)))
    for path in image_files(folder) if folder.is_dir() else []:
        keypoints = _read_keypoints(path.with_suffix(".mat"))
        if keypoints is None or path.stem in objects:
            skipped.add("images with a .mat that is missing or broken, or that another image has", path)
        else:
            objects[path.stem] = Annotation(str(path), names, keypoints, None, folder.name)
    return list(objects.values())


def _read_keypoints(path: Path) -> np.ndarray | None:
    """Keypoints (10, 2), or None where there is no file with such an array."""
    try:
        points = np.asarray(scipy.io.loadmat(path)["pts_coord"], dtype=np.float32)  # (2, 10)
    except Exception:  # scipy raises nearly anything on a broken .mat, or none
        return None
    if points.shape != (2, KEYPOINTS) or not np.isfinite(points).all():
        return None
    return (points.T + np.float32(MATLAB_TO_OURS)).astype(np.float64)  # (10, 2)
