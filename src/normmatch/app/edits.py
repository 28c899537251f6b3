"""Edits of a label project: what a person did in the page, as a function from one project to the next."""

from collections.abc import Mapping
from dataclasses import replace
from reprlib import repr as short
from typing import Any

from normmatch.annotations.project import Json, Photograph, Point, Project
from normmatch.annotations.project_file import (
    box_of,
    landmarks_of,
    point_of,
    scale_of,
    settings_of,
    skeleton_of,
)
from normmatch.errors import DataError, InputError

MOST_EDITS = 1000  # of one request
PARTS = {"id", "photographs", "landmarks", "renamed", "skeleton", "settings", "name"}
OF_PHOTOGRAPH = {"points", "reviewed", "skipped", "box", "scale"}


def apply(project: Project, edit: Any) -> Project:
    """The project after an edit, checked; what the edit does not name is as it was."""
    try:
        if not isinstance(edit, dict) or not edit.keys() <= PARTS or not isinstance(edit.get("id"), str):
            raise DataError(f"an edit is {short(edit)}; expected its `id` and some of {', '.join(sorted(PARTS))}")
        project = _rename(project, edit.get("renamed") or {})
        if "landmarks" in edit:
            project = _with_landmarks(project, edit["landmarks"])
        if "skeleton" in edit:
            project = replace(project, skeleton=skeleton_of(edit["skeleton"], set(project.names)))
        if "settings" in edit:
            project = replace(project, settings=settings_of(edit["settings"]))
        if isinstance(edit.get("name"), str):
            project = replace(project, name=edit["name"][:200])
        revision, photographs = project.revision + 1, dict(project.photographs)
        for file, change in (edit.get("photographs") or {}).items():
            if file not in photographs:
                raise DataError(f"the project has no photograph {short(file)}")
            photographs[file] = _change(project, photographs[file], change, revision)
        return replace(project, photographs=photographs, revision=revision, saved_edit=edit["id"])
    except (DataError, AttributeError, TypeError) as error:
        raise InputError(f"The page sent an edit that cannot be: {str(error).rstrip('.')}.") from None


def _change(project: Project, one: Photograph, change: Any, revision: int) -> Photograph:
    """A photograph after its part of an edit."""
    if not isinstance(change, dict) or not change.keys() <= OF_PHOTOGRAPH:
        raise DataError(f"{one.file} is to become {short(change)}; expected some of {', '.join(sorted(OF_PHOTOGRAPH))}")
    points, names = dict(one.points), set(project.names)
    for name, point in (change.get("points") or {}).items():
        if name not in names:
            raise DataError(f"there is no landmark {short(name)}")
        points.pop(name, None)
        if point is not None:
            points[name] = point_of(f"{name} of {one.file}", point)
    flags = {key: change.get(key, getattr(one, key)) for key in ("reviewed", "skipped")}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise DataError(f"{one.file} is to be {short(flags)}; expected true or false")
    if change.get("reviewed"):
        missing = [name for name in project.names if name not in points]
        if missing or not names:
            raise DataError(
                f"{', '.join(missing[:3]) or 'no landmark'} of {one.file} is not set; accept it when all are"
            )
        points = {name: accepted(point) for name, point in points.items()}
    box = box_of(one.file, change["box"]) if "box" in change else one.box
    scale = scale_of(one.file, change["scale"]) if "scale" in change else one.scale
    return replace(one, points=points, **flags, box=box, scale=scale, changed=revision)


def accepted(point: Point) -> Point:
    """A point of a photograph that a person has looked at and accepted."""
    return replace(point, origin={"proposed": "kept", "copied": "person"}.get(point.origin, point.origin))


def _rename(project: Project, renamed: Mapping[str, str]) -> Project:
    if not renamed:
        return project
    new = {name: str(renamed.get(name, name)) for name in project.names}
    landmarks: list[Json] = [
        {"name": new[one.name], "color": one.color, "pair": one.pair and new[one.pair]} for one in project.landmarks
    ]
    return replace(
        project,
        landmarks=landmarks_of(landmarks),
        skeleton=tuple((new[a], new[b]) for a, b in project.skeleton),
        photographs={
            file: replace(one, points={new[name]: point for name, point in one.points.items()})
            for file, one in project.photographs.items()
        },
    )


def _with_landmarks(project: Project, entries: Any) -> Project:
    """The project with other landmarks; what was set for those that are gone goes too."""
    landmarks = landmarks_of(entries)
    names = {one.name for one in landmarks}
    photographs = {
        file: one if one.points.keys() <= names
        else replace(one, points={name: point for name, point in one.points.items() if name in names})
        for file, one in project.photographs.items()
    }  # fmt: skip
    skeleton = tuple(line for line in project.skeleton if set(line) <= names)
    return replace(project, landmarks=landmarks, photographs=photographs, skeleton=skeleton)
