"""NTS and morphologika: one matrix of all specimens, y counted from the bottom of the photograph.

    " a comment                                     [individuals]     2
    1 2L 4 0 dim=2                                  [landmarks]       2
    specimen1 specimen2                             [dimensions]      2
    303.7 650.0 304.8 645.9                         [names]           specimen1 ...
    451.1 393.1 452.0 390.2                         [rawpoints]       'specimen1, then lines of x and y

An .nts file is any matrix: landmarks have `dim=`. Where the lines break means nothing. A missing value is the header's.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from normmatch.annotations import Annotation, make_annotation
from normmatch.annotations.reading import Reading
from normmatch.annotations.tps import all_names, from_bottom
from normmatch.checks import read_number
from normmatch.errors import DataError

HEADER = re.compile(r"1\s+(\d+)([LBE]?)\s+(\d+)(L?)\s+([01])(?:\s+(\S+))?\s+dim\s*=\s*(\d)\s*$", re.IGNORECASE)
GONE = -999


def read_nts(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The specimens of an NTS matrix of landmarks."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(('"', "'"))]
    head = HEADER.match(lines[0].strip()) if lines else None
    if head is None:
        raise DataError(f"{path} is no NTS file of landmarks: expected a header such as `1 20L 24 0 dim=2`.")
    count, where, columns, labels = int(head[1]), head[2].upper(), int(head[3]), bool(head[4])
    if head[7] != "2":
        raise DataError(f"{path}: the landmarks have {head[7]} dimensions; expected 2.")
    words = " ".join(lines[1:]).split()
    names = words[:count] if where == "L" else []
    words = words[len(names) + (columns if labels else 0) :]
    width = columns + (where in ("B", "E"))
    if len(words) != count * width or columns % 2:
        raise DataError(f"{path}: {len(words):,} values; expected {count * width:,} for {count} specimens of x and y.")
    rows = [words[k * width : (k + 1) * width] for k in range(count)]
    if where in ("B", "E"):
        names = [row[0 if where == "B" else -1] for row in rows]
        rows = [row[1:] if where == "B" else row[:-1] for row in rows]
    values = np.array([[read_number(word) for word in row] for row in rows])
    if head[5] == "1":
        values[values == read_number(head[6] or "")] = math.nan
    return _specimens(path, names or [f"{path.stem} {k + 1}" for k in range(count)], values, how)


def read_morphologika(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The individuals of a morphologika file."""
    parts = re.split(r"^\[(\w+)\]\s*$", text, flags=re.MULTILINE | re.IGNORECASE)
    sections = {key.lower(): body.strip() for key, body in zip(parts[1::2], parts[2::2], strict=False)}
    if sections.get("dimensions", "2") != "2":
        raise DataError(f"{path}: the landmarks have {sections['dimensions'][:3]} dimensions; expected 2.")
    blocks = re.split(r"^\s*['\"].*$", sections.get("rawpoints", ""), flags=re.MULTILINE)
    values = [[read_number(word) for word in re.split(r"[,\s]+", block.strip())] for block in blocks if block.strip()]
    if not values or len({len(row) for row in values}) > 1 or len(values[0]) % 2:
        raise DataError(f"{path}: expected the same number of x and y for each of the [individuals] under [rawpoints].")
    names = [name.strip("'\" ") for name in sections.get("names", "").splitlines() if name.strip()]
    names = names if len(names) == len(values) else [str(k + 1) for k in range(len(values))]
    return _specimens(path, names, np.array(values), how)


def _specimens(path: Path, names: Sequence[str], values: np.ndarray, how: Reading) -> list[Annotation]:
    """Specimens with values (R, 2K)."""
    landmarks = how.landmarks(path.name, values.shape[1] // 2)
    found = []
    for number, (name, row) in enumerate(zip(names, values.reshape(len(values), -1, 2), strict=True), 1):
        where = f"{path.name} specimen {number}"
        image, size = how.image(path, name)
        missing = ~np.isfinite(row).all(1) | (row == -1).all(1) | (how.negative_missing & (row < 0).any(1))
        (points,), y_up = how.turn([np.where(missing[:, None], math.nan, row)], size, True)
        rows = [
            (where, {"name": landmark, "x": float(x), "y": float(y)})
            for landmark, (x, y), gone in zip(landmarks.names, points, missing, strict=True)
            if not gone
        ]
        about: dict[str, Any] = {"size": None if y_up else size, "y_up": y_up}
        found.append(make_annotation(where, image, rows, landmarks=landmarks, **about))
    return found


def write_nts(annotations: Sequence[Annotation]) -> str:
    """The text of an NTS file, with -999 where a landmark is missing."""
    names = all_names(annotations)
    rows = []
    for item in annotations:
        places = dict(zip(item.names, from_bottom(item, item.keypoints), strict=True))
        points = [places.get(name, (GONE, GONE)) for name in names]
        rows.append(" ".join(f"{value:.10g}" for point in points for value in point))
    missing = f"1 {GONE}" if any(len(item.names) < len(names) for item in annotations) else "0"
    labels = [re.sub(r"\s+", "_", item.image) for item in annotations]
    landmarks = ", ".join(names)
    lines = [f'" landmarks: {landmarks}', f"1 {len(rows)}L {2 * len(names)} {missing} dim=2", *labels, *rows]
    return "\n".join(lines) + "\n"
