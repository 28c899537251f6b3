"""Formats with a file for each photograph, whose name is the file's: .pts, webmorph's .tem, StereoMorph's shapes.

version: 1                   83                     <shapes type=list>
n_points: 2                  264 545                  <scaling ...>0.02</scaling>
{                            ...                      <landmarks.pixel type=matrix rownames=TRUE ...>
743.224 197.764              lines between points       nose  12  30
}                            {"image": "/a.jpg"}      </landmarks.pixel>
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from normmatch.annotations import Annotation, Landmarks, make_annotation
from normmatch.annotations.reading import Reading
from normmatch.checks import read_number
from normmatch.errors import DataError

POINTS = re.compile(r"n_points:\s*(\d+)[^{]*\{([^}]*)\}", re.DOTALL)
BLOCK = r"<{0}\b[^>]*>(.*?)</{0}>"


def read_pts(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The points of a .pts file, as they are."""
    found = POINTS.search(text)
    lines = found[2].split("\n") if found else []
    points = [line.split() for line in lines if line.strip()]
    if found is None or len(points) != int(found[1]):
        raise DataError(f"{path} is no .pts file: expected n_points and so many lines of x and y between braces.")
    return [_annotation(path, points, how)]


def read_tem(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The points of a template of webmorph or Psychomorph; the lines between them are passed over."""
    lines = text.split("\n")
    count = int(lines[0]) if lines[0].strip().isdigit() else 0
    points = [line.split() for line in lines[1 : count + 1]]
    if not count or len(points) < count:
        raise DataError(f"{path} is no template of webmorph: expected a number and so many lines of x and y.")
    image = ""
    with suppress(ValueError, AttributeError, RecursionError):
        image = str(json.loads(text[text.index("{") :]).get("image", ""))
    return [_annotation(path, points, how, image=image)]


def read_stereomorph(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The landmarks of a StereoMorph shape file: the block in pixels, whose y counts from the top."""
    blocks = {tag: re.search(BLOCK.format(re.escape(tag)), text, re.DOTALL) for tag in ("landmarks.pixel", "scaling")}
    block = blocks["landmarks.pixel"]
    if block is None:
        raise DataError(f"{path} has no landmarks in pixels; expected a block <landmarks.pixel> of StereoMorph.")
    rows = [line.replace('"', "").split() for line in block[1].split("\n") if line.strip()]
    rows = [row for row in rows if len(row) >= 3]  # name, x, y; a header is shorter
    named = re.search(BLOCK.format(r"image\.(?:name|file(?:name)?)"), text, re.DOTALL)
    scale = read_number(blocks["scaling"][1].strip()) if blocks["scaling"] else 0.0
    names = [" ".join(row[:-2]) for row in rows]
    image = (named[1].split() or [""])[0].strip('"') if named else ""
    return [_annotation(path, [row[-2:] for row in rows], how, names, image, scale if scale > 0 else None)]


def _annotation(
    path: Path,
    points: Sequence[Sequence[str]],
    how: Reading,
    names: Sequence[str] | None = None,
    image: str = "",
    scale: float | None = None,
) -> Annotation:
    called, size = how.image(path, image, path.stem)
    landmarks = Landmarks(tuple(names)) if names else how.landmarks(path.name, len(points))
    rows = []
    for index, (name, point) in enumerate(zip(landmarks.names, points, strict=True)):
        if len(point) != 2:
            raise DataError(f"{path.name} point {index + 1}: {' '.join(point)[:40]!r} is no x and y.")
        if point[0].upper() not in ("NA", "NAN"):
            rows.append((f"{path.name} point {index + 1}", {"name": name, "x": point[0], "y": point[1]}))
    return make_annotation(path.name, called, rows, landmarks=landmarks, size=size, scale=scale)
