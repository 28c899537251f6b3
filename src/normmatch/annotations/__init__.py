"""Annotations: the named keypoints of objects in images, read from and written to files. No torch here.

    annotations = read("points.json")            our JSON, COCO keypoints or CSV: told by the ending and the content
    write("points.csv", annotations)

A format is a module of its own, `native`, `coco` or `csv`, with two functions, and nothing else knows about it:

    read(path, text) -> list[Annotation]         of JSON formats, what the file holds in place of its text
    write(annotations) -> str                    the text of a file

To add one, write such a module and give it a line in `read` and in `write` below. What they share is in `text`: reading
a file, checking names and numbers, and making an `Annotation`; every mistake is one sentence that says where it is.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from normmatch.annotations import coco, csv, native
from normmatch.annotations.annotation import Annotation
from normmatch.annotations.images import find_image, upright_size
from normmatch.annotations.text import parse_json, read_text
from normmatch.errors import DataError
from normmatch.io import is_web_address
from normmatch.outputs import write_text

__all__ = ["Annotation", "Format", "read", "write"]

MAX_BYTES = 512 << 20  # of a keypoints file; COCO's own, with 150,000 persons, has 230 MB
ENDINGS = "a .json file (ours or COCO keypoints) or a .csv"
Format = Literal["native", "coco", "csv"]


def read(path: Path | str) -> list[Annotation]:
    """Read a keypoints file of any format; every mistake in it is one sentence with its place."""
    path = Path(path)
    ending = path.suffix.lower()
    if is_web_address(path) and not os.path.exists(path):
        raise DataError(f"{path} is a web address; expected {ENDINGS} on this computer.")
    if ending not in (".json", ".csv") and not path.is_dir():
        raise DataError(f"{path} is no keypoints file by its ending; expected {ENDINGS}.")
    text = read_text(path, MAX_BYTES)
    if not text.strip():
        raise DataError(f"{path} is empty; expected keypoints.")
    if ending == ".csv":
        found = csv.read(path, text)
    else:
        content = parse_json(path, text)
        found = coco.read(path, content) if coco.is_coco(content) else native.read(path, content)
    if not found:
        raise DataError(f"{path} has no keypoints; expected those of at least one image.")
    return found


def write(path: Path | str, annotations: Sequence[Annotation], format: Format | None = None) -> None:
    """Write a keypoints file, whole or not at all: our JSON or a CSV by the ending of the path, COCO if asked for."""
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
