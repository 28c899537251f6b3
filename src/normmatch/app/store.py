"""The project that a label server works on: an edit is on the disk before it is answered, and none is overwritten."""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from normmatch.annotations.project import Json, Photograph, Point, Project
from normmatch.annotations.project_file import project_of, write_project
from normmatch.app.edits import MOST_EDITS, apply
from normmatch.errors import DataError, InputError

UNSURE, SURE = 0.5, 0.8  # bands of certainty
DISK = "disk"  # who has saved, if it was another program


class Conflict(Exception):
    """Somebody else has saved since: nothing of this edit is applied."""

    def __init__(self, revision: int, saved_by: str) -> None:
        who = "Another program has changed the project's file" if saved_by == DISK else "Another window has saved"
        sentence = f"{who}: nothing of this change is in it. Load what is there, or save this as a copy."
        super().__init__(sentence)
        self.revision, self.saved_by = revision, saved_by


class Store:
    """One project and its file. All of it may be called from any thread."""

    def __init__(self, path: Path, project: Project, text: str = "", begun: bool = False) -> None:
        self.path, self.project = path, project
        self.lock = threading.RLock()
        self.proposals = 0  # grows whenever the machine changes points
        self.renewed: dict[str, int] = {}  # the number at which a photograph's proposals changed last
        self._text, self._signature, self._unsaved = text, _signature(path) if text else None, begun

    def edit(self, window: str, revision: int, edits: Sequence[Any]) -> Project:
        """Apply a page's edits and save; raises Conflict if they are about another revision than the last."""
        if not 0 < len(edits) <= MOST_EDITS:
            raise InputError(f"The page sent {len(edits):,} edits; expected 1 to {MOST_EDITS:,}.")
        with self.lock:
            self._check_disk()
            edits = self._not_yet_applied(window, revision, edits)
            project = self.project
            for edit in edits:
                project = replace(apply(project, edit), saved_by=window)
            if edits:
                self._write(project)
                self.project = project
            return self.project

    def _not_yet_applied(self, window: str, revision: int, edits: Sequence[Any]) -> Sequence[Any]:
        """Those edits that are new: a page sends them again when it has not heard the answer."""
        project = self.project
        if revision == project.revision:
            return edits
        ids = [edit.get("id") if isinstance(edit, dict) else None for edit in edits]
        done = ids.index(project.saved_edit) + 1 if project.saved_edit in ids else 0
        if done and project.saved_by == window and revision + done == project.revision:
            return edits[done:]
        raise Conflict(project.revision, project.saved_by)

    def propose(self, found: Mapping[str, Mapping[str, Point]]) -> int:
        """Take the machine's points where nobody has set any; how many photographs changed. `save` writes them."""
        with self.lock:
            photographs, names = dict(self.project.photographs), set(self.project.names)
            changed = []
            for file, points in found.items():
                one = photographs.get(file)
                if one is None or one.reviewed:
                    continue
                free = {n: p for n, p in points.items() if n in names and _is_free(one.points.get(n))}
                photographs[file] = replace(one, points={**one.points, **free})
                changed.append(file)
            if changed:
                self.proposals += 1
                self.renewed |= dict.fromkeys(changed, self.proposals)
                self.project, self._unsaved = replace(self.project, photographs=photographs), True
            return len(changed)

    def improve(self, improved: Json | None) -> None:
        """Note, or forget, that the machine has adapted itself to this project."""
        with self.lock:
            self.project, self._unsaved = replace(self.project, improved=improved), True
            self.save()

    def save(self) -> None:
        """Write what the machine has changed, unless it is on the disk."""
        with self.lock:
            if self._unsaved:
                self._check_disk()
                self._write(self.project)

    def copy(self, content: Any) -> str:
        """Save a page's own project beside this one; the name of the file."""
        try:
            project = project_of(content if isinstance(content, dict) else {})
        except DataError as error:
            raise InputError(f"The page sent a project that cannot be: {str(error).rstrip('.')}.") from None
        with self.lock:
            names = (f"{self.path.stem}-copy-{number}{self.path.suffix}" for number in range(1, 10_000))
            path = next(path for path in map(self.path.with_name, names) if not path.exists())
            write_project(path, project.text())
        return path.name

    def _write(self, project: Project) -> None:
        text = project.text()
        write_project(self.path, text, self._text)
        self._text, self._signature, self._unsaved = text, _signature(self.path), False

    def _check_disk(self) -> None:
        """Nothing that another program has written is overwritten."""
        if self._signature is not None and _signature(self.path) not in (self._signature, None):
            raise Conflict(self.project.revision, DISK)


def counts_of(project: Project) -> Json:
    """What is left to do, and how often proposals were kept."""
    bands = {"reviewed": 0, "sure": 0, "uncertain": 0, "new": 0}
    kept = corrected = 0
    for one in project.photographs.values():
        bands[_band(project, one)] += 1
        if one.reviewed:
            kept += sum(point.origin == "kept" for point in one.points.values())
            corrected += sum(point.origin == "person" and point.was is not None for point in one.points.values())
    share = round(kept / (kept + corrected), 4) if kept + corrected else None
    total = {"photographs": len(project.photographs), "kept": kept, "corrected": corrected, "kept_share": share}
    return {**bands, **total}


def least_certainty(one: Photograph) -> float:
    """Of a photograph's proposals; the order of review goes by it."""
    return min((point.certainty for point in one.points.values() if point.origin == "proposed"), default=math.inf)


def _band(project: Project, one: Photograph) -> str:
    if len(one.points) < len(project.landmarks) or not one.points:
        return "new"
    if one.reviewed:
        return "reviewed"
    copied = any(point.origin == "copied" for point in one.points.values())
    return "sure" if least_certainty(one) >= SURE and not copied else "uncertain"


def _is_free(point: Point | None) -> bool:
    return point is None or point.origin == "proposed"


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino
