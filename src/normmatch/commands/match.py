"""`normmatch match`: match two photographs, or a list of pairs."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from normmatch.errors import ConfigError, DataError
from normmatch.matching.options import MatchOptions

if TYPE_CHECKING:
    from normmatch.matching.pair_list import Record

SHOWN = 3  # failed pairs that are listed on the terminal

Images = Annotated[tuple[Path, ...], arg(metavar="IMAGE0 IMAGE1", help_behavior_hint="")]
Box = Annotated[tuple[float, float, float, float] | None, arg(metavar="X Y W H", help_behavior_hint="")]
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
    format: Literal["jsonl", "parquet"] = "jsonl",
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
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
        json: a JSON file to write, with matches, scores and similarities
        box0: the object in the first image: left, top, width and height; that of the keypoints file if not given
        box1: the same for the second image
        options: how each pair is matched
        pairs: a list of pairs to match instead of two images
        out_dir: with --pairs, the folder for the results: results.jsonl, and failed.jsonl if a pair failed
        format: with --pairs, jsonl, or parquet as well
        engine: with --pairs, local, or ray for all machines of a Ray cluster, which must see the files
        workers: with --engine ray, how many processes; one for each core or GPU if not given
    """
    if (pairs is None) == (not images) or (images and len(images) != 2):
        got = {0: "neither", 1: "one image"}.get(len(images), f"{len(images)} images")
        raise ConfigError(f"expected two images, or --pairs and --out-dir; got {'both' if images and pairs else got}.")
    if (pairs is None) != (out_dir is None):
        raise ConfigError("--pairs and --out-dir go together: the list, and the folder for its results.")
    if pairs is None or out_dir is None:
        _match_two(images, (keypoints, keypoints1 or keypoints), (box0, box1), options, out, json)
        return
    unused = {"--keypoints1": keypoints1, "--out": out, "--json": json, "--box0": box0, "--box1": box1}
    for name, value in unused.items():
        if value is not None:
            raise ConfigError(f"{name} is for two images; it does not go with --pairs.")
    from normmatch.matching.pair_list import match_list

    summary = match_list(pairs, keypoints, out_dir, options, format=format, engine=engine, workers=workers)
    total = summary.matched + len(summary.failed)
    print(f"{summary.matched:,} of {total:,} pairs are matched in {out_dir / 'results.jsonl'}")
    _report_failed(summary.failed, summary.matched, out_dir)


def _match_two(
    images: tuple[Path, ...],
    files: tuple[Path, Path],
    boxes: tuple[Box, Box],
    options: MatchOptions,
    out: Path | None,
    json: Path | None,
) -> None:
    from normmatch.annotations import PointIndex, read_points
    from normmatch.io import check_file, write_json, writing
    from normmatch.matching.decoding import low_scores
    from normmatch.matching.record import draw_matches, make_record, print_matches
    from normmatch.viz import check_format

    if out is not None:
        check_format(out)
    sets = []
    for image, file, box in zip(images, files, boxes, strict=True):
        check_file(image)
        found = PointIndex(read_points(file), file).find(image)
        sets.append(replace(found, image=str(image), box=box or found.box))
    first, second = sets
    matcher = options.open()
    result = matcher.match(
        first.image, second.image, first.keypoints, second.keypoints,
        box0=first.box, box1=second.box, **options.choice(),
    )  # fmt: skip
    print_matches(first, second, result)
    if low_scores(result, matcher.backend.min_score):
        warnings.warn("The scores are low altogether: do both images show the same kind of object?", stacklevel=2)
    if json is not None:
        with writing(json):
            write_json(json, make_record(first, second, result) | {"similarity": result["similarity"].tolist()})
        print(f"the matches are in {json}")
    if out is not None:
        draw_matches(out, first, second, result)
        print(f"the picture is {out}")


def _report_failed(failed: "Sequence[Record]", matched: int, out_dir: Path) -> None:
    if not failed:
        return
    some = " ".join(record["error"] for record in failed[:SHOWN])
    total = matched + len(failed)
    sentence = f"{len(failed):,} of {total:,} pairs could not be matched, see {out_dir / 'failed.jsonl'}: {some}"
    if not matched:
        raise DataError(sentence)
    warnings.warn(sentence, stacklevel=2)
