"""The prepared cache: every crop decoded and resized once, into one memory-mapped file.

    <folder>/images.npy      (n, S, S, 3) uint8, a row for each object of the dataset
    <folder>/objects.json    by split: names, keypoints in crop pixels, the row of the image; pairs
    <folder>/manifest.json   what it was made of; a cache of anything else is noticed and not used

It grows in `<folder>.partial`, where `done.jsonl` lists the finished rows, so that an interrupted `prepare` goes on
where it stopped. It gets its final name when it is complete. Of several processes that want the same cache, as under
torchrun, one makes it and the others wait for it.
"""

import errno
import json
import operator
import os
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from normmatch.annotations import Annotation
from normmatch.checks import check_count
from normmatch.config import MAX_WORKERS
from normmatch.datasets.crops import read_crop
from normmatch.datasets.image_file import ImageFile
from normmatch.datasets.manifest import (
    VERSION,
    all_objects,
    describe,
    differences,
    how_to_prepare,
    partial_folder,
    read_manifest,
    source_names,
)
from normmatch.datasets.types import Dataset, PreparedSplit
from normmatch.datasets.workers import cores, one_at_a_time, run_tasks
from normmatch.errors import DataError, NormMatchError
from normmatch.geometry import Box, crop_keypoints, resize_crop
from normmatch.outputs import write_text
from normmatch.progress import show_progress

FILES = ("images.npy", "objects.json", "manifest.json", "done.jsonl")


@dataclass(frozen=True)
class PrepareReport:
    """What `prepare` did. `skipped` has one sentence for each object whose image could not be used."""

    folder: Path
    objects: int  # in the cache now
    reused: int  # of them, finished by an earlier run
    skipped: tuple[str, ...]
    dropped_pairs: int  # listed pairs that lost an object
    seconds: float


def prepare(
    dataset: Dataset, folder: Path, size: int, workers: int | None = None, progress: bool = True, strict: bool = False
) -> PrepareReport:
    """Decode, warp, crop and resize every object of `dataset` to (size, size), into the cache `folder`.

    Args:
        workers: number of processes; None is one a core, 1 stays in this process.
        strict: raise on an image that cannot be used (own data) instead of skipping and counting it (benchmark).
    """
    folder = Path(folder).resolve()
    if not all_objects(dataset):
        raise DataError(f"The dataset {dataset.name} has no objects to prepare.")
    if not 8 <= size <= 4096:
        raise DataError(f"The size of the prepared images is {size}; expected 8 to 4096 pixels.")
    workers = check_count(cores() if workers is None else workers, "workers", 1, MAX_WORKERS)
    manifest = {**describe(dataset), "size": size}
    try:
        if earlier := _earlier_report(folder, manifest, strict):
            return earlier
        with one_at_a_time(folder.with_name(f".{folder.name}.lock"), f"preparing {folder}"):
            if earlier := _earlier_report(folder, manifest, strict):  # made by the process that was waited for
                return earlier
            report = _build(dataset, folder, manifest, workers, progress, strict)
    except OSError as error:
        raise _disk_error(folder, error) from error
    if report.skipped:
        warnings.warn(
            f"{len(report.skipped)} of {report.objects + len(report.skipped)} objects of {dataset.name} were skipped, "
            f"and {report.dropped_pairs} pairs with them; the first: {' '.join(report.skipped[:3])}",
            stacklevel=2,
        )
    return report


def load_prepared(folder: Path, expected: Dataset | None = None, size: int | None = None) -> dict[str, PreparedSplit]:
    """Open a finished cache; with `expected` or `size`, raise a DataError unless it was made of exactly that."""
    folder = Path(folder).resolve()
    manifest = read_manifest(folder)
    rebuild = f"{how_to_prepare(folder)} again to rebuild it"
    wanted = {"version": VERSION, **(describe(expected) if expected else {}), **({"size": size} if size else {})}
    if differing := differences(manifest, wanted):
        raise DataError(f"The cache {folder} does not fit: {', '.join(differing)}; {rebuild}.")
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        if images.shape != (sum(manifest["objects"].values()), *[manifest["size"]] * 2, 3) or images.dtype != np.uint8:
            raise ValueError(f"images.npy holds {images.dtype} of shape {images.shape}")
        splits = json.loads((folder / "objects.json").read_bytes())
        return {name: _read_split(folder, split, len(images)) for name, split in splits.items()}
    except Exception as error:  # numpy and json raise whatever they stumble on: EOFError, BadZipFile, TokenError ...
        reason = getattr(error, "strerror", None) or error
        place = folder.name if "--root" in rebuild else folder  # said once, or the command might be cut out
        raise DataError(f"The cache {place} is damaged ({reason}); {rebuild}.") from error


def _earlier_report(folder: Path, manifest: Mapping[str, Any], strict: bool) -> PrepareReport | None:
    """The report of a whole cache of just this; None where `folder` may be built (anew), an error where it may not."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not (folder / "manifest.json").is_file():
        raise DataError(f"{folder} exists and is no prepared dataset; choose another folder.")
    found = read_manifest(folder)
    if found["dataset"] != manifest["dataset"]:
        raise DataError(f"{folder} holds the cache of {found['dataset']}; choose another folder or delete it.")
    try:
        count = sum(len(split.objects) for split in load_prepared(folder).values())
    except DataError:  # damaged, or of an older version
        return None
    if differences(found, manifest):
        return None
    if strict and found["skipped"]:
        raise DataError(found["skipped"][0])
    return PrepareReport(folder, count, count, tuple(found["skipped"]), found["dropped_pairs"], 0.0)


def _build(
    dataset: Dataset, folder: Path, manifest: dict[str, Any], workers: int, progress: bool, strict: bool
) -> PrepareReport:
    start = time.monotonic()
    items = all_objects(dataset)
    partial = _open_partial(folder, manifest)
    crops = _read_done(partial)
    reused = len(crops)
    skipped = _fill(partial, items, crops, manifest["size"], workers, progress, strict)
    if not crops:
        raise DataError(f"No image of {dataset.name} can be used, of {len(items)}; the first: {skipped[0]}")
    dropped = _finish(partial, folder, dataset, {**manifest, "skipped": skipped}, crops)
    return PrepareReport(folder, len(crops), reused, tuple(skipped), dropped, time.monotonic() - start)


def _open_partial(folder: Path, manifest: dict[str, Any]) -> Path:
    """The folder to build in: the one an interrupted run left, if it was for the same, or else a fresh one."""
    partial = partial_folder(folder)
    images, size = partial / "images.npy", manifest["size"]
    shape = (sum(manifest["objects"].values()), size, size, 3)
    try:
        found = json.loads((partial / "manifest.json").read_bytes())
        same = not differences(found, manifest) and images.stat().st_size > np.prod(shape)
    except (OSError, ValueError, AttributeError, RecursionError):
        same = False
    partial.mkdir(parents=True, exist_ok=True)
    if not same:
        for name in FILES:
            (partial / name).unlink(missing_ok=True)
    here = images.stat().st_blocks * 512 if same and hasattr(os.stat_result, "st_blocks") else 0  # the file is sparse
    need, free = int(np.prod(shape)) - here, shutil.disk_usage(partial).free
    if need > free:
        raise DataError(
            f"The cache {folder} needs {need / 1e9:.2f} GB more and its disk has {free / 1e9:.2f} GB free; "
            f"make room or choose another folder."
        )
    if not same:
        np.lib.format.open_memmap(images, mode="w+", dtype=np.uint8, shape=shape)
        write_text(partial / "manifest.json", json.dumps(manifest))
    return partial


def _read_done(partial: Path) -> dict[int, Box]:
    """The crops of the rows that are done; a line that was cut off or damaged is done again."""
    crops: dict[int, Box] = {}
    path = partial / "done.jsonl"
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            row, x, y, width, height = json.loads(line)
            crops[operator.index(row)] = (float(x), float(y), float(width), float(height))
        except (ValueError, TypeError, RecursionError):
            continue
    return crops


def _fill(
    partial: Path,
    items: Sequence[Annotation],
    crops: dict[int, Box],
    size: int,
    workers: int,
    progress: bool,
    strict: bool,
) -> list[str]:
    """Fill the rows that are missing in `crops`, and `crops` with them; returns a sentence for each that failed."""
    images = partial / "images.npy"
    offset = np.load(images, mmap_mode="r").offset  # where the first row begins in the file
    tasks = {
        row: (item, images, offset + row * size * size * 3, size) for row, item in enumerate(items) if row not in crops
    }
    failed: dict[int, str] = {}
    results = run_tasks(_prepare_one, tasks, workers)
    with (partial / "done.jsonl").open("a") as done:
        for row, result in show_progress(results, len(items), len(crops), progress):
            if result is None:
                result = f"The process that read {items[row].image} was killed; the image may be too large or damaged."
            if isinstance(result, str):
                if strict:
                    raise DataError(result)
                failed[row] = result
            else:
                crops[row] = result
                done.write(json.dumps([row, *result]) + "\n")
                done.flush()
    return [failed[row] for row in sorted(failed)]


def _prepare_one(item: Annotation, images: Path, position: int, size: int) -> Box | str:
    """Write the crop to its place in the file; returns the crop, or the sentence that says why it cannot be used."""
    try:
        image, crop = read_crop(item)
        pixels = resize_crop(image, crop, (size, size)).tobytes()
    except NormMatchError as error:
        return str(error)
    except Exception as error:  # a mistake of ours, but the sentence must name the file
        raise DataError(f"{item.image} could not be prepared: {error!r}.") from error
    # A plain write and not the memory map: a full disk is then an OSError here and not a bus error.
    with images.open("r+b") as file:
        file.seek(position)
        file.write(pixels)
    return crop


def _finish(partial: Path, folder: Path, dataset: Dataset, manifest: dict[str, Any], crops: dict[int, Box]) -> int:
    """Write what belongs to the images, and give the cache its final name; returns the number of dropped pairs."""
    sources = source_names(all_objects(dataset))
    splits, start, dropped = {}, 0, 0
    for name, split in dataset.splits.items():
        kept = [index for index in range(len(split.objects)) if start + index in crops]
        entries = [
            _entry(split.objects[index], sources[start + index], start + index, crops[start + index], manifest["size"])
            for index in kept
        ]
        pairs = None
        if split.pairs is not None:
            renumbered = np.full(len(split.objects), -1)
            renumbered[kept] = np.arange(len(kept))
            pairs = renumbered[np.asarray(split.pairs, dtype=np.int64).reshape(-1, 2)]  # (P, 2)
            whole = (pairs >= 0).all(axis=1)  # (P,)
            dropped += int((~whole).sum())
            pairs = pairs[whole].tolist()
        splits[name] = {"objects": entries, "pairs": pairs}
        start += len(split.objects)
    write_text(partial / "objects.json", json.dumps(splits))
    write_text(partial / "manifest.json", json.dumps({**manifest, "dropped_pairs": dropped}))
    stale = folder.with_name(folder.name + ".stale")
    shutil.rmtree(stale, ignore_errors=True)  # of a run that was killed right here
    if folder.exists():  # a folder cannot be replaced in one step unless it is empty
        os.replace(folder, stale)
    os.replace(partial, folder)
    (folder / "done.jsonl").unlink()  # only now: killed before, the next run finds all rows done
    shutil.rmtree(stale, ignore_errors=True)
    return dropped


def _entry(item: Annotation, source: str, row: int, crop: Box, size: int) -> dict[str, Any]:
    keypoints = np.asarray(item.keypoints, dtype=np.float32)  # as `describe` takes their hash
    return {
        "label": item.label,
        "names": item.names,
        "keypoints": crop_keypoints(keypoints, crop, (size, size)).tolist(),
        "source": source,
        "source_size": [round(crop[2]), round(crop[3])],
        "row": row,
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


def _disk_error(folder: Path, error: OSError) -> DataError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(f"The disk of {folder} is full; make room and prepare again: it goes on where it stopped.")
    return DataError(f"The cache {folder} cannot be written: {error.strerror or error}.")
