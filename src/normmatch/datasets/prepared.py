"""The prepared cache: every crop decoded and resized once, into one memory-mapped file.

    <folder>/images.npy      (n, S, S, 3) uint8, a row for each object of the dataset
    <folder>/objects.json    by split: names, keypoints in crop pixels, the row of the image; pairs
    <folder>/manifest.json   what it was made of; a cache of anything else is noticed and made anew

It grows in `<folder>.partial` and gets its final name when it is complete. Of several processes that want the same
cache, as under torchrun, one makes it and the others wait for it.
"""

import errno
import hashlib
import itertools
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from normmatch.annotations import Annotation
from normmatch.datasets.crops import read_crop
from normmatch.datasets.image_file import ImageFile
from normmatch.datasets.types import Dataset, PreparedSplit
from normmatch.errors import DataError, NormMatchError
from normmatch.geometry import Box, crop_keypoints, resize_crop
from normmatch.io import locked
from normmatch.matching.prefetch import ahead
from normmatch.outputs import write_text
from normmatch.progress import show_progress

VERSION = 3  # of the cache's format
AHEAD = 64  # crops that are read before they are written
LOOK_AGAIN = 0.5  # seconds between two looks whether another process is done


@dataclass(frozen=True)
class PrepareReport:
    """What `prepare` did. `skipped` has one sentence for each object whose image could not be used."""

    objects: int  # in the cache now
    skipped: tuple[str, ...]
    dropped_pairs: int  # listed pairs that lost an object
    seconds: float  # 0 where it was there already


def prepare(dataset: Dataset, folder: Path, size: int, progress: bool = True, strict: bool = False) -> PrepareReport:
    """Decode, warp, crop and resize every object of `dataset` to (size, size), into the cache `folder`.

    Args:
        strict: raise on an image that cannot be used (own data) instead of skipping and counting it (benchmark).
    """
    folder = Path(folder).resolve()
    if not _all_objects(dataset):
        raise DataError(f"The dataset {dataset.name} has no objects to prepare.")
    if not 8 <= size <= 4096:
        raise DataError(f"The size of the prepared images is {size}; expected 8 to 4096 pixels.")
    wanted = {**_describe(dataset), "size": size}
    try:
        if earlier := _earlier_report(folder, wanted, strict):
            return earlier
        with _one_at_a_time(folder):
            if earlier := _earlier_report(folder, wanted, strict):  # made by the process that was waited for
                return earlier
            report = _build(dataset, folder, wanted, progress, strict)
    except OSError as error:
        full = "; make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise DataError(f"The cache {folder} cannot be written: {error.strerror or error}{full}.") from error
    if report.skipped:
        warnings.warn(
            f"{len(report.skipped)} of {report.objects + len(report.skipped)} objects of {dataset.name} were skipped, "
            f"and {report.dropped_pairs} pairs with them; the first: {' '.join(report.skipped[:3])}",
            stacklevel=2,
        )
    return report


def load_prepared(folder: Path) -> dict[str, PreparedSplit]:
    """Open a finished cache."""
    folder = Path(folder).resolve()
    manifest = _read_manifest(folder)
    if manifest is None or manifest["version"] != VERSION:
        raise DataError(f"{folder} is no prepared dataset of this version; run `normmatch data prepare`.")
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        if images.shape != (sum(manifest["objects"].values()), *[manifest["size"]] * 2, 3) or images.dtype != np.uint8:
            raise ValueError(f"images.npy holds {images.dtype} of shape {images.shape}")
        splits = json.loads((folder / "objects.json").read_bytes())
        return {name: _read_split(folder, split, len(images)) for name, split in splits.items()}
    except Exception as error:  # numpy and json raise whatever they stumble on: EOFError, BadZipFile, TokenError ...
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"The cache {folder} is damaged ({reason}); run `normmatch data prepare` again.") from error


def _all_objects(dataset: Dataset) -> list[Annotation]:
    """All objects, split after split: their order is the order of the rows."""
    return [item for split in dataset.splits.values() for item in split.objects]


def _source_names(items: Sequence[Annotation]) -> list[str]:
    """Image names relative to the folder that holds them all, so that a moved dataset keeps its cache."""
    paths = [item.path.absolute() for item in items]
    root = os.path.commonpath([path.parent for path in paths])
    return [path.relative_to(root).as_posix() for path in paths]


def _describe(dataset: Dataset) -> dict[str, Any]:
    """What a cache is made of: names, counts, and a hash of the annotations and of the images' sizes and times."""
    items, digest = _all_objects(dataset), hashlib.sha256()
    files: dict[str, Path] = {}
    for item, source in zip(items, _source_names(items), strict=True):
        homography = None if item.homography is None else np.asarray(item.homography, dtype=np.float64).tolist()
        box = None if item.box is None else [float(edge) for edge in item.box]
        digest.update(json.dumps([source, item.label, item.names, box, homography]).encode())
        digest.update(np.asarray(item.keypoints, dtype="<f4").tobytes())
        files[source] = item.path
    for split in dataset.splits.values():
        digest.update(b"any" if split.pairs is None else np.asarray(split.pairs, dtype="<i8").tobytes())
    for path in files.values():
        if path.exists():  # or `prepare` will say that it is missing, and the cache is stale once it is there
            digest.update(f"{path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    counts = {name: len(split.objects) for name, split in dataset.splits.items()}
    return {"version": VERSION, "dataset": dataset.name, "objects": counts, "made_of": digest.hexdigest()}


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a cache; None where there is nothing yet, an error where there is something else."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        if {"version", "dataset", "objects", "size", "skipped"} <= manifest.keys():
            return manifest
    except (OSError, ValueError, AttributeError, RecursionError):
        pass
    raise DataError(f"{folder} exists and is no prepared dataset; delete it or choose another folder.")


def _earlier_report(folder: Path, wanted: Mapping[str, Any], strict: bool) -> PrepareReport | None:
    """The report of a whole cache of just this; None where `folder` may be built (anew), an error where it may not."""
    found = _read_manifest(folder)
    if found is None:
        return None
    if found["dataset"] != wanted["dataset"]:
        raise DataError(f"{folder} holds the cache of {found['dataset']}; choose another folder or delete it.")
    if any(found.get(key) != value for key, value in wanted.items()):
        return None
    try:
        count = sum(len(split.objects) for split in load_prepared(folder).values())
    except DataError:  # damaged
        return None
    if strict and found["skipped"]:
        raise DataError(found["skipped"][0])
    return PrepareReport(count, tuple(found["skipped"]), found["dropped_pairs"], 0.0)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the lock of a cache; wait while another process has it, and say so."""
    with ExitStack() as held:
        for attempt in itertools.count():
            try:
                held.enter_context(locked(folder.with_name(f".{folder.name}.lock")))
                break
            except BlockingIOError:
                if not attempt:
                    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
                    console.print(f"Another process is preparing {folder}; waiting until it is done.")
                time.sleep(LOOK_AGAIN)
        yield


def _build(dataset: Dataset, folder: Path, manifest: dict[str, Any], progress: bool, strict: bool) -> PrepareReport:
    start, items = time.monotonic(), _all_objects(dataset)
    building = folder.with_name(folder.name + ".partial")
    shutil.rmtree(building, ignore_errors=True)  # of a run that was killed
    try:
        building.mkdir(parents=True)
        crops, skipped = _write_images(building / "images.npy", items, manifest["size"], progress, strict)
        if not crops:
            raise DataError(f"No image of {dataset.name} can be used, of {len(items)}; the first: {skipped[0]}")
        splits, dropped = _entries(dataset, crops, manifest["size"])
        write_text(building / "objects.json", json.dumps(splits))
        write_text(building / "manifest.json", json.dumps({**manifest, "skipped": skipped, "dropped_pairs": dropped}))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return PrepareReport(len(crops), tuple(skipped), dropped, time.monotonic() - start)


def _write_images(
    path: Path, items: Sequence[Annotation], size: int, progress: bool, strict: bool
) -> tuple[dict[int, Box], list[str]]:
    """Write a row for each object, black where there is none; the crops by row, and a sentence for each that failed."""
    crops: dict[int, Box] = {}
    skipped: list[str] = []
    with path.open("wb") as file:  # no memory map: a full disk is an OSError here and would be a bus error there
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(items), size, size, 3)}
        np.lib.format.write_array_header_1_0(file, header)
        results = ahead(partial(_read_one, size=size), items, AHEAD)
        for row, found in enumerate(show_progress(results, len(items), 0, progress)):
            if isinstance(found, str):
                if strict:
                    raise DataError(found)
                skipped.append(found)
                file.write(bytes(size * size * 3))
            else:
                crops[row], pixels = found
                file.write(pixels)
    return crops, skipped


def _read_one(item: Annotation, size: int) -> tuple[Box, bytes] | str:
    """The crop of an object and its resized pixels, or the sentence that says why it cannot be used."""
    try:
        image, crop = read_crop(item)
        return crop, resize_crop(image, crop, (size, size)).tobytes()
    except NormMatchError as error:
        return str(error)


def _entries(dataset: Dataset, crops: Mapping[int, Box], size: int) -> tuple[dict[str, Any], int]:
    """What objects.json holds, and the number of dropped pairs."""
    sources = _source_names(_all_objects(dataset))
    splits, start, dropped = {}, 0, 0
    for name, split in dataset.splits.items():
        kept = [index for index in range(len(split.objects)) if start + index in crops]
        objects = [
            _entry(split.objects[i], crops[start + i], size) | {"source": sources[start + i], "row": start + i}
            for i in kept
        ]
        pairs = None
        if split.pairs is not None:
            renumbered = np.full(len(split.objects), -1)
            renumbered[kept] = np.arange(len(kept))
            pairs = renumbered[np.asarray(split.pairs, dtype=np.int64).reshape(-1, 2)]  # (P, 2)
            whole = (pairs >= 0).all(axis=1)  # (P,)
            dropped += int((~whole).sum())
            pairs = pairs[whole].tolist()
        splits[name] = {"objects": objects, "pairs": pairs}
        start += len(split.objects)
    return splits, dropped


def _entry(item: Annotation, crop: Box, size: int) -> dict[str, Any]:
    keypoints = np.asarray(item.keypoints, dtype=np.float32)  # as `_describe` takes their hash
    return {
        "label": item.label,
        "names": item.names,
        "keypoints": crop_keypoints(keypoints, crop, (size, size)).tolist(),
        "source_size": [round(crop[2]), round(crop[3])],
    }


def _read_split(folder: Path, split: Mapping[str, Any], rows: int) -> PreparedSplit:
    objects = [
        Annotation(
            image=entry["source"],
            names=tuple(entry["names"]),
            keypoints=np.array(entry["keypoints"], dtype=np.float32).reshape(-1, 2),  # (K, 2)
            label=entry["label"],
        )
        for entry in split["objects"]
    ]
    sizes = np.array([entry["source_size"] for entry in split["objects"]], dtype=np.int64).reshape(-1, 2)  # (n, 2)
    images = ImageFile(folder / "images.npy", np.array([entry["row"] for entry in split["objects"]], dtype=np.int64))
    if len(images) and not 0 <= images.rows.min() <= images.rows.max() < rows:
        raise ValueError("objects.json does not fit images.npy")
    pairs = None if split["pairs"] is None else np.array(split["pairs"], dtype=np.int64).reshape(-1, 2)  # (P, 2)
    return PreparedSplit(images, objects, pairs, sizes)
