"""`normmatch match`: match two photographs, or a list of pairs."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from normmatch.config import MatchOptions
from normmatch.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np

    from normmatch.annotations import Annotation
    from normmatch.matching.decoding import Result
    from normmatch.matching.run_folder import Record

SHOWN = 3  # failed pairs that are listed on the terminal
MUCH = 0.1  # of the points withheld for their score: then it is said
TABLE_ROWS = 100  # more would scroll away; the JSON file has them all

Images = Annotated[tuple[Path, ...], arg(metavar="IMAGE0 IMAGE1", help_behavior_hint="")]
Box = Annotated[tuple[float, float, float, float] | None, arg(metavar="X Y W H", help_behavior_hint="")]
Format = Literal["jsonl", "parquet"]
Engine = Literal["local", "ray"]
Keypoints = Annotated[Path, arg(metavar="FILE")]


def match(
    images: Positional[Images] = (),
    *,
    keypoints: Keypoints,
    keypoints1: Path | None = None,
    out: Path | None = None,
    json: Path | None = None,
    box0: Box = None,
    box1: Box = None,
    options: Annotated[MatchOptions, arg(name="")] = MatchOptions(),  # noqa: B008 - frozen
    pairs: Path | None = None,
    out_dir: Path | None = None,
    format: Format = "jsonl",
    engine: Engine = "local",
    workers: int | None = None,
    overwrite: bool = False,
) -> None:
    """Match the keypoints of two photographs, or of every pair of a list.

    normmatch match a.jpg b.jpg --keypoints points.json --out matches.png --json matches.json

    normmatch match --pairs pairs.csv --keypoints points.json --out-dir out

    Keypoints are our JSON, {"images": [{"image": "a.jpg", "keypoints": [{"name": "eye", "x": 120, "y": 88}]}]}, COCO
    keypoints, or a CSV with the columns image,name,x,y. A list of pairs is a CSV with the columns image0,image1: files,
    seen from the folder of the list. If it breaks off, the same command goes on where it stopped.

    Args:
        images: the two photographs; not with --pairs
        keypoints: the keypoints of the images
        keypoints1: the keypoints of the second image, if they are in a file of their own
        out: a picture of the matches to write (png, jpg, webp, pdf or svg)
        json: a JSON file to write, with matches, scores and similarities; - is standard output
        box0: the object in the first image: left, top, width and height; that of the keypoints file if not given
        box1: the same for the second image
        options: how each pair is matched
        pairs: a list of pairs to match instead of two images
        out_dir: with --pairs, the folder for the results: results.jsonl, and failed.jsonl if a pair failed
        format: with --pairs, jsonl, or parquet as well
        engine: with --pairs, local, or ray for all machines of a Ray cluster, which must see the files
        workers: with --engine ray, how many processes; one for each core or GPU if not given
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.io import read_image
    from normmatch.matching.matcher import Matcher

    _check_use(images, pairs, out_dir)
    if pairs is not None and out_dir is not None:
        unused: dict[str, Any] = {"keypoints1": keypoints1, "out": out, "json": json, "box0": box0, "box1": box1}
        _refuse(unused, "two images; it does not go with --pairs")
        _refuse({"workers": workers} if engine == "local" else {}, "--engine ray")
        _match_list(pairs, keypoints, out_dir, options, format, engine, workers, overwrite)
        return
    unused = {"format": format, "engine": engine, "workers": workers}
    _refuse({k: v for k, v in unused.items() if v not in ("jsonl", "local")}, "a list; it goes with --pairs")
    files = keypoints, keypoints1 or keypoints
    _check_outputs(out, json, (*images, *files), options, overwrite)
    points = _read_points(images, files, (box0, box1))
    matcher = Matcher.from_options(options)
    arrays = [read_image(item.image) for item in points]
    first, second = (
        matcher.crop(image, item.keypoints, item.box, item.image) for image, item in zip(arrays, points, strict=True)
    )
    (result,) = matcher.match_crops(
        [(first, second)], one_to_one=options.one_to_one, mutual=options.mutual, min_score=options.min_score
    )
    _write(out, json, arrays, points, result)  # before anything is printed: perhaps nobody is there to read it
    _report(out, json, points, result, matcher.backend.min_score, options.min_score)


def _check_use(images: Sequence[Path], pairs: Path | None, out_dir: Path | None) -> None:
    """Refuse what is neither two images nor a list."""
    if (pairs is None) == (not images) or (images and len(images) != 2):
        got = {0: "neither", 1: "one image"}.get(len(images), f"{len(images)} images")
        raise ConfigError(f"expected two images, or --pairs and --out-dir; got {'both' if images and pairs else got}.")
    if (pairs is None) != (out_dir is None):
        raise ConfigError("--pairs and --out-dir go together: the list, and the folder for its results.")


def _check_outputs(
    out: Path | None, json: Path | None, inputs: Sequence[Path], options: MatchOptions, overwrite: bool
) -> None:
    """Refuse, before the work, what cannot be written or would destroy something."""
    if out is None and json is None:
        return
    from normmatch.outputs import check_outputs
    from normmatch.viz import check_format
    from normmatch.weights import find_weights

    if out is not None:
        check_format(out)
    read = (*inputs, find_weights(options.weights))
    check_outputs({"--out": out, "--json": json}, read, overwrite)


def _write(
    out: Path | None,
    json: Path | None,
    images: "Sequence[np.ndarray]",
    points: "tuple[Annotation, Annotation]",
    result: "Result",
) -> None:
    from normmatch.matching.picture import draw_matches
    from normmatch.matching.record import make_record
    from normmatch.outputs import write_json, writing

    if json is not None:
        with writing(json):
            write_json(json, make_record(*points, result) | {"similarity": result["similarity"].tolist()})
    if out is not None:
        draw_matches(out, images, points, result)


def _report(
    out: Path | None,
    json: Path | None,
    points: "tuple[Annotation, Annotation]",
    result: "Result",
    min_score: float,
    asked: float | None,
) -> None:
    """Tell people what was found and written; on standard error where the JSON goes to standard output."""
    from normmatch.matching.decoding import low_scores

    words = sys.stderr if json == Path("-") else sys.stdout
    print_matches(*points, result, words, min_score if asked is None else asked)
    if low_scores(result, min_score):
        warnings.warn("The scores are low altogether: do both images show the same kind of object?", stacklevel=2)
    if json is not None and words is sys.stdout:
        print(f"the matches are in {json}")
    if out is not None:
        print(f"the picture is {out}", file=words)


def _refuse(options: Mapping[str, Any], what: str) -> None:
    """Say of an option that was given that it would be ignored."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"--{name} is for {what}.")


def _read_points(
    images: Sequence[Path], files: tuple[Path, Path], boxes: tuple[Box, Box]
) -> "tuple[Annotation, Annotation]":
    """The points of two images from their files, which may be one: then it is read once."""
    from normmatch import annotations
    from normmatch.annotations.images import ImageIndex
    from normmatch.io import check_file

    read: dict[Path, ImageIndex] = {}
    found = []
    for image, file, box in zip(images, files, boxes, strict=True):
        check_file(image)
        if file not in read:
            read[file] = ImageIndex(annotations.read(file), file)
        item = read[file].find(image)
        found.append(replace(item, image=str(image), box=box or item.box))
    return found[0], found[1]


def print_matches(
    first: "Annotation", second: "Annotation", result: "Result", words: IO[str] | None = None, min_score: float = 0.0
) -> None:
    """A table of the points of image 0 with their partners and scores, and how many there are."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(f"{Path(first.image).name} and {Path(second.image).name}"))
    for column, justify in (("point", "left"), ("at", "left"), ("partner", "left"), ("at", "left"), ("score", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for i, j in list(enumerate(result["matches0"].tolist()))[:TABLE_ROWS]:
        partner = (escape(second.names[j]), _place(second.keypoints[j])) if j >= 0 else ("-", "")
        score = f"{result['matching_scores0'][i]:.2f}"
        table.add_row(escape(first.names[i]), _place(first.keypoints[i]), *partner, score)
    console = Console(file=words)
    console.print(table)
    count = len(first.names)
    if count > TABLE_ROWS:
        console.print(f"... and {count - TABLE_ROWS:,} points more; --json writes them all")
    answered = f"{len(result['matches']):,} of {count:,} points"
    withheld = int((result["matching_scores0"][result["matches0"] < 0] < min_score).sum())
    if withheld > MUCH * count:
        console.print(f"{answered} answered; {withheld:,} of the others are below {min_score:.2g} (see --min-score)")
    else:
        console.print(f"{answered} have a partner")
    shared = {name for name in first.names if name in second.names and not name.isdecimal()}  # 0, 1 ... are no names
    right = sum(first.names[i] == second.names[j] in shared for i, j in result["matches"].tolist())
    if shared:
        console.print(f"{right:,} of the {len(shared):,} points with a namesake were matched with it")


def _place(point: "np.ndarray") -> str:
    return f"{point[0]:.0f}, {point[1]:.0f}"


def _match_list(
    pairs: Path,
    keypoints: Path,
    out_dir: Path,
    options: MatchOptions,
    format: Format,
    engine: Engine,
    workers: int | None,
    overwrite: bool,
) -> None:
    from normmatch.matching.pair_list import match_list

    how: dict[str, Any] = {"format": format, "engine": engine, "workers": workers, "overwrite": overwrite}
    summary = match_list(pairs, keypoints, out_dir, options, **how)
    total = summary.matched + len(summary.failed)
    print(f"{summary.matched:,} of {total:,} pairs are matched in {out_dir / 'results.jsonl'}")
    _report_failed(summary.failed, summary.matched, out_dir)


def _report_failed(failed: "Sequence[Record]", matched: int, out_dir: Path) -> None:
    if not failed:
        return
    some = " ".join(record["error"] for record in failed[:SHOWN])
    total = matched + len(failed)
    sentence = f"{len(failed):,} of {total:,} pairs could not be matched, see {out_dir / 'failed.jsonl'}: {some}"
    if not matched:
        raise DataError(sentence)
    warnings.warn(sentence, stacklevel=2)
