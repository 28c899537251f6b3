"""What a prepared cache was made of, so that a stale or a foreign one is noticed."""

import hashlib
import json
import os
import re
import shlex
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from normmatch.annotations import Annotation
from normmatch.datasets.types import Dataset
from normmatch.errors import DataError

VERSION = 2  # of the cache's format
ENDS = 65536  # bytes at the start and at the end of an image file that are looked at


def all_objects(dataset: Dataset) -> list[Annotation]:
    """All objects, split after split: their order is the order of the rows."""
    return [item for split in dataset.splits.values() for item in split.objects]


def source_names(items: Sequence[Annotation]) -> list[str]:
    """Image names relative to the folder that holds them all, so that a moved dataset keeps its cache."""
    paths = [item.path.absolute() for item in items]
    root = os.path.commonpath([path.parent for path in paths]) if paths else ""
    return [path.relative_to(root).as_posix() for path in paths]


def describe(dataset: Dataset) -> dict[str, Any]:
    """The manifest's account of a dataset: names, counts, and hashes of its annotations and of its files."""
    items = all_objects(dataset)
    sources = source_names(items)
    annotations = hashlib.sha256()
    for item, source in zip(items, sources, strict=True):
        homography = None if item.homography is None else np.asarray(item.homography, dtype=np.float64).tolist()
        box = None if item.box is None else [float(edge) for edge in item.box]
        annotations.update(json.dumps([source, item.label, item.names, box, homography]).encode())
        annotations.update(np.asarray(item.keypoints, dtype="<f4").tobytes())
    for split in dataset.splits.values():
        annotations.update(b"any" if split.pairs is None else np.asarray(split.pairs, dtype="<i8").tobytes())
    files = {source: item.path for item, source in zip(items, sources, strict=True)}
    prints = {source: _fingerprint(path) for source, path in files.items()}
    return {
        "version": VERSION,
        "dataset": dataset.name,
        "protocol": dataset.protocol,
        "objects": {name: len(split.objects) for name, split in dataset.splits.items()},
        "source_bytes": sum(size for size, _ in prints.values()),
        "annotations": annotations.hexdigest(),
        "sources": hashlib.sha256(json.dumps(prints, sort_keys=True).encode()).hexdigest(),
    }


def _fingerprint(path: Path) -> tuple[int, int]:
    """Size and checksum of both ends: an image that was edited shows, and 12,000 of them take a second or two."""
    try:
        size = path.stat().st_size
        with path.open("rb", buffering=0) as file:
            checksum = zlib.crc32(file.read(ENDS))
            file.seek(max(size - ENDS, 0))
            return size, zlib.crc32(file.read(ENDS), checksum)
    except OSError:  # missing: `prepare` will say so, and the cache is stale once it is there
        return 0, -1


def differences(manifest: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What a cache has and what it should have, in words."""
    words = {"version": "format version", "objects": "number of objects", "size": "image size"}
    changed = {"annotations": "the annotations have changed", "sources": "the image files have changed"}
    differing = [key for key, value in wanted.items() if manifest.get(key) != value and key != "source_bytes"]
    for key in ("version", "dataset"):
        if key in differing:
            differing = [key]  # the rest differs with it
    return [
        changed.get(key) or f"its {words.get(key, key)} is {manifest.get(key)} and not {wanted[key]}"
        for key in differing
    ]


def partial_folder(folder: Path) -> Path:
    """Where the cache `folder` grows until it is complete."""
    return folder.with_name(folder.name + ".partial")


def how_to_prepare(folder: Path) -> str:
    """What to do for a cache, as a command where the path tells it: ROOT/prepared/NAME-PROTOCOL-SIZE."""
    parts = re.fullmatch(r"(.+)-([a-z]+)-([0-9]+)", folder.name)
    if parts is None or folder.parent.name != "prepared":
        return "prepare the dataset"
    name, protocol, size = parts.groups()
    if "+" in name or "-no-" in name:
        return "train once more"  # which prepares a mixture
    root = shlex.quote(str(folder.parent.parent))
    return f"run `normmatch data prepare {name} --root {root} --protocol {protocol} --size {size}`"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished cache, or a sentence that says why there is none."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        unfinished = " (it was interrupted and will go on)" if partial_folder(folder).is_dir() else ""
        raise DataError(f"{folder} is no prepared dataset; {how_to_prepare(folder)} first{unfinished}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{folder / 'manifest.json'} cannot be read ({error}); delete {folder} and prepare again."
        ) from error
    if not (isinstance(manifest, dict) and {"version", "dataset", "objects", "size", "skipped"} <= manifest.keys()):
        raise DataError(f"{folder / 'manifest.json'} is no manifest of a prepared dataset; choose another folder.")
    return manifest
