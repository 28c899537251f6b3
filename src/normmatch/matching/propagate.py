"""Annotate once, match everywhere: the named keypoints of one image are found among candidate points of all others.

The result is a COCO-keypoints file, which labelling tools open; the first image is the reference. Its annotations have
`score`, the mean of the matched keypoints' scores, and `keypoint_scores`, one for each name, as well; those of the
reference are 1. A keypoint without a partner has v = 0.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from normmatch import __version__, annotations
from normmatch.annotations import Annotation, coco
from normmatch.annotations.images import ImageIndex, find_image, image_files, upright_size
from normmatch.config import MatchOptions
from normmatch.errors import DataError
from normmatch.matching.matcher import Matcher
from normmatch.matching.pair_list import run_tasks
from normmatch.matching.run_folder import Record, Task
from normmatch.outputs import check_outputs, write_text, writing
from normmatch.progress import show_progress
from normmatch.weights import find_weights


@dataclass(frozen=True)
class Propagated:
    """What became of the images."""

    objects: int  # annotations in the file, the reference among them
    without: tuple[str, ...]  # images that have no candidates
    failed: tuple[str, ...]  # why objects could not be matched


def propagate(
    reference: Path,
    images: Path,
    candidates: Path,
    out: Path,
    options: MatchOptions,
    overwrite: bool = False,
    progress: bool = True,
) -> Propagated:
    """Match the keypoints of a reference image to the candidates of every other image; write COCO keypoints.

    Args:
        reference: a keypoints file with one object; its image is seen from the file's folder, or from `images`.
        images: the folder of the other images.
        candidates: a keypoints file with the candidate points of these images, whatever they are called; images are
            named as seen from this file's folder or from `images`.
        out: the file to write.
        options: how images are matched.
        overwrite: replace a file that was not written by this program, too.
        progress: whether a bar is shown.
    """
    everything = _images(images)
    model = _reference(reference, images)
    weights = find_weights(options.weights)
    check_outputs({"--out": out}, (reference, candidates, model.path, *everything, weights), overwrite)
    files = [file for file in everything if not os.path.samefile(file, model.image)]
    index = ImageIndex(annotations.read(candidates), candidates, images)
    without = tuple(file.relative_to(images).as_posix() for file in files if not index.all(file))
    found = [(file, item) for file in files for item in index.all(file)]
    if not found:
        raise DataError(f"{candidates} has no candidates for the {len(files):,} images in {images}.")
    tasks = [_task(row, model, file, item) for row, (file, item) in enumerate(found)]
    records = list(
        show_progress(run_tasks(Matcher.from_options(options), tasks, options), len(tasks), 0, progress, "images")
    )
    failed = tuple(record["error"] for record in records if "error" in record)
    if len(failed) == len(records):
        raise DataError(f"No image could be matched: {failed[0]}")
    matched = [(*found[record["row"]], record) for record in records if "error" not in record]
    with writing(out):
        write_text(out, _as_coco(model, images, matched))
    return Propagated(1 + len(matched), without, failed)


def _reference(path: Path, images: Path) -> Annotation:
    """The reference with the path of its image."""
    sets = annotations.read(path)
    if len(sets) != 1 or not sets[0].names:
        what = f"{len(sets)} objects" if len(sets) != 1 else "no keypoint"
        raise DataError(f"The reference {path} has {what}; expected one object with named keypoints.")
    (item,) = sets
    found = find_image(item.image, (path.parent, images))
    if found is None:
        raise DataError(f"The reference {path} is about {item.image}, which is neither beside it nor in {images}.")
    return replace(item, image=str(found))


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; expected one with images.")
    files = image_files(folder, recursive=True)
    if not files:
        raise DataError(f"There is no image in {folder}.")
    return files


def _task(row: int, model: Annotation, file: Path, item: Annotation) -> Task:
    task: Task = {"row": row, "image0": model.image, "image1": str(file), "box0": model.box, "box1": item.box}
    for side, points in (("0", model), ("1", item)):
        task |= {f"names{side}": points.names, f"keypoints{side}": points.keypoints.tolist()}
    return task


def _found(model: Annotation, name: str, item: Annotation, record: Record, size: tuple[int, int]) -> Annotation:
    """The reference's keypoints where they were found in an object."""
    pairs = [(index, match) for index, match in enumerate(record["matches0"]) if match >= 0]
    places = [item.keypoints[match] for _, match in pairs]
    return Annotation(
        name,
        tuple(model.names[index] for index, _ in pairs),
        np.array(places).reshape(-1, 2),
        item.box or _extent(places, size),
        model.label,
        scores=np.array([record["matching_scores0"][index] for index, _ in pairs]),
    )


def _as_coco(model: Annotation, images: Path, matched: Sequence[tuple[Path, Annotation, Record]]) -> str:
    """The reference and what was found, as a COCO file whose images are seen from their folder."""
    name, size = Path(os.path.relpath(model.image, images)).as_posix(), upright_size(model.path) or (0, 0)
    box, scores = model.box or _extent(list(model.keypoints), size), np.ones(len(model.names))
    sizes, found = {name: size}, [replace(model, image=name, box=box, scores=scores)]
    for file, item, record in matched:
        name = file.relative_to(images).as_posix()
        sizes[name] = upright_size(file) or (0, 0)  # it was read before
        found.append(_found(model, name, item, record, sizes[name]))
    about = f"keypoints of {model.path.name}, found in other images by NormMatch {__version__}"
    return coco.write(found, sizes, about)


def _extent(places: Sequence[Any], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """A box around points, or the whole image where there is none."""
    if not places:
        return 0.0, 0.0, float(size[0]), float(size[1])
    (x0, y0), (x1, y1) = (tuple(float(f(values)) for values in zip(*places, strict=True)) for f in (min, max))
    return x0, y0, max(x1 - x0, 1.0), max(y1 - y0, 1.0)
