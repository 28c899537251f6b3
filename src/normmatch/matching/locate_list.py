"""Landmarks of a keypoints file, found in a folder of photographs: resumable, and none that fails stops the others.

What it leaves is in `run_folder` and `located_files`.
"""

import glob
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from normmatch import __version__, annotations
from normmatch.annotations import Annotation
from normmatch.annotations.images import ImageIndex, find_image, image_files
from normmatch.annotations.names import swap_left_right
from normmatch.checks import check_count
from normmatch.config import MAX_WORKERS, Format, LocateOptions
from normmatch.errors import DataError, NormMatchError
from normmatch.extras import require
from normmatch.io import read_text
from normmatch.matching.given import Reference
from normmatch.matching.landmarks import Landmarks
from normmatch.matching.locate import POOL, REMEMBERED, choose_evenly, choose_references, prepare
from normmatch.matching.located_files import SEEM_TURNED, SURE, Names, Summary, edited, write_files
from normmatch.matching.matcher import Matcher, chunks
from normmatch.matching.run_folder import Record, Task, add_to_run, digest, files_of, run_tasks_in
from normmatch.matching.sight import Photograph, Sight
from normmatch.outputs import check_outputs
from normmatch.weights import find_weights

HANDED_OUT = 32  # photographs that a worker of Ray gets at a time
CHECKED = 4  # photographs that are turned to see whether that helps, where the certainty is low altogether
MAX_LIST = 64 << 20  # bytes of a list of photographs


def locate_list(
    reference: Path,
    photographs: Sequence[Path | str],
    out: Path,
    options: LocateOptions,
    *,
    boxes: Path | None = None,
    format: Format = "coco",
    pictures: int = 100,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Find the landmarks of a keypoints file's photographs in others.

    Args:
        reference: one annotated photograph or several, an object in each.
        photographs: files, folders, patterns such as *.jpg, or lists: .txt files with a photograph a line.
        out: the folder for the results; what an earlier run has left there is continued.
        options: how they are located.
        boxes: a keypoints file that says where the objects are.
        format: of the file with all landmarks.
        pictures: how many photographs are drawn, the least sure first.
        engine: local is this process; ray spreads the photographs over the workers of a Ray cluster.
        workers: processes of Ray; one for each core or GPU of the cluster if not given.
        overwrite: replace files that were not written by this program, too.
        progress: whether a bar is shown.
    """
    if workers is not None:
        check_count(workers, "workers", 1, MAX_WORKERS)
    check_count(options.references, "references", 1, 10_000)
    require(*(["ray"] if engine == "ray" else []), *(["matplotlib"] if pictures else []))
    names, known = read_references(reference)
    own = {os.path.realpath(one.image) for one in known}
    files = [file for file in find_photographs(photographs) if os.path.realpath(file) not in own]
    if not files:
        raise DataError(f"There is no photograph but the references in {' '.join(map(str, photographs))}.")
    index = None if boxes is None else ImageIndex(annotations.read(boxes), boxes)
    tasks: list[Task] = [{"row": i, "image": str(file), "box": _box(index, file)} for i, file in enumerate(files)]
    given = [reference, *([boxes] if boxes else []), find_weights(options.weights)]
    check_outputs({"--out": [*files_of(out), *edited(out, format)]}, [*given, *own, *files], overwrite)
    asked = {key: value for key, value in asdict(options).items() if key != "device"} | {
        "normmatch": __version__, "files given": digest(given), "tasks": json.dumps(tasks),
        "landmarks": list(names.all),
    }  # fmt: skip
    arguments = (asdict(options), known, names, tasks)
    worker = LocateWorker(*arguments)

    def run(left: list[Task]) -> Iterator[Record]:
        if engine == "local":
            return worker(left)
        from normmatch.matching.ray import run_with_ray

        return run_with_ray(list(chunks(left, HANDED_OUT)), LocateWorker, arguments, options.device, workers)

    failed = run_tasks_in(out, asked, tasks, run, "photographs", progress, lambda: add_to_run(out, worker.chosen))
    return write_files(out, names, failed, format, pictures, progress)


class LocateWorker:
    """Locates photographs, in this process or in one of a Ray cluster; the references are read with the first of them.

    `chosen` says then what was chosen for these photographs.
    """

    def __init__(
        self, options: dict[str, Any], known: Sequence[Annotation], names: Names, tasks: Sequence[Task]
    ) -> None:
        self.options, self.known, self.names, self.tasks = LocateOptions(**options), known, names, tasks
        self.chosen: dict[str, Any] = {}

    def __call__(self, tasks: Sequence[Task]) -> Iterator[Record]:
        matcher = Matcher(self.options.weights, device=self.options.device, backend=self.options.backend)
        sight = Sight(matcher.backend, REMEMBERED)
        pool = []
        for task in choose_evenly(self.tasks, POOL):
            try:
                sight.size(photograph := Photograph.of(task["image"], task["image"]))
                pool.append((photograph, task["box"]))
            except NormMatchError:
                pass  # it is said where it is located
        references = [Reference(one.image, self.names.place(one), one.box) for one in self.known]
        used = choose_references(references, [photograph for photograph, _ in pool], sight, self.options.references)
        turned = self.options.any_way_round
        flip = self.names.flip
        landmarks = prepare(
            [references[i] for i in used], sight, pool, looks=self.options.looks, turned=turned,
            mirrored=turned and flip != sorted(flip), flip=flip,
        )  # fmt: skip
        self.chosen = {"references used": [self.known[i].image for i in used], "looks used": landmarks.looks}
        certainties: list[float] = []
        for task in tasks:
            try:
                found = landmarks.locate(Photograph.of(task["image"], task["image"]), task["box"])
            except NormMatchError as error:
                yield {"row": task["row"], "image": task["image"], "error": str(error)}
                continue
            certainties.append(float(found.scores.mean()))
            values = {key: np.round(value, 4).tolist() for key, value in asdict(found).items() if key != "box"}
            yield {"row": task["row"], "image": task["image"], "box": found.box, "boxed": bool(task["box"]), **values}
        if certainties and not turned and np.mean(certainties) < SURE:
            plain = Landmarks([references[i] for i in used], sight, 1)  # what has not learned from turned things
            checked = [plain.seems_turned(*one) for one in choose_evenly(pool, CHECKED)]
            self.chosen[SEEM_TURNED] = sum(checked) > len(checked) / 2


def read_references(path: Path) -> tuple[Names, list[Annotation]]:
    """The annotated photographs of a keypoints file, with the paths of their images, and their landmarks."""
    found = [one for one in annotations.read(path) if one.names]
    if not found:
        raise DataError(f"{path} has no keypoint; expected at least one photograph with landmarks.")
    folder = path if path.is_dir() else path.parent
    known = []
    for one in found:
        place = find_image(one.image, (folder, folder / "images", Path()))
        if place is None:
            raise DataError(f"{path} is about {one.image}, which is not beside it; expected the photograph there.")
        known.append(replace(one, image=str(place)))
    names = tuple(dict.fromkeys(name for one in known for name in one.names))
    order = {name: i for i, name in enumerate(dict.fromkeys(name for one in known for name in one.order))}
    names = tuple(sorted(names, key=lambda name: order.get(name, len(order))))
    pairs = [pair for one in known if one.landmarks for pair in one.landmarks.pairs]
    other = {left: right for pair in pairs for left, right in (pair, pair[::-1])}
    swapped = [other.get(name, swap_left_right(name)) for name in names]
    flip = [names.index(name) if name in names else i for i, name in enumerate(swapped)]
    if sorted(flip) != list(range(len(names))):  # names like left, left_2: no pairs
        flip = list(range(len(names)))
    return Names(names, tuple(flip), known[0].label, known[0].landmarks), known


def find_photographs(given: Sequence[Path | str]) -> list[Path]:
    """The photographs that are meant, each once, in their order."""
    found: list[Path] = []
    for one in map(Path, given):
        if one.is_dir():
            found += image_files(one, recursive=True)
        elif one.suffix.lower() == ".txt":
            lines = (line.strip() for line in read_text(one, MAX_LIST).splitlines())
            found += [one.parent / line for line in lines if line]
        elif one.exists() or not glob.has_magic(str(one)):
            found.append(one)
        else:
            found += [Path(name) for name in sorted(glob.glob(str(one), recursive=True)) if os.path.isfile(name)]
    once: dict[str, Path] = {}
    for file in found:
        once.setdefault(os.path.realpath(file), file)
    return list(once.values())


def _box(index: ImageIndex | None, file: Path) -> Any:
    """Where the object is, if that is known."""
    found = [] if index is None else [one.box for one in index.all(file) if one.box]
    return found[0] if len(found) == 1 else None
