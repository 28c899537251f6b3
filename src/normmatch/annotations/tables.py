"""Tables: a row for each photograph (wide), ImageJ's results, SLEAP's analysis.

    id,X1,Y1,X2,Y2            image,nose_x,nose_y          NAME_ID,P1X,P1Y      geomorph, CelebA, VGGFace, many more
     ,Label,X,Y,Slice         a row a point, in the order of the clicks; of a stack only the number of the slice
    track,frame_idx,instance.score,nose.x,nose.y,nose.score

y counts from the top, as nothing in such a table says otherwise; some of geomorph's count from the bottom. SLEAP's 0 is
the middle of the first pixel.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from normmatch.annotations import Annotation, Landmarks, Row, make_annotation
from normmatch.annotations.csv import escaped
from normmatch.annotations.reading import Reading
from normmatch.annotations.tps import all_names
from normmatch.checks import read_number
from normmatch.errors import DataError

PIXEL = 0.5  # from the corner of the first pixel to its middle
KNOWN = ("image", "filename", "file", "file_name", "photo", "photograph", "id", "name_id", "specimen", "name")
SCALE = "mm_per_pixel"
AXIS_AFTER, AXIS_BEFORE = re.compile(r"(.+?)[ ._-]?([xXyY])"), re.compile(r"([xXyY])(?:[ ._-](?=.)|(?=\d))(.+)")
Table = list[list[str]]


def rows_of(text: str) -> Table:
    """The cells of a table, whatever stands between them; a first line with nothing but a number is left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].strip().isdigit():
        lines = lines[1:]
    first = lines[0] if lines else ""
    between = next((sign for sign in ("\t", ";", ",") if sign in first), None)
    if between is None:
        rows = [line.split() for line in lines]
        return [["", *rows[0]], *rows[1:]] if len(rows) > 1 and len(rows[1]) == len(rows[0]) + 1 else rows
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=between)]
    except csv.Error as error:
        raise DataError(f"the table cannot be read ({error}).") from error


def columns_of(header: Sequence[str]) -> list[tuple[str, int, int]]:
    """The landmarks of a wide table with the columns of x and y: nose_x and nose_y, X1 and Y1, P1X and P1Y."""
    found: dict[str, dict[str, int]] = {}
    for index, column in enumerate(header):
        after, before = AXIS_AFTER.fullmatch(column.strip()), AXIS_BEFORE.fullmatch(column.strip())
        if before or after:
            axis, name = before.groups() if before else after.groups()[::-1]  # type: ignore[union-attr]
            found.setdefault(name, {}).setdefault(axis.lower(), index)
    return [(name, axes["x"], axes["y"]) for name, axes in found.items() if len(axes) == 2]


def read_wide(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The objects of a table with a row for each."""
    header, *rows = rows_of(text)
    columns = columns_of(header)
    taken = {index for _, *both in columns for index in both}
    index = next((k for k, cell in enumerate(header) if cell.lower() in KNOWN), 0)
    if not columns or index in taken:
        raise DataError(
            f"{path.name} line 1: the columns are {','.join(header)[:80]}; expected image,name,x,y, or the name of a "
            "photograph and two for each landmark, such as nose_x,nose_y."
        )
    names = how.landmarks(path.name, len(columns)).names if how.names else tuple(name for name, _, _ in columns)
    scale = header.index(SCALE) if SCALE in header else None
    found = []
    for number, row in enumerate(rows, 2):
        where = f"{path.name} row {number}"
        if len(row) != len(header):
            raise DataError(f"{where}: {len(row)} values; expected {len(header)}.")
        image, size = how.image(path, row[index])
        values = np.array([[read_number(row[x]), read_number(row[y])] for _, x, y in columns])
        (points,), y_up = how.turn([values], size, False)
        places = [
            (where, {"name": name, "x": float(x) if x == x else row[k], "y": float(y) if y == y else row[j]})
            for name, (x, y), (_, k, j) in zip(names, points, columns, strict=True)
            if not {row[k].upper(), row[j].upper()} & {"", "NA", "NAN"}
        ]
        mm = read_number(row[scale]) if scale is not None else math.nan
        about = {"size": None if y_up else size, "y_up": y_up, "scale": mm if mm > 0 else None}
        found.append(make_annotation(where, image, places, landmarks=Landmarks(names), **about))
    return found


def read_imagej(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The photographs of a table of points; of a stack they are called by the number of the slice."""
    header, *rows = rows_of(text)
    place = {key: header.index(key) for key in ("X", "Y", "Label", "Slice") if key in header}
    groups: dict[str, list[tuple[str, Row]]] = {}
    for number, row in enumerate(rows, 2):
        where = f"{path.name} row {number}"
        if len(row) != len(header):
            raise DataError(f"{where}: {len(row)} values; expected {len(header)}.")
        label, cut = (row[place[key]] if key in place else "" for key in ("Label", "Slice"))
        points = groups.setdefault(label.partition(":")[2] or label or cut or path.stem, [])
        points.append((where, {"x": row[place["X"]], "y": row[place["Y"]]}))
    landmarks = how.landmarks(path.name, max(map(len, groups.values()), default=0))
    found = []
    for name, points in groups.items():
        image, size = how.image(path, name)
        named = [(where, row | {"name": called}) for called, (where, row) in zip(landmarks.names, points, strict=False)]
        found.append(make_annotation(points[0][0], image, named, landmarks=landmarks, size=size))
    return found


def read_sleap(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The instances of an analysis of SLEAP, whose photographs are called by the number of the frame."""
    header, *rows = rows_of(text)
    columns = columns_of(header)
    landmarks = Landmarks(tuple(name for name, _, _ in columns))
    found = []
    for number, row in enumerate(rows, 2):
        where, cell = f"{path.name} row {number}", dict(zip(header, row, strict=False))
        points = []
        for name, x, y in columns:
            at = [read_number(row[k]) if k < len(row) else math.nan for k in (x, y)]
            score = read_number(cell.get(f"{name}.score"))
            if math.isfinite(sum(at)):
                point: Row = {"name": name, "x": at[0] + PIXEL, "y": at[1] + PIXEL}
                points.append((where, point | ({"score": score} if math.isfinite(score) else {})))
        image, size = how.image(path, cell.get("frame_idx", ""))
        about = {"landmarks": landmarks, "object": cell.get("track", ""), "size": size}
        found.append(make_annotation(where, image, points, **about))
    return found


def write_wide(annotations: Sequence[Annotation], more: Mapping[str, Sequence[float]] | None = None) -> str:
    """The text of a table with a row for each object, and `more` columns behind."""
    names = all_names(annotations)
    scale = any(item.scale for item in annotations)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "image",
            *(escaped(f"{name}_{axis}") for name in names for axis in "xy"),
            *[SCALE] * scale,
            *map(escaped, more or {}),
        ]
    )
    for number, item in enumerate(annotations):
        places = dict(zip(item.names, item.keypoints.tolist(), strict=True))
        values = [value for name in names for value in places.get(name, ("", ""))]
        last = [f"{value[number]:.6g}" if value[number] == value[number] else "" for value in (more or {}).values()]
        writer.writerow([escaped(item.image), *values, *([item.scale or ""] if scale else []), *last])
    return text.getvalue()
