"""Keypoints files: reading ours, COCO keypoints and CSV, and writing ours and CSV. No torch here.

Ours is JSON; `name`, `box` (xmin, ymin, width, height) and `class` may be left out:

    {"images": [{"image": "a.jpg", "class": "cat", "box": [10, 20, 300, 200],
                 "keypoints": [{"name": "left_eye", "x": 120.5, "y": 88}, ...]}, ...]}

A CSV has a row for each keypoint, and columns image,name,x,y; class, object and xmin,ymin,width,height may be there:

    image,name,x,y
    a.jpg,left_eye,120.5,88

Coordinates are x right, y down, in pixels of the image as a viewer shows it, the centre of the first pixel at 0.5.
"""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from normmatch.annotations.coco import coco_rows
from normmatch.annotations.text import BOX_COLUMNS, Row, csv_rows, filled, number, parse_json, printable, read_text
from normmatch.datasets.layout import Skipped
from normmatch.errors import DataError
from normmatch.geometry import Box
from normmatch.io import is_web_address, write_json, write_text

MAX_BYTES = 256 << 20  # of a keypoints file; COCO's own has 230 MB
COLUMNS = ("image", "name", "x", "y")
ENDINGS = "a .json file (ours or COCO keypoints) or a .csv"
SHOWN = 5  # how many names a message lists


@dataclass(frozen=True, eq=False)
class Annotation:
    """The named keypoints of one object in one image."""

    image: str  # as the file calls it
    names: tuple[str, ...]  # N different ones
    keypoints: np.ndarray  # (N, 2) float64, xy in pixels of the upright image
    box: Box | None = None
    label: str = ""  # the class


def read_points(path: Path | str) -> list[Annotation]:
    """Read a keypoints file; every mistake in it is one sentence with its place."""
    path = Path(path)
    if is_web_address(path) and not os.path.exists(path):
        raise DataError(f"{path} is a web address; expected {ENDINGS} on this computer.")
    if path.suffix.lower() not in (".json", ".csv") and not path.is_dir():
        raise DataError(f"{path} is no keypoints file by its ending; expected {ENDINGS}.")
    text = read_text(path, MAX_BYTES)
    if not text.strip():
        raise DataError(f"{path} is empty; expected keypoints.")
    if path.suffix.lower() == ".csv":
        sets = _grouped(csv_rows(path, text, COLUMNS, ("class", "object")))
    else:
        content = parse_json(path, text)
        if isinstance(content, dict) and "annotations" in content:
            sets = _grouped(coco_rows(path, content, Skipped()))
        else:
            sets = list(_ours(path, content))
    if not sets:
        raise DataError(f"{path} has no keypoints; expected those of at least one image.")
    return sets


def write_points(path: Path | str, sets: Sequence[Annotation]) -> None:
    """Write our JSON, or a CSV if the path ends so, whole or not at all."""
    path = Path(path)
    if path.suffix.lower() == ".json":
        write_json(path, {"images": [as_entry(item) for item in sets]})
    elif path.suffix.lower() == ".csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("image", "class", "object", "name", "x", "y", *BOX_COLUMNS))
        for index, item in enumerate(sets):
            for name, (x, y) in zip(item.names, item.keypoints.tolist(), strict=True):
                writer.writerow((item.image, item.label, index, name, x, y, *(item.box or [""] * 4)))
        write_text(path, text.getvalue())
    else:
        raise DataError(f"{path} has the ending {path.suffix!r}; expected .json or .csv.")


class PointIndex:
    """Finds the keypoints of an image in those of a file: the image that a set names, seen from the file's folder.

    Images may be named as seen from other `folders`, too. One that lies elsewhere is found by its name alone.
    """

    def __init__(self, sets: Sequence[Annotation], source: Path | str, *folders: Path) -> None:
        self.source, self.known = Path(source), list(dict.fromkeys(item.image for item in sets))
        self.by_file: dict[str, list[Annotation]] = {}
        self.by_name: dict[str, list[Annotation]] = {}
        for item in sets:
            for file in {_real(folder / item.image) for folder in (self.source.parent, *folders)}:
                self.by_file.setdefault(file, []).append(item)
            self.by_name.setdefault(Path(item.image).name, []).append(item)

    def all(self, image: Path | str) -> list[Annotation]:
        """The objects of an image."""
        found = self.by_file.get(_real(image)) or self.by_name.get(Path(image).name, [])
        places = sorted({item.image for item in found})
        if len(places) > 1:
            raise DataError(f"{self.source} has keypoints of {places[0]} and {places[1]}; which of them is {image}?")
        return found

    def find(self, image: Path | str) -> Annotation:
        """The one object of an image."""
        found = self.all(image)
        if len(found) > 1:
            raise DataError(f"{self.source} has {len(found)} objects in {image}; expected keypoints of one.")
        if not found:
            more = f" and {len(self.known) - SHOWN} more" if len(self.known) > SHOWN else ""
            known = ", ".join(self.known[:SHOWN]) + more
            raise DataError(f"{self.source} has no keypoints of {image}; it has those of {known}.")
        return found[0]


def _real(path: Path | str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a null byte in the name
        return str(path)


def as_entry(item: Annotation) -> dict[str, Any]:
    """The keypoints as an entry of `images` in our JSON."""
    points = zip(item.names, item.keypoints.tolist(), strict=True)
    entry: dict[str, Any] = {"image": item.image, "keypoints": [{"name": n, "x": x, "y": y} for n, (x, y) in points]}
    if item.box is not None:
        entry["box"] = list(item.box)
    return entry | ({"class": item.label} if item.label else {})


def _grouped(rows: Iterable[tuple[str, Row]]) -> list[Annotation]:
    """One object for each image, or for each image and `object`."""
    groups: dict[tuple[str, str], list[tuple[str, Row]]] = {}
    for where, row in rows:
        groups.setdefault((filled(where, row, "image"), row.get("object", "")), []).append((where, row))
    sets = []
    for (image, _), members in groups.items():
        where, first = members[0]
        for place, row in members:
            if any(row.get(column, "") != first.get(column, "") for column in ("class", *BOX_COLUMNS)):
                raise DataError(f"{place}: another class or box than at {where}; expected one for each object.")
        box = [first.get(column, "") for column in BOX_COLUMNS]
        sets.append(_point_set(where, image, members, None if box == [""] * 4 else box, first.get("class", "")))
    return sets


def _ours(path: Path, content: Any) -> Iterator[Annotation]:
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(
            f"{path} is no keypoints file: expected a list `images` (ours), or COCO's images, annotations and "
            "categories."
        )
    for index, entry in enumerate(entries):
        where = f"{path.name} image number {index}"
        if not isinstance(entry, dict) or not isinstance(entry.get("image"), str):
            raise DataError(f"{where}: expected an object with `image`, the name of a file, and `keypoints`.")
        unknown = sorted(map(str, entry.keys() - {"image", "keypoints", "box", "class"}))
        if unknown:
            raise DataError(f"{where}: the key {short(unknown[0])} is unknown; expected image, keypoints, box, class.")
        points = entry.get("keypoints")
        if not isinstance(points, list) or not all(isinstance(p, dict) and {"x", "y"} <= p.keys() for p in points):
            raise DataError(f"{where}: `keypoints` must be a list of objects with name, x and y.")
        rows = [(f"{where} keypoint number {k}", {"name": str(k), **point}) for k, point in enumerate(points)]
        label = entry.get("class") or ""
        yield _point_set(where, filled(where, entry, "image"), rows, entry.get("box"), label)


def _point_set(where: str, image: str, rows: Sequence[tuple[str, Row]], box: Any, label: Any) -> Annotation:
    """Check an object and make it."""
    points: dict[str, tuple[float, float]] = {}
    for place, row in rows:
        if not isinstance(row["name"], str):
            raise DataError(f"{place}: the name is {short(row['name'])}; expected text.")
        name = printable(place, row, "name")
        if name in points:
            raise DataError(f"{place}: a second {short(name)} in {image}; expected every name once in an object.")
        points[name] = number(place, name, row["x"]), number(place, name, row["y"])
    if not isinstance(label, str) or not label.isprintable():
        raise DataError(f"{where}: the class is {short(label)}; expected printable text.")
    xy = np.array(list(points.values()), dtype=np.float64).reshape(-1, 2)
    return Annotation(image, tuple(points), xy, _box(where, box), label)


def _box(where: str, box: Any) -> Box | None:
    if box is None:
        return None
    if not isinstance(box, list) or len(box) != 4:
        raise DataError(f"{where}: the box is {short(box)}; expected xmin, ymin, width and height.")
    x, y, width, height = (number(where, column, value) for column, value in zip(BOX_COLUMNS, box, strict=True))
    if width <= 0 or height <= 0:
        raise DataError(f"{where}: the box is {width:g} wide and {height:g} high; expected more than 0.")
    return x, y, width, height
