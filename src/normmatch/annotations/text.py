"""What the formats share: reading a file, checking names and numbers, making an annotation.

Each mistake is one sentence with its place.
"""

import csv
import io
import json
import math
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from normmatch.annotations.annotation import Annotation
from normmatch.errors import DataError
from normmatch.geometry import Box

MAX_COORDINATE = 1e6  # pixels; no image is larger
BOX_COLUMNS = ("xmin", "ymin", "width", "height")

YES_OR_NO = {True: True, False: False, "1": True, "0": False, "true": True, "false": False, "": True, None: True}

Row = dict[str, Any]  # a keypoint by the CSV's columns; numbers are text there, and may be anything in JSON


def read_text(path: Path, most: int) -> str:
    """The text of a UTF-8 file of at most `most` bytes."""
    try:
        info = path.stat()
        if info.st_size > most:
            raise DataError(
                f"{path} has {info.st_size >> 20} MiB; expected an annotation file of {most >> 20} MiB at most."
            )
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):  # reading a pipe may never end
            raise DataError(f"{path} is not a regular file; expected an annotation file.")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    try:
        return content.decode("utf-8-sig")  # spreadsheets put a byte-order mark in front
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path} line {line} is not UTF-8 text: save the file as UTF-8.") from error


def parse_json(path: Path, text: str) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of absurdly many digits
        raise DataError(f"{path} is not a JSON file that can be read ({error}).") from error


def csv_rows(
    path: Path, text: str, needed: tuple[str, ...], optional: tuple[str, ...] = (), box: bool = True
) -> Iterator[tuple[str, Row]]:
    """The lines of a CSV with their places, each with a value for every column; `box` admits the columns of one."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [column.strip() for column in reader.fieldnames or ()]
        boxed = set(BOX_COLUMNS) & set(header)
        admitted = {*needed, *optional, *(BOX_COLUMNS if box else ())}
        if not set(needed) <= set(header) <= admitted or len(set(header)) < len(header) or len(boxed) not in (0, 4):
            more = [f"{','.join(BOX_COLUMNS)} (all four)"] if box else []
            more += [*optional]
            raise DataError(
                f"{path.name} line 1: the columns are {','.join(header) or 'none'}; expected {','.join(needed)}"
                + (f", and if you like {', '.join(more)}." if more else ".")
            )
        reader.fieldnames = header
        for row in reader:
            where = f"{path.name} line {reader.line_num}"
            if None in row or None in row.values():
                raise DataError(f"{where}: there are more or fewer values than the {len(header)} columns.")
            yield where, {column: value.strip() for column, value in row.items()}
    except csv.Error as error:
        raise DataError(f"{path.name} line {reader.line_num + 1}: not a line of a CSV file ({error}).") from error


def filled(where: str, row: Row, column: str) -> str:
    """A value that must be there."""
    text: str = row[column]
    if not text:
        raise DataError(f"{where}: the value of `{column}` is empty.")
    return text


def printable(where: str, row: Row, column: str) -> str:
    """A name that can be shown: no control characters, nor halves of a character as JSON may have them."""
    name = filled(where, row, column)
    if not name.isprintable():
        raise DataError(f"{where}: the value of `{column}` is {short(name)}; expected printable characters.")
    return name


def number(where: str, what: str, value: Any) -> float:
    """A pixel coordinate of something."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not abs(found) <= MAX_COORDINATE:  # also when it is not a number
        raise DataError(
            f"{where}: {short(value)} is no pixel coordinate (of {what}); expected a number of at most "
            f"{MAX_COORDINATE:,.0f}."
        )
    return found


def make_annotation(
    source: str,
    image: str,
    rows: Sequence[tuple[str, Row]],
    *,
    box: Any = None,
    label: Any = "",
    split: Any = "",
) -> Annotation:
    """Check an object and make it; its rows, each with its place, have name, x, y and perhaps visible and score."""
    points: dict[str, tuple[float, float]] = {}
    for place, row in rows:
        if not isinstance(row["name"], str):
            raise DataError(f"{place}: the name is {short(row['name'])}; expected text.")
        name = printable(place, row, "name")
        if name in points:
            raise DataError(f"{place}: a second {short(name)} in {image}; expected every name once in an object.")
        points[name] = number(place, name, row["x"]), number(place, name, row["y"])
    for what, text in (("class", label), ("split", split)):
        if not isinstance(text, str) or not text.isprintable():
            raise DataError(f"{source}: the {what} is {short(text)}; expected printable text.")
    return Annotation(
        image,
        tuple(points),
        np.array(list(points.values()), dtype=np.float64).reshape(-1, 2),
        _box(source, box),
        label,
        split,
        _visible(rows),
        _scores(rows),
        source,
    )


def known_scores(item: Annotation) -> list[tuple[int, float]]:
    """The scores that are known, each with its keypoint's number."""
    scores = [] if item.scores is None else item.scores.tolist()
    return [(index, score) for index, score in enumerate(scores) if math.isfinite(score)]


def _box(where: str, box: Any) -> Box | None:
    if box is None:
        return None
    if not isinstance(box, list) or len(box) != 4:
        raise DataError(f"{where}: the box is {short(box)}; expected xmin, ymin, width and height.")
    x, y, width, height = (number(where, column, value) for column, value in zip(BOX_COLUMNS, box, strict=True))
    if width <= 0 or height <= 0:
        raise DataError(f"{where}: the box is {width:g} wide and {height:g} high; expected more than 0.")
    return x, y, width, height


def _visible(rows: Sequence[tuple[str, Row]]) -> np.ndarray | None:
    """Which keypoints can be seen (N,); None where all can, or the file does not say."""
    visible = []
    for place, row in rows:
        value = row.get("visible")
        if not isinstance(value, bool | str | None) or value not in YES_OR_NO:
            raise DataError(
                f"{place}: the value of `visible` is {short(value)}; expected true or false (1 or 0 in a CSV)."
            )
        visible.append(YES_OR_NO[value])
    return None if all(visible) else np.array(visible)


def _scores(rows: Sequence[tuple[str, Row]]) -> np.ndarray | None:
    """The keypoints' scores (N,), nan where one has none; None where none has one."""
    scores = []
    for place, row in rows:
        value = row.get("score")
        try:
            found = math.nan if value in (None, "") else float(value)
        except (TypeError, ValueError, OverflowError):
            found = math.inf
        if isinstance(value, bool) or math.isinf(found):
            raise DataError(f"{place}: the score is {short(value)}; expected a number.")
        scores.append(found)
    return np.array(scores) if any(map(math.isfinite, scores)) else None
