"""TPS, of tpsDig and geomorph: specimens one after the other, y counted from the bottom of the photograph.

    LM=12
    290.0 108.0
    ...
    IMAGE=63001.jpg
    ID=0
    SCALE=0.0199

Missing is -1 -1, NA, or 0 0 of a specimen with SCALE=0, which was not digitised yet; SCALE is kept, the coordinates
stay pixels. Blocks of POINTS are curves, whatever the line CURVES says. Landmarks have no names: we write them into a
line COMMENT, which others pass over.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from normmatch.annotations import MAX_COORDINATE, Annotation, Landmarks, make_annotation
from normmatch.annotations.reading import Reading
from normmatch.checks import read_number
from normmatch.errors import DataError

KEY = re.compile(r"\s*([A-Za-z]\w*)\s*=\s*(.*?)\s*$")
NAMES = "landmarks "  # how our comment begins
MISSING = np.full(2, math.nan)
Specimen = dict[str, Any]  # `line`, `points` and `curves`, each a list of (line, words), and the keys in capitals


def read(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The specimens of a file."""
    specimens = list(_specimens(path, text))
    if not specimens:
        raise DataError(f"{path} is no TPS file: expected a line such as LM=12.")
    if all(not s["points"] for s in specimens):
        raise DataError(f"{path} has 0 landmarks in its {len(specimens)} specimens, only curves; expected landmarks.")
    arrays = [[_points(path, s, block, how) for block in (s["points"], *s["curves"])] for s in specimens]
    every = np.concatenate([block for blocks in arrays for block in blocks])
    every = every[np.isfinite(every).all(1)]
    minus = bool(every.size) and every[:, 1].max() <= 0 <= every[:, 0].min() and np.abs(every).max() > 2
    if minus:  # some programs write rows from the top with a minus
        arrays = [[block * (1, -1) for block in blocks] for blocks in arrays]
    return [_annotation(path, s, blocks, how, not minus) for s, blocks in zip(specimens, arrays, strict=True)]


def _specimens(path: Path, text: str) -> Iterator[Specimen]:
    specimen: Specimen | None = None
    block: list[Any] = []
    left = 0  # lines of the block that are to come
    for number, line in enumerate(text.splitlines(), 1):
        found = KEY.match(line)
        where = f"{path.name} line {number}"
        if found is None:
            words = line.replace(",", " ").split()
            if not words or line.lstrip().startswith("#"):
                continue
            if left <= 0 or specimen is None:
                raise DataError(f"{where}: {line.strip()[:40]!r} is more than the points that were announced.")
            block.append((number, words))
            left -= 1
            continue
        key, value = found[1].upper(), found[2]
        if left > 0:
            raise DataError(f"{where}: {left} more points were announced before {key}.")
        if key in ("LM", "LM3", "POINTS"):
            left = int(count[0]) if (count := re.match(r"\d+", value)) else -1
            if left < 0:
                raise DataError(f"{where}: {key}={value[:20]}; expected the number of points.")
        if key in ("LM", "LM3"):
            if specimen is not None:
                yield specimen
            block = []
            specimen = {"line": number, "points": block, "curves": [], "3D": key == "LM3"}
            specimen["ON LM"] = re.sub(r"^\d+\s*", "", value)
        elif specimen is not None and key == "POINTS":
            block = []
            specimen["curves"].append(block)
        elif specimen is not None and key not in ("CURVES", "OUTLINES"):
            specimen.setdefault(key, value)
    if left > 0:
        raise DataError(f"{path.name}: the file ends {left} points before the number that was announced.")
    if specimen is not None:
        yield specimen


def _points(path: Path, specimen: Specimen, block: list[Any], how: Reading) -> np.ndarray:
    """(N, 2), nan where a point is missing."""
    undone = read_number(specimen.get("SCALE", "").split(" ")[0]) == 0
    points = np.full((len(block), 2), math.nan)
    for index, (number, words) in enumerate(block):
        if words[0].upper() in ("NA", "NAN"):
            continue
        values = [read_number(word) for word in words]
        if specimen["3D"] or (len(values) == 3 and values[2] != 0):
            raise DataError(f"{path.name} line {number}: the landmarks have three dimensions; expected x and y.")
        if len(values) not in (2, 3) or not all(abs(value) <= MAX_COORDINATE for value in values):
            raise DataError(f"{path.name} line {number}: {' '.join(words)[:40]!r} is no point; expected x and y.")
        lowest = min(values[:2])
        if (
            values[:2] != [-1, -1]
            and not (undone and values[:2] == [0, 0])
            and not (how.negative_missing and lowest < 0)
        ):
            points[index] = values[:2]
    return points


def _annotation(path: Path, specimen: Specimen, blocks: list[np.ndarray], how: Reading, up: bool) -> Annotation:
    where = f"{path.name} line {specimen['line']}"
    identity = specimen.get("ID", "") or specimen["ON LM"]
    image, size = how.image(path, specimen.get("IMAGE", ""), identity)
    (points, *curves), y_up = how.turn(blocks, size, up)
    landmarks = _landmarks(where, len(points), specimen.get("COMMENT", ""), how)
    rows = [
        (where, {"name": name, "x": float(x), "y": float(y)})
        for name, (x, y) in zip(landmarks.names, points, strict=True)
        if math.isfinite(x)
    ]
    scale = read_number(specimen.get("SCALE", ""))
    return make_annotation(
        where,
        image,
        rows,
        landmarks=landmarks,
        object=identity if specimen.get("IMAGE") else "",
        size=None if y_up else size,
        scale=scale if 0 < scale < math.inf else None,
        curves=tuple(curves),
        y_up=y_up,
    )


def _landmarks(where: str, count: int, comment: str, how: Reading) -> Landmarks:
    if comment.startswith(NAMES) and not how.names:
        try:
            names = json.loads(comment[len(NAMES) :])
            if len(names) == len(set(names)) == count:
                return Landmarks(tuple(names))
        except (ValueError, TypeError, RecursionError):
            pass
    return how.landmarks(where, count)


def write(annotations: Sequence[Annotation]) -> str:
    """The text of a file: every specimen has all landmarks, as geomorph wants it."""
    names = all_names(annotations)
    numbered = names == list(map(str, range(1, len(names) + 1)))
    lines = []
    for item in annotations:
        points, *curves = [from_bottom(item, xy) for xy in (item.keypoints, *item.curves)]
        places = dict(zip(item.names, points, strict=True))
        lines += [f"LM={len(names)}", *(_line(places.get(name, MISSING)) for name in names)]
        lines += [f"CURVES={len(curves)}"] if curves else []
        for curve in curves:
            lines += [f"POINTS={len(curve)}", *map(_line, curve)]
        lines += [f"IMAGE={item.image}", f"ID={item.object or Path(item.image).stem}"]
        lines += [f"SCALE={item.scale:.10g}"] if item.scale else []
        lines += [] if numbered else [f"COMMENT={NAMES}{json.dumps(names, ensure_ascii=False)}"]
    return "\n".join(lines) + "\n"


def all_names(annotations: Sequence[Annotation]) -> list[str]:
    """The landmarks of all objects, in the order of their kinds."""
    return list(dict.fromkeys(name for item in annotations for name in (*item.order, *item.names)))


def from_bottom(item: Annotation, xy: np.ndarray) -> np.ndarray:
    """Points (N, 2) with y counted from the bottom of the photograph."""
    if item.y_up:
        return xy
    if item.size is None:
        raise DataError(
            f"y counts from the bottom in such files, and the height of {item.image} is not known; expected the "
            "photograph in the folder of the images."
        )
    return np.stack([xy[:, 0], item.size[1] - xy[:, 1]], 1)


def _line(point: np.ndarray) -> str:
    return f"{point[0]:.10g} {point[1]:.10g}" if np.isfinite(point).all() else "-1 -1"
