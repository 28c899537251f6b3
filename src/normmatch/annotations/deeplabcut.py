"""DeepLabCut CSV, and Lightning Pose's, which is the same: a row for each image, two or three columns a body part.

    scorer,,,anna,anna             one index column with the path, or three with its parts
    individuals,,,mouse1,mouse1    of several animals; `single` has the parts that are once in an image
    bodyparts,,,snout,snout
    coords,,,x,y                   and `likelihood` where a network found them
    labeled-data,video,img000.png,12.5,80.0

An empty cell is a body part that was not seen; 0 is a place.
"""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from normmatch.annotations import Annotation, Landmarks, Row, make_annotation
from normmatch.annotations.reading import Reading
from normmatch.annotations.tps import all_names
from normmatch.checks import read_number
from normmatch.errors import DataError

HEADER = ("scorer", "individuals", "bodyparts", "coords")
SINGLE = "single"
Columns = dict[str, dict[str, dict[str, int]]]  # individual -> body part -> coordinate -> column


def read(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The animals of every image; an image without any has an object without keypoints."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise DataError(f"{path.name} is not a CSV file ({error}).") from error
    header = {row[0]: row for row in rows[:4] if row and row[0] in HEADER}
    if not {"bodyparts", "coords"} <= set(header):
        raise DataError(f"{path.name}: expected the rows scorer, bodyparts and coords of DeepLabCut.")
    index = next((k for k, cell in enumerate(header["coords"]) if k and cell), 1)  # columns that name the image
    columns = _columns(path, header, index)
    found = []
    for number, row in enumerate(rows[len(header) :], len(header) + 1):
        if not any(row):
            continue
        where = f"{path.name} line {number}"
        image, size = how.image(path, "/".join(filter(None, row[:index])))
        animals = []
        for individual, parts in columns.items():
            points = [(where, point) for point in _points(row, parts)]
            if points:
                about = {"object": individual, "landmarks": Landmarks(tuple(parts)), "size": size}
                animals.append(make_annotation(where, image, points, **about))
        nobody = Landmarks(tuple(dict.fromkeys(part for parts in columns.values() for part in parts)))
        found += animals or [make_annotation(where, image, [], landmarks=nobody, size=size)]
    return found


def _columns(path: Path, header: dict[str, list[str]], index: int) -> Columns:
    individuals = header.get("individuals", [""] * len(header["coords"]))
    columns: Columns = {}
    for k, coordinate in enumerate(header["coords"]):
        if k < index:
            continue
        if coordinate not in ("x", "y", "likelihood"):
            more = "three dimensions" if coordinate == "z" else f"a column {coordinate[:20]!r}"
            raise DataError(f"{path.name}: the points have {more}; expected x, y and perhaps likelihood.")
        if k >= min(len(header["bodyparts"]), len(individuals)):
            raise DataError(f"{path.name}: the rows of the header have different lengths.")
        columns.setdefault(individuals[k], {}).setdefault(header["bodyparts"][k], {})[coordinate] = k
    if not columns or any("x" not in c or "y" not in c for parts in columns.values() for c in parts.values()):
        raise DataError(f"{path.name}: expected a column x and one y for each body part.")
    return columns


def _points(row: list[str], parts: dict[str, dict[str, int]]) -> list[Row]:
    points = []
    for name, columns in parts.items():
        cell = {key: row[k].strip() if k < len(row) else "" for key, k in columns.items()}
        score = read_number(cell.get("likelihood", ""))
        if all(cell[key] and cell[key].lower() != "nan" for key in "xy"):
            point: Row = {"name": name, "x": cell["x"], "y": cell["y"]}
            points.append(point | ({"score": score} if math.isfinite(score) else {}))
    return points


def write(annotations: Sequence[Annotation]) -> str:
    """The text of a file; with likelihoods where there are scores, with individuals where an image has several."""
    by_image: dict[str, list[Annotation]] = {}
    for item in annotations:
        by_image.setdefault(item.image, []).append(item)
    several = any(len([i for i in items if i.names]) > 1 for items in by_image.values())
    animals: dict[str, list[Annotation]] = {}  # by what each individual is called; a row's place where it has no name
    for items in by_image.values():
        for number, item in enumerate(items, 1):
            animals.setdefault((item.object or f"individual{number}") if several else "", []).append(item)
    parts = {animal: all_names(items) for animal, items in animals.items()}
    coords = ["x", "y"] + ["likelihood"] * any(item.scores is not None for item in annotations)
    split = all(image.count("/") == 2 for image in by_image)  # into labeled-data, the video and the image
    blank = [""] * (2 if split else 0)
    cells = [(animal, part, c) for animal, names in parts.items() for part in names for c in coords]
    head = [["scorer", *blank, *["NormMatch"] * len(cells)]]
    head += [["individuals", *blank, *[c[0] for c in cells]]] if several else []
    head += [["bodyparts", *blank, *[c[1] for c in cells]], ["coords", *blank, *[c[2] for c in cells]]]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(head)
    for image, items in by_image.items():
        values: dict[tuple[str, str, str], float | str] = {}
        for number, item in enumerate(items, 1):
            animal = (item.object or f"individual{number}") if several else ""
            for k, (name, (x, y)) in enumerate(zip(item.names, item.keypoints.tolist(), strict=True)):
                score = math.nan if item.scores is None else float(item.scores[k])
                values |= {(animal, name, "x"): x, (animal, name, "y"): y}
                values[animal, name, "likelihood"] = score if math.isfinite(score) else ""
        writer.writerow([*(image.split("/") if split else [image]), *(values.get(cell, "") for cell in cells)])
    return text.getvalue()
