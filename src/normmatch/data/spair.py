"""SPair-71k: pairs of photographs of 18 classes, with labels that say how far the two differ.

    root/SPair-71k/JPEGImages/<class>/<image>.jpg
    root/SPair-71k/ImageAnnotation/<class>/<image>.json                 kps: id -> [x, y] or null, bndbox
    root/SPair-71k/PairAnnotation/{trn,val,test}/<pair>.json            the same keypoints, and the variation labels
    root/SPair-71k/Layout/{large,small}/{trn,val,test}.txt              names of the pairs

A pair's keypoints are the ids annotated in both images. So the images' own annotations are enough, and the 71,000 files
of PairAnnotation are opened only where a filter asks for their labels.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from normmatch.data.layout import find_folder
from normmatch.data.pairs import AnnotatedObject, Box, Dataset, Split
from normmatch.data.protocols import get_protocol
from normmatch.errors import ConfigError, DataError

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair"),
    *("cow", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "train", "tvmonitor"),
)
SPLITS = {"train": "trn", "val": "val", "test": "test"}
LABELS = ("viewpoint_variation", "scale_variation", "truncation", "occlusion")
PAIR = re.compile(r"\d+-([^-]+)-([^-]+)[:_]([a-z]+)")  # number - source image - target image : class
TO_PIXEL_EDGES = 0.5  # keypoints are whole numbers from 0, a pixel each, and the pixel's centre is at +0.5


class _Skip(Exception):
    """An image or a pair is left out; the message is the reason that is counted."""


def load(
    root: Path,
    size: Literal["large", "small"] = "large",
    protocol: str = "nmt",
    filters: Mapping[str, Collection[int]] | None = None,
) -> Dataset:
    """Read SPair-71k.

    Args:
        root: the folder that the archive was unpacked into, or SPair-71k itself.
        size: which of the two lists of pairs.
        protocol: `nmt` and `bbgm` take whole images, `thinkmatch` crops to the objects' boxes.
        filters: allowed values of variation labels, such as {"viewpoint_variation": {0, 1}}; other pairs are left out.
    """
    crop = get_protocol(protocol).crop_spair
    filters = filters or {}
    if size not in ("large", "small"):
        raise ConfigError(f"There is no list of pairs of size {size!r} in SPair-71k; choose large or small.")
    if unknown := set(filters) - set(LABELS):
        raise ConfigError(f"SPair-71k has no label {min(unknown)!r} to filter by; choose from {', '.join(LABELS)}.")
    top = find_folder(Path(root), ("SPair-71k", ".", "SPair-71k/SPair-71k"), "ImageAnnotation")
    skipped: Counter[str] = Counter()
    images = _read_images(top / "ImageAnnotation", crop)
    splits = {}
    for name, folder in SPLITS.items():
        names = _pair_names(top, size, folder)
        if filters:
            names = _filter_pairs(names, top / "PairAnnotation" / folder, filters, skipped)
        split = _read_split(names, images, skipped)
        if split.objects:
            splits[name] = split
    if not splits:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common(3)) or "no list of pairs"
        raise DataError(f"{top} has no usable pair ({reasons}).")
    return Dataset("spair-71k", protocol, splits, skipped)


def _pair_names(top: Path, size: str, folder: str) -> list[str]:
    """The names that Layout lists, or those of PairAnnotation where Layout is missing."""
    listed = top / "Layout" / size / f"{folder}.txt"
    if listed.is_file():
        return listed.read_text(encoding="utf-8", errors="replace").split()
    if (top / "Layout").is_dir() or size == "small":
        return []
    return sorted(path.stem for path in (top / "PairAnnotation" / folder).glob("*.json"))


def _read_split(
    names: Iterable[str], images: Mapping[tuple[str, str], AnnotatedObject | str], skipped: Counter[str]
) -> Split:
    """The pairs of one list, and the objects that they need."""
    index: dict[tuple[str, str], int] = {}  # (class, image) -> place in the split's objects
    objects: list[AnnotatedObject] = []
    pairs = []
    for name, times in Counter(names).items():
        if times > 1:
            skipped["pairs listed twice"] += times - 1
        try:
            keys = _parse_pair(name)
            found = [_usable(images, key) for key in keys]
        except _Skip as reason:
            skipped[str(reason)] += 1
            continue
        for key, obj in zip(keys, found, strict=True):
            if key not in index:
                index[key] = len(objects)
                objects.append(obj)
        pairs.append([index[key] for key in keys])
    return Split(tuple(objects), np.array(pairs, dtype=np.int64))


def _usable(images: Mapping[tuple[str, str], AnnotatedObject | str], key: tuple[str, str]) -> AnnotatedObject:
    obj = images.get(key, "an image without its ImageAnnotation")
    if isinstance(obj, str):
        raise _Skip(f"pairs with {obj}")
    return obj


def _parse_pair(name: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """`000001-2008_001546-2008_004704:aeroplane` -> (aeroplane, 2008_001546), (aeroplane, 2008_004704)."""
    match = PAIR.fullmatch(name)
    if match is None:
        raise _Skip("pairs with a name that is not <number>-<image>-<image>:<class>")
    image0, image1, label = match.groups()
    if label not in CLASSES:
        raise _Skip("pairs of an unknown class")
    return (label, image0), (label, image1)


def _read_images(annotations: Path, crop: bool) -> dict[tuple[str, str], AnnotatedObject | str]:
    """By class and image: the image with its keypoints, or the reason why it cannot be used."""
    paths = sorted(annotations.glob("*/*.json"))
    return {(path.parent.name, path.stem): _read_image(path, crop) for path in paths}


def _read_image(path: Path, crop: bool) -> AnnotatedObject | str:
    label = path.parent.name
    image = path.parents[2] / "JPEGImages" / label / f"{path.stem}.jpg"
    if not image.is_file():
        return "an image that is missing"
    try:
        annotation = json.loads(path.read_bytes())
        points = {name: (float(xy[0]), float(xy[1])) for name, xy in annotation["kps"].items() if xy is not None}
        xmin, ymin, xmax, ymax = (float(value) for value in annotation["bndbox"])
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "an image whose ImageAnnotation is broken"
    keypoints = np.array(list(points.values()), dtype=np.float32).reshape(-1, 2) + np.float32(TO_PIXEL_EDGES)  # (K, 2)
    if not len(keypoints) or not np.isfinite(keypoints).all():
        return "an image without keypoints"
    # VOC's boxes number the first and the last pixel from 1: from the left edge of the one to the right of the other.
    box: Box = (xmin - 1, ymin - 1, xmax - xmin + 1, ymax - ymin + 1)
    if crop and not (xmax > xmin and ymax > ymin and math.isfinite(sum(box))):
        return "an image whose box is empty"
    return AnnotatedObject(image, label, tuple(points), keypoints, box if crop else None)


def _filter_pairs(
    names: Iterable[str], folder: Path, filters: Mapping[str, Collection[int]], skipped: Counter[str]
) -> list[str]:
    """The pairs whose labels are all among the allowed values; pairs without a label are counted apart."""
    kept = []
    for name in names:
        try:
            labels = _read_labels(name, folder)
            for key, allowed in filters.items():
                if key not in labels:
                    raise _Skip(f"pairs without the label {key}")
                if labels[key] not in allowed:
                    raise _Skip(f"pairs filtered out by {key}")
            kept.append(name)
        except _Skip as reason:
            skipped[str(reason)] += 1
    return kept


def _read_labels(name: str, folder: Path) -> dict[str, object]:
    """The PairAnnotation of a pair, whose file has ":" or "_" before the class."""
    label = _parse_pair(name)[0][0]
    stem = name[: -len(label) - 1]
    for path in (folder / f"{stem}:{label}.json", folder / f"{stem}_{label}.json"):
        try:
            labels = json.loads(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError):
            raise _Skip("pairs whose PairAnnotation is broken") from None
        if isinstance(labels, dict):
            return labels
        raise _Skip("pairs whose PairAnnotation is broken")
    raise _Skip("pairs without their PairAnnotation, which a filter needs")
