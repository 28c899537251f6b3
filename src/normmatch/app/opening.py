"""Opening a folder of photographs: its label project, found or begun, with what is new in the folder."""

import glob
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.images import ImageIndex, image_files, upright_size
from normmatch.annotations.project import Photograph, Point, Project
from normmatch.annotations.project_file import MAX_PHOTOGRAPHS, landmarks_of, read_project
from normmatch.app.photographs import Photographs
from normmatch.app.store import UNSURE, Store
from normmatch.errors import DataError, InputError

PROJECT = "normmatch.json"


def open_folder(
    folder: Path, path: Path | None = None, start: Path | None = None, names: Sequence[str] = ()
) -> tuple[Store, Photographs]:
    """A folder's project and photographs, ready to be worked on.

    Args:
        folder: the photographs; those of folders inside it as well.
        path: the project's file; normmatch.json in the folder without it.
        start: a keypoints file of any format to begin a project with.
        names: landmarks to begin a project with.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; expected one with photographs.")
    path = path or folder / PROJECT
    for left in path.parent.glob(f".{glob.escape(path.stem)}*.*-*{path.suffix}"):
        left.unlink(missing_ok=True)  # half written by a NormMatch that was killed
    there = path.exists()
    if there and (start or names):
        what = f"the project {path} is there already, and has its landmarks"
        raise InputError(
            f"{'--from' if start else '--landmarks'} begins a project, but {what}; expected no such option."
        )
    project = read_project(path) if there else Project(folder.resolve().name)
    project = with_files(project, folder)
    if not project.photographs:
        raise InputError(f"{folder} has no photographs; expected some, as JPEG, PNG, WebP or TIFF files.")
    if names:
        project = replace(project, landmarks=landmarks_of([{"name": name} for name in names]))
    if start:
        project = with_annotations(project, annotations.read(start), start, folder)
    text = path.read_text(encoding="utf-8") if there else ""
    return Store(path, project, text, bool(start or names)), Photographs(folder, project.photographs)


def with_files(project: Project, folder: Path) -> Project:
    """The project with the photographs that are new in its folder; those that are gone stay in it."""
    photographs = dict(project.photographs)
    hidden = (path for path in image_files(folder, recursive=True))
    for path in hidden:
        file = path.relative_to(folder)
        size = None if any(part.startswith(".") for part in file.parts) else upright_size(path)
        if file.as_posix() not in photographs and size and file.as_posix().isprintable():
            photographs[file.as_posix()] = Photograph(file.as_posix(), *size)
        if len(photographs) > MAX_PHOTOGRAPHS:
            raise InputError(f"{folder} has more than {MAX_PHOTOGRAPHS:,} photographs; expected fewer in one project.")
    return replace(project, photographs=photographs)


def with_annotations(project: Project, items: Sequence[Annotation], source: Path, folder: Path) -> Project:
    """The project with the landmarks of a keypoints file. What has a score is a proposal, all else a person's."""
    longest_first = sorted(items, key=lambda item: -len(item.order))
    names = list(dict.fromkeys([*project.names, *(name for item in longest_first for name in item.order)]))
    pairs = {name: one.pair for one in project.landmarks for name in (one.name,) if one.pair}
    lines = list(project.skeleton)
    for kind in dict.fromkeys(item.landmarks for item in items if item.landmarks):
        pairs |= {a: b for pair in kind.pairs for a, b in (pair, pair[::-1])}
        lines += [line for line in kind.skeleton if line not in lines]
    colors = {one.name: one.color for one in project.landmarks}
    entries = [{"name": n, "color": colors.get(n), **({"pair": pairs[n]} if n in pairs else {})} for n in names]
    project = replace(project, landmarks=landmarks_of(entries), skeleton=tuple(lines))
    photographs = dict(project.photographs)
    for file, item in matched(items, source, folder, photographs).items():
        photographs[file] = annotated(photographs[file], item, names)
    return replace(project, photographs=photographs)


def matched(items: Sequence[Annotation], source: Path, folder: Path, files: Iterable[str]) -> dict[str, Annotation]:
    """The one object that a keypoints file has in each of the photographs."""
    index, found = ImageIndex(items, source, folder), {}
    for file in files:
        objects = index.all(folder / file)
        if len(objects) > 1:
            raise DataError(f"{source} has {len(objects)} objects in {file}; expected one in each photograph.")
        if objects:
            found[file] = objects[0]
    return found


def annotated(one: Photograph, item: Annotation, names: Sequence[str]) -> Photograph:
    """A photograph with the points of a file; a landmark that a person's points lack counts as not in the picture."""
    points = {}
    scores = [float("nan")] * len(item.names) if item.scores is None else item.scores.tolist()
    for name, (x, y), score in zip(item.names, item.keypoints.tolist(), scores, strict=True):
        proposed = 0 <= score <= 1
        points[name] = (
            Point("proposed", (x, y), score=score, visible=max(score, UNSURE)) if proposed else Point("person", (x, y))
        )
    by_person = bool(points) and all(point.origin == "person" for point in points.values())
    if by_person:
        points |= {name: Point("person", absent=True) for name in names if name not in points}
    scale = None if item.scale is None else {"per_pixel": item.scale, "unit": "mm"}
    return replace(one, points=points, reviewed=by_person, box=item.box, scale=scale or one.scale)
