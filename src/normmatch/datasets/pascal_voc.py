"""PascalVOC keypoints: VOC 2011 images and object flags, Berkeley's keypoints, the split of the graph-matching papers.

root/TrainVal/VOCdevkit/VOC2011/{JPEGImages,Annotations}   images; difficult, occluded, truncated
root/annotations/<class>/<image>_<object>.xml              visible_bounds and keypoints
root/voc2011_pairs.npz                                     names of the training and test objects
"""

import io
import math
import os
import pickletools
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from normmatch.annotations import Annotation
from normmatch.datasets.layout import MATLAB_TO_OURS, Skip, Skipped, find_folder, main_reasons
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import Dataset, Split
from normmatch.datasets.validation_split import validation_split
from normmatch.errors import DataError
from normmatch.geometry import Box

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
SPLIT_FILE = "voc2011_pairs.npz"
LARGEST_SPLIT = 16 << 20  # bytes unpacked; the real one has 0.6 MB
ENTRY = re.compile(r"([a-z]+)/(\d{4})(_\d+)_(\d+)\.xml")  # class / year, image, object
LAST_PERSON_YEAR = 2008


def read_split(path: Path) -> dict[str, list[str]]:
    """Names of the `train` and `test` objects, in the order of the 20 lists that the file has.

    They are pickled; only the strings among the pickle's instructions are taken, and nothing is run.
    """
    split = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for key in ("train", "test"):
                entry = archive.getinfo(f"{key}.npy")
                if entry.file_size > LARGEST_SPLIT:
                    raise ValueError(f"it unpacks to more than {LARGEST_SPLIT} bytes")
                stream = io.BytesIO(archive.read(entry))
                stream.seek(10)  # behind the magic bytes of a .npy file, in front of its header, which is one line
                stream.readline()
                words = (word for _, word, _ in pickletools.genops(stream))
                split[key] = [word for word in words if isinstance(word, str) and word.endswith(".xml")]
                if not split[key]:
                    raise ValueError(f"{key} holds no names of objects")
    except FileNotFoundError:
        raise DataError(f"{path} is missing; expected the split file {SPLIT_FILE} there.") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not the split file {SPLIT_FILE}: {error}.") from None
    return split


def load(root: Path, protocol: str = "nmt", val_share: float = 0.1, seed: int = 0) -> Dataset:
    """Read PascalVOC keypoints.

    Args:
        root: the folder that the archives were unpacked into.
        protocol: `nmt` and `bbgm` drop keypoints outside the crop, `thinkmatch` keeps them.
        val_share: share of the training objects of each class that becomes the split `val`; 0 makes none.
        seed: fixes which ones.
    """
    rules = get_protocol(protocol)
    root = Path(root)
    voc = find_folder(root, ("TrainVal/VOCdevkit/VOC2011", "VOCdevkit/VOC2011", "VOC2011", "."), "JPEGImages")
    berkeley = find_folder(root, (".", "PascalVOC", "TrainVal", "TrainVal/VOCdevkit"), "annotations") / "annotations"
    names = read_split(find_folder(root, (".", "PascalVOC", "annotations"), SPLIT_FILE) / SPLIT_FILE)
    skipped = Skipped()
    train, test = (_read_objects(names[key], voc, berkeley, rules.keep_outside, skipped) for key in ("train", "test"))
    if not train or not test:
        raise DataError(
            f"{root} has {len(train)} usable training and {len(test)} test objects ({main_reasons(skipped)})."
        )
    train, val = validation_split(train, val_share, seed, rules.fewest_shared)
    skipped.warn("pascal-voc")
    splits = {"train": train, "val": val, "test": test}
    return Dataset("pascal-voc", protocol, {name: Split(items) for name, items in splits.items() if items}, skipped)


def _read_objects(
    entries: Sequence[str], voc: Path, berkeley: Path, keep_outside: bool, skipped: Skipped
) -> tuple[Annotation, ...]:
    """All objects that the split names and the filters admit; the others are counted in `skipped`."""
    images = set(os.listdir(voc / "JPEGImages"))
    flagged: dict[str, list[bool]] = {}  # by image: is each object difficult, occluded or truncated
    objects = []
    for entry, times in Counter(entries).items():
        if times > 1:
            skipped.add("objects listed twice", entry, times=times - 1)
        try:
            label, image, order = _parse_entry(entry)
            xml = voc / "Annotations" / f"{image}.xml"
            if image not in flagged:
                flagged[image] = _read_flags(xml)
            if not 0 <= order <= len(flagged[image]) or not flagged[image]:
                raise Skip("objects that VOC's xml does not have", xml)
            # Persons alone are numbered from 0, by an order of their own. The published codes look up order - 1 all the
            # same, and so the last object for 0: that choice of persons is the benchmark, and it is kept.
            if flagged[image][order - 1]:
                raise Skip("objects that are difficult, occluded or truncated", entry, expected=True)
            path = voc / "JPEGImages" / f"{image}.jpg"
            if path.name not in images:
                raise Skip("objects without their image", path)
            names, keypoints, box = _read_keypoints(berkeley / entry, keep_outside, skipped)
            objects.append(Annotation(str(path), names, keypoints, box, label))
        except Skip as skip:
            skipped.add_skip(skip)
    return tuple(objects)


def _parse_entry(entry: str) -> tuple[str, str, int]:
    """`cat/2008_000123_2.xml` -> (cat, 2008_000123, 2)."""
    match = ENTRY.fullmatch(entry)
    if match is None:
        raise Skip("objects with a name that is not <class>/<image>_<object>.xml", entry)
    label, year, number, order = match.groups()
    if label not in CLASSES:
        raise Skip("objects of an unknown class", entry)
    if label == "person" and int(year) > LAST_PERSON_YEAR:
        raise Skip(f"persons of years after {LAST_PERSON_YEAR}", entry, expected=True)
    return label, year + number, int(order)


def _parse_xml(path: Path, what: str) -> ElementTree.Element:
    try:
        return ElementTree.parse(path).getroot()
    except FileNotFoundError:
        raise Skip(f"objects without their {what} xml", path) from None
    except (ElementTree.ParseError, OSError, ValueError):
        raise Skip(f"objects with a broken {what} xml", path) from None


def _read_flags(path: Path) -> list[bool]:
    """For each object of an image in VOC's order: is it difficult, occluded or truncated."""
    objects = _parse_xml(path, "VOC").findall("object")
    return [any(obj.findtext(flag) == "1" for flag in ("difficult", "occluded", "truncated")) for obj in objects]


def _read_keypoints(path: Path, keep_outside: bool, skipped: Skipped) -> tuple[tuple[str, ...], np.ndarray, Box]:
    """Names, keypoints (K, 2) and crop of one object."""
    xml = _parse_xml(path, "keypoint")
    bounds = xml.find("visible_bounds")
    if bounds is None:
        raise Skip("objects without visible_bounds", path)
    xmin, ymin, width, height = (_number(bounds.get(key)) for key in ("xmin", "ymin", "width", "height"))
    if not (width > 0 and height > 0 and math.isfinite(xmin + ymin + width + height)):
        raise Skip("objects with an empty box", path)
    # Berkeley's coordinates and bounds are Matlab's. Measured, too: over 29,000 visible keypoints the mean offset to
    # the strongest corner nearby is nil for a shift of -0.7 in x and -0.4 in y (standard error 0.1).
    points: dict[str, tuple[float, float]] = {}
    for keypoint in xml.iterfind("keypoints/keypoint"):
        name, x, y = keypoint.get("name"), _number(keypoint.get("x")), _number(keypoint.get("y"))
        if name is None or not math.isfinite(x + y):
            skipped.add("keypoints without a name or coordinates", path)
        elif name in points:
            skipped.add("keypoints with a repeated name", path)
        elif keep_outside or (xmin <= x <= xmin + width and ymin <= y <= ymin + height):
            points[name] = x + MATLAB_TO_OURS, y + MATLAB_TO_OURS
        else:
            skipped.add("keypoints outside the crop", path, expected=True)
    if not points:
        raise Skip("objects with no keypoint left", path, expected=True)
    box = (xmin + MATLAB_TO_OURS, ymin + MATLAB_TO_OURS, width, height)
    return tuple(points), np.array(list(points.values())), box


def _number(text: str | None) -> float:
    """The number, or nan where there is none."""
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
