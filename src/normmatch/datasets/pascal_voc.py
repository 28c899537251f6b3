"""PascalVOC keypoints: VOC 2011 images and object flags, Berkeley's keypoints, the split of the graph-matching papers.

root/TrainVal/VOCdevkit/VOC2011/{JPEGImages,Annotations}   images; difficult, occluded, truncated
root/annotations/<class>/<image>_<object>.xml              visible_bounds and keypoints
root/voc2011_pairs.npz                                     names of the training and test objects
"""

import io
import os
import pickletools
import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from normmatch.annotations import Annotation
from normmatch.datasets.layout import MATLAB_TO_OURS, UNUSABLE, Skipped, find_folder, main_reasons
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
ENTRY = re.compile(r"([a-z]+)/(\d{4}_\d+)_(\d+)\.xml")  # class / image, which begins with its year, object
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
    for entry in dict.fromkeys(entries):
        try:
            label, image, order = _parse_entry(entry)
            if label == "person" and int(image[:4]) > LAST_PERSON_YEAR:
                skipped.add(f"persons of years after {LAST_PERSON_YEAR}", entry, expected=True)
                continue
            if image not in flagged:
                flagged[image] = _read_flags(voc / "Annotations" / f"{image}.xml")
            # Persons alone are numbered from 0, by an order of their own. The published codes look up order - 1 all the
            # same, and so the last object for 0: that choice of persons is the benchmark, and it is kept.
            if flagged[image][order - 1]:
                skipped.add("objects that are difficult, occluded or truncated", entry, expected=True)
                continue
            path = voc / "JPEGImages" / f"{image}.jpg"
            if path.name not in images:
                raise FileNotFoundError(path)
            names, keypoints, box = _read_keypoints(berkeley / entry, keep_outside, skipped)
        except (*UNUSABLE, ElementTree.ParseError):
            skipped.add("objects whose files are missing or broken", entry)
            continue
        if names:
            objects.append(Annotation(str(path), names, keypoints, box, label))
        else:
            skipped.add("objects with no keypoint left", entry, expected=True)
    return tuple(objects)


def _parse_entry(entry: str) -> tuple[str, str, int]:
    """`cat/2008_000123_2.xml` -> (cat, 2008_000123, 2)."""
    match = ENTRY.fullmatch(entry)
    if match is None or match[1] not in CLASSES:
        raise ValueError(f"{entry} is not <class>/<image>_<object>.xml")
    return match[1], match[2], int(match[3])


def _read_flags(path: Path) -> list[bool]:
    """For each object of an image in VOC's order: is it difficult, occluded or truncated."""
    objects = ElementTree.parse(path).getroot().findall("object")
    return [any(obj.findtext(flag) == "1" for flag in ("difficult", "occluded", "truncated")) for obj in objects]


def _read_keypoints(path: Path, keep_outside: bool, skipped: Skipped) -> tuple[tuple[str, ...], np.ndarray, Box]:
    """Names, keypoints (K, 2) and crop of one object."""
    xml = ElementTree.parse(path).getroot()
    bounds = xml.findall("visible_bounds")[0].attrib
    xmin, ymin, width, height = (float(bounds[key]) for key in ("xmin", "ymin", "width", "height"))
    if not (width > 0 and height > 0):
        raise ValueError("the box is empty")
    # Berkeley's coordinates and bounds are Matlab's. Measured, too: over 29,000 visible keypoints the mean offset to
    # the strongest corner nearby is nil for a shift of -0.7 in x and -0.4 in y (standard error 0.1).
    points: dict[str, tuple[float, float]] = {}
    for keypoint in xml.iterfind("keypoints/keypoint"):
        name, x, y = keypoint.attrib["name"], float(keypoint.attrib["x"]), float(keypoint.attrib["y"])
        if keep_outside or (xmin <= x <= xmin + width and ymin <= y <= ymin + height):
            points[name] = x + MATLAB_TO_OURS, y + MATLAB_TO_OURS
        else:
            skipped.add("keypoints outside the crop", path, expected=True)
    keypoints = np.array(list(points.values())).reshape(-1, 2)  # (K, 2)
    if not np.isfinite(keypoints).all():
        raise ValueError("a keypoint has no place")
    return tuple(points), keypoints, (xmin + MATLAB_TO_OURS, ymin + MATLAB_TO_OURS, width, height)
