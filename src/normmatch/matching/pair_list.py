"""Matching thousands of pairs: in order, resumable, and without stopping at a pair that cannot be matched.

out/results.jsonl    as in `run_folder`; `row` is the pair's line in the list, the rest is `record.make_record`'s
out/results.parquet  the same as a table, if asked for, at the end
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from normmatch import __version__, annotations
from normmatch.annotations import MAX_BYTES, Annotation, filled
from normmatch.annotations.csv import csv_rows
from normmatch.annotations.images import ImageIndex
from normmatch.checks import check_count
from normmatch.config import MAX_WORKERS, MatchOptions
from normmatch.errors import DataError, NormMatchError
from normmatch.extras import require
from normmatch.geometry import CropWithKeypoints, make_crop, place_keypoints
from normmatch.io import read_text
from normmatch.matching.matcher import Matcher, chunks
from normmatch.matching.prefetch import ahead
from normmatch.matching.record import make_record
from normmatch.matching.run_folder import Record, Task, digest, files_of, images_of, run_tasks_in
from normmatch.outputs import MADE_BY, check_outputs, whole_file
from normmatch.weights import find_weights

REMEMBERED = 400  # images of a list that are not read and encoded again: a gigabyte, or two with 2,000 points each
HANDED_OUT = 16  # pairs that a worker of Ray gets at a time
MAX_LINE = 64 << 20  # bytes of a line of the results: pyarrow wants to know, and 2,000 points are more than its 1 MiB

Read = tuple[Task, tuple[CropWithKeypoints, CropWithKeypoints]]  # a pair whose images were read
Engine = Literal["local", "ray"]
Format = Literal["jsonl", "parquet"]


@dataclass(frozen=True)
class Summary:
    """What became of the pairs."""

    matched: int
    failed: tuple[Record, ...]


def match_list(
    pairs: Path,
    keypoints: Path,
    out: Path,
    options: MatchOptions,
    *,
    format: Format = "jsonl",
    engine: Engine = "local",
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Summary:
    """Match the pairs of a CSV with the columns image0 and image1, which are files seen from the CSV's folder.

    Args:
        pairs: the CSV.
        keypoints: the keypoints of all images, see `annotations`.
        out: the folder for the results; what an earlier run has left there is continued.
        options: how every pair is matched.
        format: jsonl, or parquet as well.
        engine: local is this process; ray spreads the pairs over the workers of a Ray cluster.
        workers: processes of Ray; one for each core or GPU of the cluster if not given.
        overwrite: replace files that were not written by this program, too.
        progress: whether a bar is shown.
    """
    if workers is not None:
        check_count(workers, "workers", 1, MAX_WORKERS)
    require(*(["pyarrow"] if format == "parquet" else []), *(["ray"] if engine == "ray" else []))
    tasks, asked = _tasks(pairs, keypoints), _asked(pairs, keypoints, options)
    read: tuple[Path | str, ...] = (pairs, keypoints, find_weights(options.weights))
    table = out / "results.parquet" if format == "parquet" else None
    check_outputs({"--out-dir": [*files_of(out), *([table] if table else [])]}, (*read, *images_of(tasks)), overwrite)
    failed = run_tasks_in(
        out,
        asked,
        tasks,
        lambda left: _run(left, options, engine, workers),
        "pairs",
        progress,
        lambda: _write_parquet(out / "results.jsonl", table) if table else None,
    )
    return Summary(len(tasks) - len(failed), tuple(failed))


def run_tasks(matcher: Matcher, tasks: Iterable[Task], options: MatchOptions) -> Iterator[Record]:
    """Match pairs, some at a time, while the images of the next are read.

    The records come in the order of the tasks; a pair that cannot be matched becomes a record with its `error`.
    """
    size = matcher.backend.image_size
    read = functools.lru_cache(matcher.cache)(lambda image, box: make_crop(image, box, size, ""))

    def crop(task: Task, side: str) -> CropWithKeypoints:
        box = task[f"box{side}"]
        image = read(task[f"image{side}"], None if box is None else tuple(box))
        return place_keypoints(task[f"keypoints{side}"], image)

    def read_pair(task: Task) -> Record | Read:
        try:
            return task if "error" in task else (task, (crop(task, "0"), crop(task, "1")))
        except NormMatchError as error:
            return _failure(task, error)

    together = matcher.backend.pair_batch
    for some in chunks(ahead(read_pair, tasks, together), together):
        records = [item for item in some if isinstance(item, dict)]
        records += _matched(matcher, [item for item in some if not isinstance(item, dict)], options)
        yield from sorted(records, key=lambda record: record["row"])


class PairWorker:
    """A process of a Ray cluster with a network of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = MatchOptions(**options)
        self.matcher = Matcher.from_options(self.options)

    def __call__(self, tasks: list[Task]) -> Iterator[Record]:
        return run_tasks(self.matcher, tasks, self.options)


def _failure(task: Task, error: NormMatchError) -> Record:
    return {key: task[key] for key in ("row", "image0", "image1")} | {"error": str(error)}


def _matched(matcher: Matcher, pairs: Sequence[Read], options: MatchOptions) -> list[Record]:
    try:
        results = matcher.match_crops(
            [crops for _, crops in pairs],
            one_to_one=options.one_to_one,
            mutual=options.mutual,
            min_score=options.min_score,
        )
    except NormMatchError as error:
        if len(pairs) == 1:
            return [_failure(pairs[0][0], error)]
        return [record for one in pairs for record in _matched(matcher, [one], options)]  # whose is it?
    records = []
    for (task, _), result in zip(pairs, results, strict=True):
        first, second = (_point_set(task, side) for side in "01")
        records.append({"row": task["row"], **make_record(first, second, result)})
    return records


def _point_set(task: Task, side: str) -> Annotation:
    xy = np.array(task[f"keypoints{side}"], dtype=np.float64).reshape(-1, 2)
    return Annotation(task[f"image{side}"], tuple(task[f"names{side}"]), xy)


def _tasks(pairs: Path, keypoints: Path) -> list[Task]:
    """The pairs of a CSV with their keypoints; one whose keypoints cannot be found has an `error`."""
    points = ImageIndex(annotations.read(keypoints), keypoints)
    tasks: list[Task] = []
    lines = csv_rows(pairs, read_text(pairs, MAX_BYTES), ("image0", "image1"), box=False)
    for row, (where, line) in enumerate(lines):
        task: Task = {"row": row}
        for side in "01":
            task[f"image{side}"] = str(pairs.parent.absolute() / filled(where, line, f"image{side}"))
        try:
            for side in "01":
                found = points.find(task[f"image{side}"])
                task[f"names{side}"], task[f"keypoints{side}"] = found.names, found.keypoints.tolist()
                task[f"box{side}"] = found.box
        except DataError as error:
            task = _failure(task, error)
        tasks.append(task)
    if not tasks:
        raise DataError(f"{pairs} has no pair; expected lines with image0 and image1.")
    return tasks


def _run(tasks: Sequence[Task], options: MatchOptions, engine: Engine, workers: int | None) -> Iterator[Record]:
    if engine == "ray":
        from normmatch.matching.ray import run_with_ray

        return run_with_ray(list(chunks(tasks, HANDED_OUT)), PairWorker, (asdict(options),), options.device, workers)
    return run_tasks(Matcher.from_options(options, REMEMBERED), tasks, options)


def _asked(pairs: Path, keypoints: Path, options: MatchOptions) -> dict[str, Any]:
    """What a run is about: results of another list, other points, weights or options are not mixed with its own."""
    values = asdict(options) | {"pairs": digest([pairs]), "keypoints": digest([keypoints]), "normmatch": __version__}
    del values["device"], values["compile"]  # how fast it is done, not what
    return values | {"weights": digest([find_weights(options.weights)])}


def _write_parquet(results: Path, path: Path) -> None:
    """The results as a table."""
    import pyarrow.json
    import pyarrow.parquet

    if not results.stat().st_size:
        return
    options = pyarrow.json.ReadOptions(block_size=MAX_LINE)
    with whole_file(path) as temporary:
        table = pyarrow.json.read_json(results, options)
        pyarrow.parquet.write_table(table.replace_schema_metadata({"made_by": MADE_BY}), temporary)
