"""WILLOW-ObjectClass: 5 classes, 10 keypoints in every image, `<Class>/<image>.png` with a .mat beside it."""

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.io

from normmatch.data.layout import find_folder, image_files
from normmatch.data.pairs import AnnotatedObject, Dataset, Split
from normmatch.errors import DataError

CLASSES = ("Car", "Duck", "Face", "Motorbike", "Winebottle")
KEYPOINTS = 10
TRAIN_IMAGES = 20  # a class, as in the papers
FEWEST_TEST_IMAGES = 2  # or there is no pair to test on
TO_PIXEL_EDGES = -0.5  # Matlab's coordinates: the first pixel's centre is at 1 there, at 0.5 here


def load(root: Path, seed: int = 0) -> Dataset:
    """Read WILLOW-ObjectClass: 20 images of each class, chosen by `seed`, are for training, the others for the test.

    A class with fewer than 22 images cannot be split like that: it is halved, with a warning.

    Args:
        root: the folder that the archive was unpacked into, or WILLOW-ObjectClass itself.
        seed: fixes the training images.
    """
    top = _find(Path(root))
    skipped: Counter[str] = Counter()
    train: list[AnnotatedObject] = []
    test: list[AnnotatedObject] = []
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
        raise DataError(f"{top} has no image with a readable .mat beside it ({dict(skipped)}).")
    return Dataset("willow", "nmt", {"train": Split(tuple(train)), "test": Split(tuple(test))}, skipped)


def _find(root: Path) -> Path:
    """The folder that has the classes' folders."""
    for label in CLASSES:
        try:
            return find_folder(root, ("WILLOW-ObjectClass", ".", "WILLOW-ObjectClass/WILLOW-ObjectClass"), label)
        except DataError:
            if not root.is_dir():
                raise
    raise DataError(f"There is no folder of a WILLOW class ({', '.join(CLASSES)}) in {root}.")


def _read_class(folder: Path, skipped: Counter[str]) -> list[AnnotatedObject]:
    """The images of one class with their keypoints; what cannot be used is counted."""
    objects: list[AnnotatedObject] = []
    for path in image_files(folder) if folder.is_dir() else []:
        annotation = path.with_suffix(".mat")
        if not annotation.is_file():
            skipped["images without their .mat"] += 1
        elif any(obj.image.stem == path.stem for obj in objects):
            skipped["images of a name that is there already"] += 1
        elif (keypoints := _read_keypoints(annotation)) is None:
            skipped["images with a broken .mat"] += 1
        else:
            objects.append(AnnotatedObject(path, folder.name, tuple(map(str, range(KEYPOINTS))), keypoints))
    return objects


def _read_keypoints(path: Path) -> np.ndarray | None:
    """Keypoints (10, 2), or None where the file has no such array."""
    try:
        points = np.asarray(scipy.io.loadmat(path)["pts_coord"], dtype=np.float32)  # (2, 10)
    except Exception:  # scipy raises nearly anything on a broken .mat
        return None
    if points.shape != (2, KEYPOINTS) or not np.isfinite(points).all():
        return None
    return points.T + np.float32(TO_PIXEL_EDGES)  # (10, 2)
