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
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from normmatch.annotations import Annotation
from normmatch.datasets.layout import UNUSABLE, ZERO_BASED_TO_OURS, Skipped, find_folder, main_reasons
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


def _read_split(names: Iterable[str], images: Mapping[Image, Annotation], skipped: Skipped) -> Split:
    """The pairs of one list, and the objects that they need."""
    index: dict[Image, int] = {}  # place in the split's objects
    pairs = []
    for name in dict.fromkeys(names):
        keys = _parse_pair(name)
        if all(key in images for key in keys):
            pairs.append([index.setdefault(key, len(index)) for key in keys])
        else:
            skipped.add("pairs of images whose files are missing or broken", name)
    return Split(tuple(images[key] for key in index), np.array(pairs, dtype=np.int64))


def _parse_pair(name: str) -> tuple[Image, ...]:
    """`000001-2008_001546-2008_004704:aeroplane` -> (aeroplane, 2008_001546), (aeroplane, 2008_004704)."""
    match = PAIR.fullmatch(name)
    return ((match[3], match[1]), (match[3], match[2])) if match else (("", name),)


def _read_images(annotations: Path, crop: bool) -> dict[Image, Annotation]:
    """Every image that can be used, with its keypoints."""
    images = {}
    for path in sorted(annotations.glob("*/*.json")):
        with suppress(*UNUSABLE):
            images[path.parent.name, path.stem] = _read_image(path, crop)
    return images


def _read_image(path: Path, crop: bool) -> Annotation:
    label = path.parent.name
    image = path.parents[2] / "JPEGImages" / label / f"{path.stem}.jpg"
    annotation = json.loads(path.read_bytes())
    points = {name: (float(xy[0]), float(xy[1])) for name, xy in annotation["kps"].items() if xy is not None}
    xmin, ymin, xmax, ymax = (float(value) for value in annotation["bndbox"])
    keypoints = np.array(list(points.values()), dtype=np.float64).reshape(-1, 2)  # (K, 2)
    # VOC's boxes number the first and the last pixel from 1: from the left edge of the one to the right of the other.
    box: Box = (xmin - 1, ymin - 1, xmax - xmin + 1, ymax - ymin + 1)
    if not (image.is_file() and len(keypoints) and np.isfinite(keypoints).all()):
        raise ValueError("no image, or no keypoints")
    if crop and not (xmax > xmin and ymax > ymin and math.isfinite(sum(box))):
        raise ValueError("the box is empty")
    return Annotation(str(image), tuple(points), keypoints + ZERO_BASED_TO_OURS, box if crop else None, label)
