"""Annotations: the named keypoints of objects in images, read from and written to files. No torch here.

    annotations = read("points.json")            our JSON, COCO keypoints or CSV: told by the ending and the content
    write("points.csv", annotations)

A format is a module of its own, `native`, `coco` or `csv`, with two functions, and nothing else knows about it:

    read(path, text) -> list[Annotation]         of JSON formats, what the file holds in place of its text
    write(annotations) -> str                    the text of a file

To add one, write such a module and give it a line in `read` and in `write` below. Names and numbers are checked by the
functions at the end, and objects made by `make_annotation`: every mistake is one sentence with its place.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any, Literal

import numpy as np

from normmatch.checks import check_path, read_number
from normmatch.errors import DataError
from normmatch.geometry import Box
from normmatch.io import decode_text, is_web_address, parse_json, read_text
from normmatch.outputs import write_text

MAX_BYTES = 512 << 20  # of a keypoints file; COCO's own, with 150,000 persons, has 230 MB
MAX_COORDINATE = 1e6  # pixels; no image is larger
ENDINGS = "a .json file (ours or COCO keypoints) or a .csv"
BOX_COLUMNS = ("xmin", "ymin", "width", "height")
YES_OR_NO = {True: True, False: False, "1": True, "0": False, "true": True, "false": False, "": True, None: True}

Format = Literal["native", "coco", "csv"]
Row = dict[str, Any]  # a keypoint by the CSV's columns; numbers are text there, and may be anything in JSON


@dataclass(frozen=True, eq=False)
class Annotation:
    """The named keypoints of one object in one image.

    Coordinates are x right, y down, in pixels of the image as a viewer shows it, the centre of the first pixel at 0.5.
    They are float64, as files have them; of a prepared crop, in whose pixels they are then, float32, as the network
    takes them.
    """

    image: str  # the file, as the annotations call it or as a path that can be opened
    names: tuple[str, ...]  # N different ones
    keypoints: np.ndarray  # (N, 2) xy; may lie outside the box, and a little outside the image
    box: Box | None = None  # the object's; None is the whole image
    label: str = ""  # the class
    split: str = ""  # train, val or test where the file says so
    visible: np.ndarray | None = None  # (N,) bool, False where a keypoint is hidden; None where all can be seen
    scores: np.ndarray | None = None  # (N,) float64, of keypoints that were found, not marked by hand; nan is unknown
    source: str = ""  # the file and the place in it, for messages
    homography: np.ndarray | None = None  # (3, 3): warps the image first; keypoints and box are in the warped one

    @property
    def path(self) -> Path:
        """The image as a path."""
        return Path(self.image)


def read(path: Path | str, content: bytes | None = None) -> list[Annotation]:
    """Read a keypoints file of any format, or the `content` of one; every mistake is one sentence with its place."""
    from normmatch.annotations import coco, csv, native

    path = check_path(path, "The keypoints file", DataError)
    ending = path.suffix.lower()
    if content is None and is_web_address(path) and not os.path.exists(path):
        raise DataError(f"{path} is a web address; expected {ENDINGS} on this computer.")
    if ending not in (".json", ".csv") and (content is not None or not path.is_dir()):
        raise DataError(f"{path} is no keypoints file by its ending; expected {ENDINGS}.")
    text = read_text(path, MAX_BYTES) if content is None else decode_text(path, content)
    if not text.strip():
        raise DataError(f"{path} is empty; expected keypoints.")
    if ending == ".csv":
        found = csv.read(path, text)
    else:
        parsed = parse_json(path, text)
        found = (coco if isinstance(parsed, dict) and "annotations" in parsed else native).read(path, parsed)
    if not found:
        raise DataError(f"{path} has no keypoints; expected those of at least one image.")
    return found


def write(path: Path | str, annotations: Sequence[Annotation], format: Format | None = None) -> None:
    """Write a keypoints file, whole or not at all: our JSON or a CSV by the ending of the path, COCO if asked for."""
    from normmatch.annotations import coco, csv, native
    from normmatch.annotations.images import find_image, upright_size

    path = Path(path)
    format = format or ("csv" if path.suffix.lower() == ".csv" else "native")
    if path.suffix.lower() != (".csv" if format == "csv" else ".json"):
        raise DataError(f"{path} has the ending {path.suffix!r}; expected .json or .csv.")
    if format == "csv":
        text = csv.write(annotations)
    elif format == "coco":
        files = {item.image: find_image(item.image, [path.parent]) for item in annotations}
        sizes = {image: upright_size(file) for image, file in files.items() if file}
        text = coco.write(annotations, {image: size for image, size in sizes.items() if size})
    else:
        text = native.write(annotations)
    write_text(path, text)


def filled(where: str, row: Row, column: str) -> str:
    """A value that must be there."""
    text: str = row[column]
    if not text:
        raise DataError(f"{where}: the value of `{column}` is empty.")
    return text


def printable(where: str, row: Row, column: str) -> str:
    """A name that can be shown: no control characters, nor halves of a character as JSON may have them."""
    name: str = row[column] or filled(where, row, column)
    if not name.isprintable():
        raise DataError(f"{where}: the value of `{column}` is {short(name)}; expected printable characters.")
    return name


def number(where: str, what: str, value: Any) -> float:
    """A pixel coordinate of something."""
    found = read_number(value)
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
        found = read_number(value)
        if not math.isfinite(found) and value not in (None, ""):
            raise DataError(f"{place}: the score is {short(value)}; expected a number.")
        scores.append(found)
    return np.array(scores) if any(map(math.isfinite, scores)) else None
