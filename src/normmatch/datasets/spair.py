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

from normmatch.annotations import Annotation
from normmatch.datasets.layout import ZERO_BASED_TO_OURS, Skip, Skipped, find_folder, main_reasons
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import Dataset, Split
from normmatch.errors import ConfigError, DataError
from normmatch.geometry import Box

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair"),
    *("cow", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "train", "tvmonitor"),
)
SPLITS = {"train": "trn", "val": "val", "test": "test"}
LABELS = ("viewpoint_variation", "scale_variation", "truncation", "occlusion")
PAIR = re.compile(r"\d+-([^-]+)-([^-]+)[:_]([a-z]+)")  # number - source image - target image : class

Image = tuple[str, str]  # class and name


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
    skipped = Skipped()
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
        raise DataError(f"{top} has no usable pair ({main_reasons(skipped)}).")
    skipped.warn("spair-71k")
    return Dataset("spair-71k", protocol, splits, skipped)


def _pair_names(top: Path, size: str, folder: str) -> list[str]:
    """The names that Layout lists, or those of PairAnnotation where Layout is missing."""
    listed = top / "Layout" / size / f"{folder}.txt"
    if listed.is_file():
        return listed.read_text(encoding="utf-8", errors="replace").split()
    if (top / "Layout").is_dir() or size == "small":
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


def _filter_pairs(
    names: Iterable[str], folder: Path, filters: Mapping[str, Collection[int]], skipped: Skipped
) -> list[str]:
    """The pairs whose labels are all among the allowed values; pairs without a label are counted apart."""
    kept = []
    for name in names:
        try:
            labels = _read_labels(name, folder)
            for key, allowed in filters.items():
                if key not in labels:
                    raise Skip(f"pairs without the label {key}", name)
                if labels[key] not in allowed:
                    raise Skip(f"pairs filtered out by {key}", name, expected=True)
            kept.append(name)
        except Skip as skip:
            skipped.add_skip(skip)
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
            raise Skip("pairs whose PairAnnotation is broken", path) from None
        if isinstance(labels, dict):
            return labels
        raise Skip("pairs whose PairAnnotation is broken", path)
    raise Skip("pairs without their PairAnnotation, which a filter needs", name)
