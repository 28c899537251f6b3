"""Named distances, angles and ratios of landmarks, as columns of a table.

    head length = nose to neck
    jaw angle = angle ear chin nose          at the second of three landmarks, in degrees
    head share = head length / body length   of two distances

A distance is in millimetres where the photograph has a scale, and in pixels where none of them has one: never both in
a column. Its error is what a landmark's deviation implies, if that is given as a share of the object.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from normmatch.annotations import Annotation
from normmatch.errors import InputError

Kind = Literal["distance", "angle", "ratio"]
ENDS = {"distance": 2, "angle": 3, "ratio": 2}


@dataclass(frozen=True)
class Measure:
    """What to measure: of landmarks, a ratio of two other measures."""

    name: str
    kind: Kind
    of: tuple[str, ...]


def parse(text: str, landmarks: Sequence[str], known: Sequence[Measure] = ()) -> Measure:
    """A definition as people write it."""
    name, equals, body = (part.strip() for part in text.partition("="))
    kind: Kind = "ratio" if "/" in body else "angle" if re.match(r"angle\s", body) else "distance"
    if kind == "angle":
        parts = body.split(None, 1)[1].split()
    else:
        parts = [part.strip() for part in re.split(r"/" if kind == "ratio" else r"\s+to\s+", body)]
    expected = [one.name for one in known if one.kind == "distance"] if kind == "ratio" else list(landmarks)
    wrong = [part for part in parts if part not in expected]
    if not equals or not name or len(parts) != ENDS[kind] or wrong:
        what = f"{wrong[0]!r} is not known" if wrong and len(parts) == ENDS[kind] else "it cannot be read"
        raise InputError(
            f"The measure {text[:80]!r}: {what}; expected such as `head length = nose to neck`, `a = angle ear chin "
            "nose` or `share = head length / body length`, of landmarks and distances that are there."
        )
    return Measure(name, kind, tuple(parts))


def columns(
    annotations: Sequence[Annotation], definitions: Sequence[str], deviation: float | None = None
) -> dict[str, list[float]]:
    """Columns by their names with units, nan where something is missing; with errors if `deviation` is given.

    Args:
        annotations: the objects, a row each.
        definitions: as people write them, in an order in which ratios come after their distances.
        deviation: of each landmark in x and in y, as a share of the object's longer side; `compare` measures it.
    """
    landmarks = list(dict.fromkeys(name for item in annotations for name in (*item.order, *item.names)))
    measures: list[Measure] = []
    for text in definitions:
        measures.append(parse(text, landmarks, measures))
    unit = "mm" if any(item.scale for item in annotations) else "px"
    values: dict[str, np.ndarray] = {}
    errors: dict[str, np.ndarray] = {}
    for one in measures:
        if one.kind == "ratio":
            first, second = (values[name] for name in one.of)
            values[one.name] = first / second
            errors[one.name] = values[one.name] * np.hypot(*(errors[name] / values[name] for name in one.of))
        else:
            pairs = np.array([_measure(one, item, unit, deviation or 0.0) for item in annotations]).reshape(-1, 2)
            values[one.name], errors[one.name] = pairs.T
    table: dict[str, list[float]] = {}
    for one in measures:
        suffix = {"distance": f" ({unit})", "angle": " (degrees)", "ratio": ""}[one.kind]
        table[one.name + suffix] = values[one.name].tolist()
        if deviation is not None:
            table[f"{one.name} error{suffix}"] = errors[one.name].tolist()
    return table


def _measure(one: Measure, item: Annotation, unit: str, deviation: float) -> tuple[float, float]:
    """A value and its error."""
    places = dict(zip(item.names, item.keypoints, strict=True))
    if any(name not in places for name in one.of) or (unit == "mm" and one.kind == "distance" and not item.scale):
        return np.nan, np.nan
    spread = deviation * float(np.ptp(item.keypoints, axis=0).max())
    points = [places[name] for name in one.of]
    if one.kind == "distance":
        scale = (item.scale or 1.0) if unit == "mm" else 1.0
        return float(np.linalg.norm(points[1] - points[0])) * scale, float(np.sqrt(2) * spread * scale)
    first, second = points[0] - points[1], points[2] - points[1]
    a, b, across = np.linalg.norm(first), np.linalg.norm(second), np.linalg.norm(points[2] - points[0])
    if not a * b:
        return np.nan, np.nan
    angle = np.degrees(np.arccos(np.clip(first @ second / (a * b), -1, 1)))
    # each end turns its leg; the middle one turns both, the other way round
    return float(angle), float(np.degrees(spread * np.sqrt(1 / a**2 + 1 / b**2 + (across / (a * b)) ** 2)))
