"""Label projects read and written: a file that is damaged is refused, and the version before it named."""

import os
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from reprlib import repr as short
from typing import Any

from normmatch.annotations import number
from normmatch.annotations.names import swap_left_right
from normmatch.annotations.project import FORMAT, FORMAT_VERSION, ORIGINS, Json, Landmark, Photograph, Point, Project
from normmatch.checks import read_number
from normmatch.errors import DataError
from normmatch.geometry import Box
from normmatch.io import parse_json, read_text
from normmatch.outputs import whole_file, write_text

MAX_BYTES = 256 << 20
MAX_LANDMARKS, MAX_PHOTOGRAPHS = 500, 20_000


def previous(path: Path) -> Path:
    """Where the version before the last is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def read_project(path: Path) -> Project:
    """Read a project; one that is damaged or newer than this program is refused, and the version before it named."""
    backup = previous(path)
    hint = f"; the version before it is {backup.name}" if backup.is_file() else ""
    try:
        content = parse_json(path, read_text(path, MAX_BYTES))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise DataError(f'expected "format": "{FORMAT}"')
        version = content.get("format_version")
        if type(version) is int and version > FORMAT_VERSION:
            raise DataError(f"it was written by a newer NormMatch, as format {version}, and this one reads 1")
        return project_of(content)
    except DataError as error:
        reason = str(error).removesuffix(".").replace(f"{path} is not a JSON file that can be read", "it is no JSON")
        raise DataError(f"{path} cannot be read as a label project: {reason}{hint}.") from None


def write_project(path: Path, text: str, before: str = "") -> None:
    """Write a project whole, on the disk when this returns; the text it had before is kept beside it."""
    if before:
        write_text(previous(path), before)
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def project_of(content: Json) -> Project:
    """Check a project's JSON and make it; every mistake is one sentence with its place."""
    landmarks = landmarks_of(content.get("landmarks"))
    names = {one.name for one in landmarks}
    photographs: dict[str, Photograph] = {}
    for index, entry in enumerate(_list(content, "photographs", MAX_PHOTOGRAPHS)):
        one = photograph_of(f"photograph number {index}", entry, names)
        if one.file in photographs:
            raise DataError(f"{short(one.file)} is there twice")
        photographs[one.file] = one
    return Project(
        _text(content, "name"),
        landmarks,
        photographs,
        skeleton_of(content.get("skeleton", []), names),
        settings_of(content.get("settings", {})),
        content.get("improved") if isinstance(content.get("improved"), dict) else None,
        _count("the project", content, "revision"),
        _text(content, "saved_by"),
        _text(content, "saved_edit"),
        **({"id": _text(content, "id")} if content.get("id") else {}),
    )


def landmarks_of(entries: Any) -> tuple[Landmark, ...]:
    """Landmarks from JSON: different printable names. A `pair` that is not given is told by left and right."""
    given: dict[str, Json] = {}
    for entry in _list({"landmarks": entries}, "landmarks", MAX_LANDMARKS):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 200:
            raise DataError(f"a landmark is {short(entry)}; expected a `name` that can be printed")
        if name in given:
            raise DataError(f"two landmarks are called {short(name)}; expected different names")
        if not all(isinstance(entry.get(key), str | None) for key in ("color", "pair")):
            raise DataError(f"the landmark {short(name)} has a color or a pair that is no text")
        given[name] = entry
    pairs = {name: entry["pair"] for name, entry in given.items() if "pair" in entry}
    for name in given.keys() - pairs.keys():
        other = swap_left_right(name)
        pairs[name] = other if other != name and other in given and pairs.get(other, name) == name else None
    for name, pair in pairs.items():
        if pair is not None and (pair == name or pairs.get(pair) != name):
            raise DataError(f"{short(name)} has the pair {short(pair)}; expected two that name each other")
    return tuple(Landmark(name, entry.get("color"), pairs[name]) for name, entry in given.items())


def skeleton_of(lines: Any, names: set[str]) -> tuple[tuple[str, str], ...]:
    """Lines between two landmarks each."""
    found = []
    for line in _list({"skeleton": lines}, "skeleton", 10 * MAX_LANDMARKS):
        if not (isinstance(line, list) and len(line) == 2 and all(isinstance(n, str) and n in names for n in line)):
            raise DataError(f"a line of the skeleton is {short(line)}; expected the names of two landmarks")
        found.append((line[0], line[1]))
    return tuple(found)


def settings_of(given: Any) -> dict[str, bool]:
    settings = {"turned": False, "mirrored": False}
    if not isinstance(given, dict) or not all(isinstance(given.get(key, False), bool) for key in settings):
        raise DataError(f"the settings are {short(given)}; expected `turned` and `mirrored`, true or false")
    return {key: given.get(key, False) for key in settings}


def photograph_of(where: str, entry: Any, names: set[str]) -> Photograph:
    """A photograph from JSON."""
    file = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(file, str) or not file or not file.isprintable() or not _is_inside(file):
        raise DataError(f"{where} has the file {short(file)}; expected one in the project's folder, as seen from there")
    points = entry.get("points", {})
    if not isinstance(points, dict) or not points.keys() <= names:
        raise DataError(f"the points of {file} are {short(points)}; expected an object by the landmarks' names")
    flags = {key: entry.get(key, False) for key in ("reviewed", "skipped")}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise DataError(f"{file} is neither reviewed nor not: expected true or false")
    found = {name: point_of(f"{name} of {file}", point) for name, point in points.items() if point is not None}
    return Photograph(
        file, _count(file, entry, "width"), _count(file, entry, "height"), found, **flags,
        changed=_count(file, entry, "changed"), box=box_of(file, entry.get("box")),
        scale=scale_of(file, entry.get("scale")),
    )  # fmt: skip


def point_of(where: str, entry: Any, nested: bool = False) -> Point:
    """A point from JSON."""
    if not isinstance(entry, dict) or entry.get("from") not in ORIGINS:
        raise DataError(f"{where} is {short(entry)}; expected a point with `from`, one of {', '.join(ORIGINS)}")
    absent, was = entry.get("absent", False), entry.get("was")
    if not isinstance(absent, bool):
        raise DataError(f"{where}: `absent` is {short(absent)}; expected true or false")
    placed = entry.get("x") is not None or not absent
    xy = (number(where, "x", entry.get("x")), number(where, "y", entry.get("y"))) if placed else None
    for key in ("score", "visible", "spread"):
        if entry.get(key) is not None and not read_number(entry[key]) >= 0:
            raise DataError(f"{where}: `{key}` is {short(entry[key])}; expected a number from 0 on")
    score, visible, spread = (
        None if entry.get(key) is None else float(entry[key]) for key in ("score", "visible", "spread")
    )
    replaced = None if was is None or nested else point_of(where, was, nested=True)
    return Point(entry["from"], xy, absent, score, visible, spread, replaced)


def box_of(where: str, box: Any) -> Box | None:
    if box is None:
        return None
    if not isinstance(box, list) or len(box) != 4:
        raise DataError(f"the box of {where} is {short(box)}; expected x, y, width and height")
    x, y, width, height = (number(where, "its box", value) for value in box)
    if min(width, height) <= 0:
        raise DataError(f"the box of {where} is {short(box)}; expected a width and a height above 0")
    return x, y, width, height


def scale_of(where: str, scale: Any) -> Json | None:
    """How large a pixel is: a number, or two points and the length between them."""
    if scale is None:
        return None
    sizes = [read_number(scale.get(key)) for key in ("per_pixel", "length")] if isinstance(scale, dict) else []
    points = scale.get("points") if isinstance(scale, dict) else None
    if not sizes or not (sizes[0] > 0 or (sizes[1] > 0 and isinstance(points, list) and len(points) == 2)):
        expected = "`per_pixel`, or two `points` and their `length`, and a `unit`"
        raise DataError(f"the scale of {where} is {short(scale)}; expected {expected}")
    unit = scale.get("unit", "mm")
    if sizes[0] > 0:
        return {"per_pixel": sizes[0], "unit": str(unit)[:20]}
    if not all(isinstance(p, list) and len(p) == 2 for p in points or ()):
        raise DataError(f"the scale of {where} has the points {short(points)}; expected x and y of two")
    ends = [[number(where, "its scale", value) for value in point] for point in points or ()]
    return {"points": ends, "length": sizes[1], "unit": str(unit)[:20]}


def _is_inside(file: str) -> bool:
    """Whether the name of a file leads nowhere else than into the folder, on any system."""
    path = PureWindowsPath(file)
    return not path.drive and not path.root and ".." not in path.parts


def _list(content: Json, key: str, most: int) -> Sequence[Any]:
    values = content.get(key)
    if not isinstance(values, list) or len(values) > most:
        raise DataError(f"`{key}` is {short(values)}; expected a list of at most {most:,}")
    return values


def _text(content: Json, key: str) -> str:
    value = content.get(key, "")
    if not isinstance(value, str):
        raise DataError(f"`{key}` is {short(value)}; expected text")
    return value


def _count(where: str, content: Json, key: str) -> int:
    value = content.get(key, 0)
    if type(value) is not int or value < 0:
        raise DataError(f"`{key}` of {where} is {short(value)}; expected a whole number")
    return value
