"""Annotations: the named keypoints of objects in images, read from and written to files. No torch here.

    annotations = read("points.json")            any format of `formats.py`: told by the ending and the content
    write("points.csv", annotations)

A format is a small module of its own with functions that read and write, and a line in `formats.py`; nothing else knows
about it:

    read(path, content, how) -> list[Annotation]   the content is text, of JSON what the file holds
    write(annotations) -> str                      the text of a file, or a dict of those of a folder

Names and numbers are checked by the functions at the end, and objects made by `make_annotation`: every mistake is one
sentence with its place.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

import numpy as np

from normmatch.checks import check_path, read_number
from normmatch.config import Format
from normmatch.errors import DataError
from normmatch.geometry import Box
from normmatch.io import decode_text, is_web_address, parse_json, read_text
from normmatch.outputs import write_text

if TYPE_CHECKING:
    from normmatch.annotations.reading import Reading

MAX_BYTES = 512 << 20  # of a keypoints file; COCO's own, with 150,000 persons, has 230 MB
MAX_COORDINATE = 1e6  # pixels; no image is larger
ENDINGS = "a .json file (ours or COCO keypoints) or a .csv"
BOX_COLUMNS = ("xmin", "ymin", "width", "height")
YES_OR_NO = {True: True, False: False, "1": True, "0": False, "true": True, "false": False, "": True, None: True}

Row = dict[str, Any]  # a keypoint by the CSV's columns; numbers are text there, and may be anything in JSON


@dataclass(frozen=True)
class Landmarks:
    """What a file says of all objects of a kind: which landmarks there are, and how they belong together."""

    names: tuple[str, ...]  # all, in the file's order, also those that an object has not
    skeleton: tuple[tuple[str, str], ...] = ()  # lines between them
    pairs: tuple[tuple[str, str], ...] = ()  # left and right of the same: exchanged where the image is mirrored


@dataclass(frozen=True, eq=False)
class Annotation:
    """The named keypoints of one object in one image.

    Coordinates are x right, y down, in pixels of the image as a viewer shows it, the centre of the first pixel at 0.5.
    They are float64, as files have them; of a prepared crop, in whose pixels they are then, float32, as the network
    takes them.

    A landmark of `landmarks` that is not in `names` was not annotated, unless `absent` says that there is none.
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
    landmarks: Landmarks | None = None  # of its kind; None where the file has no list
    absent: tuple[str, ...] = ()  # landmarks that the object is said not to have in this image
    object: str = ""  # which one of several: the specimen, the individual, the track
    size: tuple[int, int] | None = None  # width and height of the image, where the file has them or needed them
    scale: float | None = None  # millimetres per pixel
    curves: tuple[np.ndarray, ...] = ()  # (P, 2) each, pixels: lines of points that are no landmarks
    y_up: bool = False  # y still counts from the bottom, for nobody knows the height of the image

    @property
    def path(self) -> Path:
        """The image as a path."""
        return Path(self.image)

    @property
    def order(self) -> tuple[str, ...]:
        """The names of its kind in their order, its own if the file has no list."""
        return self.landmarks.names if self.landmarks else self.names


def read(
    path: Path | str, content: bytes | None = None, how: "Reading | None" = None, turned: bool = True
) -> list[Annotation]:
    """Read a keypoints file of any format; every mistake is one sentence with its place.

    Args:
        path: the file, or the folder of a format with a file a photograph.
        content: the bytes of the file, where they are at hand already.
        how: what the file does not say, such as where the photographs are.
        turned: refuse objects whose y counts from the bottom of a photograph that was not found.
    """
    from normmatch.annotations import formats, native
    from normmatch.annotations.reading import Reading

    path = check_path(path, "The keypoints file", DataError)
    if content is None and is_web_address(path) and not os.path.exists(path):
        raise DataError(f"{path} is a web address; expected a keypoints file on this computer.")
    how = how or Reading()
    if content is None and path.is_dir():
        found = formats.read_folder(path, how)
    else:
        ending = path.suffix.lower()
        if ending not in formats.ENDINGS:
            raise DataError(f"{path} is no keypoints file by its ending; expected {', '.join(formats.ENDINGS)}.")
        text = read_text(path, MAX_BYTES) if content is None else decode_text(path, content)
        if not text.strip():
            raise DataError(f"{path} is empty; expected keypoints.")
        parsed = parse_json(path, text) if ending == ".json" else text
        ours = isinstance(parsed, dict) and "images" in parsed and "annotations" not in parsed
        found = native.read(path, parsed) if ours else formats.read_content(path, parsed, how)
    if not found:
        raise DataError(f"{path} has no keypoints; expected those of at least one image.")
    for item in found:
        if turned and item.y_up and item.names:
            raise DataError(
                f"{item.source}: y counts from the bottom, and the height of {item.image} is not known; expected the "
                "photograph, as large as it was annotated, beside the file."
            )
    return found


def write(
    path: Path | str,
    annotations: Sequence[Annotation],
    format: Format | None = None,
    images: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write a keypoints file, whole or not at all.

    Args:
        path: the file; a folder for formats with a file a photograph.
        annotations: the objects.
        format: the format; None takes that of the ending: .json is ours, .csv a row for each keypoint.
        images: where the photographs are, for formats that need their sizes; beside the file if not given.
        settings: how the keypoints came about, such as version, weights and references; kept by our JSON and COCO.
    """
    from normmatch.annotations import formats

    path = Path(path)
    text = formats.write_text(path, annotations, format, images, settings or {})
    if isinstance(text, str):
        write_text(path, text)
    else:
        for name, part in text.items():
            write_text(path / name, part)


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
    **more: Any,
) -> Annotation:
    """Check an object and make it; its rows, each with its place, have name, x, y and perhaps visible and score.

    `more` are other fields of an annotation, which the caller has checked.
    """
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
        **more,
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
