"""SPair-71k: pairs of photographs of 18 classes.

    root/SPair-71k/JPEGImages/<class>/<image>.jpg
    root/SPair-71k/ImageAnnotation/<class>/<image>.json                 kps: id -> [x, y] or null, bndbox
    root/SPair-71k/PairAnnotation/{trn,val,test}/<pair>.json            the same keypoints, and how far the two differ
    root/SPair-71k/Layout/large/{trn,val,test}.txt              names of the pairs

A pair's keypoints are the ids annotated in both images. So the images' own annotations are enough, and the 71,000 files
of PairAnnotation are never opened.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from normmatch.annotations import Annotation
from normmatch.datasets.layout import ZERO_BASED_TO_OURS, Skip, Skipped, find_folder, main_reasons
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import Dataset, Split
from normmatch.errors import DataError
from normmatch.geometry import Box

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair"),
    *("cow", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "train", "tvmonitor"),
)
SPLITS = {"train": "trn", "val": "val", "test": "test"}
PAIR = re.compile(r"\d+-([^-]+)-([^-]+)[:_]([a-z]+)")  # number - source image - target image : class

Image = tuple[str, str]  # class and name


def load(root: Path, protocol: str = "nmt") -> Dataset:
    """Read SPair-71k, its large list of pairs.

    Args:
        root: the folder that the archive was unpacked into, or SPair-71k itself.
        protocol: `nmt` and `bbgm` take whole images, `thinkmatch` crops to the objects' boxes.
    """
    top = find_folder(Path(root), ("SPair-71k", ".", "SPair-71k/SPair-71k"), "ImageAnnotation")
    skipped = Skipped()
    images = _read_images(top / "ImageAnnotation", get_protocol(protocol).crop_spair)
    splits = {name: _read_split(_pair_names(top, folder), images, skipped) for name, folder in SPLITS.items()}
    splits = {name: split for name, split in splits.items() if split.objects}
    if not splits:
        raise DataError(f"{top} has no usable pair ({main_reasons(skipped)}).")
    skipped.warn("spair-71k")
    return Dataset("spair-71k", protocol, splits, skipped)


def _pair_names(top: Path, folder: str) -> list[str]:
    """The names that Layout lists, or those of PairAnnotation where Layout is missing."""
    listed = top / "Layout" / "large" / f"{folder}.txt"
    if listed.is_file():
        return listed.read_text(encoding="utf-8", errors="replace").split()
    if (top / "Layout").is_dir():
        return []
    return sorted(path.stem for path in (top / "PairAnnotation" / folder).glob("*.json"))


def _read_split(names: Iterable[str], images: Mapping[Image, Annotation | Skip], skipped: Skipped) -> Split:
    """The pairs of one list, and the objects that they need."""
    index: dict[Image, int] = {}  # place in the split's objects
    objects: list[Annotation] = []
    pairs = []
    for name, times in Counter(names).items():
        if times > 1:
            skipped.add("pairs listed twice", name, times=times - 1)
        try:
            keys = _parse_pair(name)
            found = [_usable(images, key) for key in keys]
        except Skip as skip:
            skipped.add_skip(skip)
            continue
        for key, obj in zip(keys, found, strict=True):
            if key not in index:
                index[key] = len(objects)
                objects.append(obj)
        pairs.append([index[key] for key in keys])
    return Split(tuple(objects), np.array(pairs, dtype=np.int64))


def _usable(images: Mapping[Image, Annotation | Skip], key: Image) -> Annotation:
    label, image = key
    obj = images.get(key)
    if obj is None:
        raise Skip("pairs with an image without its ImageAnnotation", f"{label}/{image}.json")
    if isinstance(obj, Skip):
        raise obj.with_traceback(None)
    return obj


def _parse_pair(name: str) -> tuple[Image, Image]:
    """`000001-2008_001546-2008_004704:aeroplane` -> (aeroplane, 2008_001546), (aeroplane, 2008_004704)."""
    match = PAIR.fullmatch(name)
    if match is None:
        raise Skip("pairs with a name that is not <number>-<image>-<image>:<class>", name)
    image0, image1, label = match.groups()
    if label not in CLASSES:
        raise Skip("pairs of an unknown class", name)
    return (label, image0), (label, image1)


def _read_images(annotations: Path, crop: bool) -> dict[Image, Annotation | Skip]:
    """Every image with its keypoints, or why it cannot be used."""
    images: dict[Image, Annotation | Skip] = {}
    for path in sorted(annotations.glob("*/*.json")):
        try:
            images[path.parent.name, path.stem] = _read_image(path, crop)
        except Skip as skip:
            images[path.parent.name, path.stem] = skip
    return images


def _read_image(path: Path, crop: bool) -> Annotation:
    label = path.parent.name
    image = path.parents[2] / "JPEGImages" / label / f"{path.stem}.jpg"
    if not image.is_file():
        raise Skip("pairs with an image that is missing", image)
    try:
        annotation = json.loads(path.read_bytes())
        points = {name: (float(xy[0]), float(xy[1])) for name, xy in annotation["kps"].items() if xy is not None}
        xmin, ymin, xmax, ymax = (float(value) for value in annotation["bndbox"])
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise Skip("pairs with an image whose ImageAnnotation is broken", path) from None
    keypoints = np.array(list(points.values()), dtype=np.float64).reshape(-1, 2)  # (K, 2)
    if not len(keypoints) or not np.isfinite(keypoints).all():
        raise Skip("pairs with an image without keypoints", path)
    # VOC's boxes number the first and the last pixel from 1: from the left edge of the one to the right of the other.
    box: Box = (xmin - 1, ymin - 1, xmax - xmin + 1, ymax - ymin + 1)
    if crop and not (xmax > xmin and ymax > ymin and math.isfinite(sum(box))):
        raise Skip("pairs with an image whose box is empty", path)
    return Annotation(str(image), tuple(points), keypoints + ZERO_BASED_TO_OURS, box if crop else None, label)
