"""CSV: a row for each keypoint. Only the first four columns must be there.

    image,name,x,y,class,object,split,visible,score,xmin,ymin,width,height,mm_per_pixel
    a.jpg,left_eye,120.5,88,cat,,train,1,0.9,10,20,300,200,0.02

`object` tells several objects of an image apart; xmin,ymin,width,height are the object's box; a row without x and y is
a landmark that the object does not have. An object without any row cannot be written. Text that a spreadsheet would
take for a formula, as it begins with =, +, - or @, is written with an apostrophe before it, which is taken away when
the file is read.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from normmatch.annotations import BOX_COLUMNS, Annotation, Row, filled, known_scores, make_annotation
from normmatch.checks import read_number
from normmatch.errors import DataError

COLUMNS = ("image", "name", "x", "y")
OPTIONAL = ("class", "object", "split", "visible", "score", "mm_per_pixel")
NUMBERS = ("x", "y", "visible", "score", "mm_per_pixel", *BOX_COLUMNS)
FORMULA = re.compile(r"'*[=+\-@]")  # also where apostrophes stand before it already: reading takes one away
OF_THE_OBJECT = ("class", "split", "mm_per_pixel", *BOX_COLUMNS)  # the same in all rows of an object


def read(path: Path, text: str, _: object = None) -> list[Annotation]:
    """The objects of a file: one for each image, or for each image and `object`."""
    groups: dict[tuple[str, str], list[tuple[str, Row]]] = {}
    for where, row in csv_rows(path, text, COLUMNS, OPTIONAL):
        groups.setdefault((filled(where, row, "image"), row.get("object", "")), []).append((where, row))
    return [_object(image, rows) for (image, _), rows in groups.items()]


def write(annotations: Sequence[Annotation]) -> str:
    """The text of a file; the columns that no object needs are left out, except class, object and the box."""
    extra = {
        "split": any(item.split for item in annotations),
        "visible": any(item.visible is not None for item in annotations),
        "score": any(item.scores is not None for item in annotations),
        "mm_per_pixel": any(item.scale for item in annotations),
    }
    columns = (
        "image",
        "class",
        "object",
        "name",
        "x",
        "y",
        *BOX_COLUMNS,
        *(key for key, used in extra.items() if used),
    )
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for number, item in enumerate(annotations):
        about: Row = {"image": escaped(item.image), "class": escaped(item.label)}
        about |= {"object": escaped(item.object) or number, "split": escaped(item.split)}
        about |= {"mm_per_pixel": item.scale or ""}
        about |= dict(zip(BOX_COLUMNS, item.box or (), strict=False))
        scores = dict(known_scores(item))
        for k, (name, (x, y)) in enumerate(zip(item.names, item.keypoints.tolist(), strict=True)):
            seen = 1 if item.visible is None else int(item.visible[k])
            writer.writerow(
                {**about, "name": escaped(name), "x": x, "y": y, "visible": seen, "score": scores.get(k, "")}
            )
        writer.writerows({**about, "name": escaped(name)} for name in item.absent)
    return text.getvalue()


def escaped(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if FORMULA.match(text) else text


def _plain(text: str, column: str) -> str:
    """The value of a cell: the inverse of `_escaped` where it is text."""
    text = text.strip()
    return text[1:] if text[:1] == "'" and FORMULA.match(text) and column not in NUMBERS else text


def _object(image: str, rows: Sequence[tuple[str, Row]]) -> Annotation:
    where, first = rows[0]
    names: set[str] = set()
    for place, row in rows:
        differs = any(row.get(column) != first.get(column) for column in OF_THE_OBJECT)
        if differs or row["name"] in names:
            what = "another class, box or split" if differs else f"a second {row['name']!r}"
            raise DataError(
                f"{place}: {what} in the object that begins at {where}; "
                "several objects of an image need a column `object` that tells them apart."
            )
        names.add(row["name"])
    box = [first.get(column, "") for column in BOX_COLUMNS]
    scale = first.get("mm_per_pixel", "")
    if scale and not 0 < read_number(scale) < float("inf"):
        raise DataError(f"{where}: mm_per_pixel is {scale[:20]!r}; expected a number above 0.")
    absent = [row["name"] for _, row in rows if not row["x"] and not row["y"]]
    return make_annotation(
        where,
        image,
        [(place, row) for place, row in rows if row["name"] not in absent],
        box=None if box == [""] * 4 else box,
        label=first.get("class", ""),
        split=filled(where, first, "split") if "split" in first else "",
        object=first.get("object", ""),
        absent=tuple(absent),
        scale=read_number(scale) if scale else None,
    )


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
            yield where, {column: _plain(value, column) for column, value in row.items()}
    except csv.Error as error:
        raise DataError(f"{path.name} line {reader.line_num + 1}: not a line of a CSV file ({error}).") from error
