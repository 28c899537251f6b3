"""Proposals beside the work: an album of the photographs, whose references are what a person has reviewed.

The album encodes all photographs as soon as a folder is opened. When a photograph is accepted, or an accepted one
changes, the proposals are made anew; points that a person has set stay as they are.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from normmatch.annotations.project import Json, Photograph, Point, Project
from normmatch.app.photographs import Photographs
from normmatch.app.store import UNSURE, Conflict, Store, counts_of
from normmatch.errors import InputError, NormMatchError

if TYPE_CHECKING:
    from normmatch.matching.album import Album
    from normmatch.matching.landmarks import Located
    from normmatch.matching.looks import Tuning
    from normmatch.matching.sight import Encoder

SAVED = 1.0  # seconds between saves while proposals come in
ALIKE = 4  # reviewed photographs that are told to look like one
NOTHING_YET = "No photograph is reviewed yet; set the landmarks on one and accept it, then propose."


class Proposer:
    """Works on a store until it is closed."""

    def __init__(self, store: Store, photographs: Photographs, open_encoder: "Callable[[], Encoder]") -> None:
        self.store, self.photographs = store, photographs
        self.job: Json | None = None
        self.last_job: Json | None = None
        self.engine: Json = {"ready": False, "error": None}
        self.album: Album | None = None
        self._wanted: list[Json] = [{"kind": "renew"}] if was_proposed(store.project) else []
        self._asked: set[str] = set()  # photographs that may get their first proposals
        self._names: tuple[str, ...] = ()  # of the landmarks that the album's references show
        self._taken: dict[str, Located] = {}
        self._looks: dict[str, np.ndarray] = {}  # what each photograph looks like as a whole
        self._stop, self._closed, self._saved = threading.Event(), threading.Event(), 0.0
        self._wake, self._fitting = threading.Condition(), threading.Lock()
        self._open_encoder = open_encoder
        self._thread = threading.Thread(target=self._work, name="normmatch-proposals", daemon=True)
        self._thread.start()

    def ask(self, kind: str, **more: Any) -> None:
        """Have a job done after the one at hand."""
        with self._wake:
            self._wanted = [job for job in self._wanted if job["kind"] != kind]
            self._wanted.append({"kind": kind, **more})
            self._wake.notify()

    def stop(self) -> None:
        """End the job at hand; what was found stays."""
        with self._wake:
            self._wanted = []
            self._stop.set()

    def close(self) -> None:
        with self._wake:
            self._closed.set()
            self._stop.set()
            self._wake.notify()
        self._thread.join(10)

    def alike(self, files: Iterable[str]) -> dict[str, list[str]]:
        """The reviewed photographs that look most like each of these, as far as both were seen."""
        if self.album is None:
            return {}
        reviewed, looks = [one.file for one in self.store.project.reviewed], self._looks
        for file in {*reviewed, *files} - looks.keys():
            look = self.album.look_of(file)
            if look is not None:
                looks[file] = look
        others = [file for file in reviewed if file in looks]
        if not others:
            return {}
        table = np.stack([looks[file] for file in others])  # (R, D)
        found = {file: table @ looks[file] for file in files if file in looks}
        ranked = {file: [others[i] for i in (-values).argsort() if others[i] != file] for file, values in found.items()}
        return {file: names[:ALIKE] for file, names in ranked.items()}

    def _work(self) -> None:
        from normmatch.matching.album import Album

        project = self.store.project
        try:
            files = {file: self.photographs.path(file) for file in project.photographs}
            boxes = {file: one.box for file, one in project.photographs.items() if one.box}
            self.album = Album(files, self._open_encoder(), boxes)
        except (NormMatchError, ModuleNotFoundError) as error:
            self.engine = {"ready": False, "error": str(error)}
            return
        self.engine = {"ready": True, "error": None}
        work = threading.Thread(target=self.album.work, args=(self._closed, self._take), daemon=True)
        work.start()
        number = 0
        while not self._closed.is_set():
            with self._wake:
                self._wake.wait_for(lambda: self._wanted or self._closed.is_set())
                asked = self._wanted.pop(0) if self._wanted else None
                if asked is not None and not self._closed.is_set():
                    self._stop.clear()  # whoever stops from here on means this job
            if asked is not None:
                number += 1
                self._do(self.album, asked, number)
        work.join(10)

    def _do(self, album: "Album", asked: Json, number: int) -> None:
        """One job; whatever goes wrong ends it, not the thread."""
        self.job = {"kind": asked["kind"], "done": 0, "total": 0}
        error, more = None, {}
        try:
            self._fit(album)
            if asked["kind"] == "propose":
                self._propose(album, asked.get("files"))
            elif asked["kind"] == "improve":
                more = self._improve(album)
            self.store.save()
        except (NormMatchError, Conflict, OSError) as fault:
            error = str(fault)
        except Exception as fault:
            error = f"The server failed at this ({type(fault).__name__}: {fault})."
        stopped = self._stop.is_set() and not self._closed.is_set()
        uncertain = counts_of(self.store.project)["uncertain"]
        ended = {"number": number, "stopped": stopped, "error": error, "uncertain": uncertain}
        self.last_job = {**self.job, **ended, **more}
        self.job = None

    def _fit(self, album: "Album") -> None:
        """Tell the album what is reviewed now; all that was proposed before is renewed when this returns."""
        project = self.store.project
        names, references = references_of(project)
        if not references:
            raise InputError(NOTHING_YET)
        with self._fitting:
            if names != self._names:  # other landmarks: nothing of before can be gone on from
                album.fit({})
                self._names, self._taken = names, {}
            album.tuning = tuning_of(project)
            for file, one in project.photographs.items():
                if album.boxes.get(file) != one.box:
                    album.draw(file, one.box)
            album.fit(references)
        self._take(None)

    def _propose(self, album: "Album", files: Sequence[str] | None) -> None:
        """Have all that is not reviewed proposed, or these files; until all are, or it is stopped."""
        left = [one.file for one in self.store.project.photographs.values() if not one.reviewed]
        wanted = {file for file in left if files is None or file in files}
        assert self.job is not None
        self.job["total"], self._asked = len(wanted), wanted
        while not self._stop.is_set():
            self._take(None)
            failed = sum(file in album.failed for file in wanted)
            found, settled = (sum(map(test, wanted)) for test in (self._taken.__contains__, album.is_settled))
            self.job["done"] = (found + settled) // 2 + failed
            if settled + failed >= len(wanted):
                break
            self._stop.wait(0.1)
        if self._stop.is_set():
            self.job["done"] = sum(file in self._taken for file in wanted)
        self._asked = set()

    def _improve(self, album: "Album") -> Json:
        """Choose numbers of the closed form for this folder, and keep them if they are better on what was left out."""

        def progress(done: int, total: int) -> bool:
            self.job = {"kind": "improve", "done": done, "total": total}
            return not self._stop.is_set()

        tuned = album.tune(progress)
        if tuned is None:
            return {}
        shares = {"before": round(tuned.before, 4), "after": round(tuned.after, 4)}
        if tuned.better:
            when = datetime.now(UTC).isoformat(timespec="seconds")
            told = {**shares, "photographs": tuned.photographs, "when": when, "tuning": asdict(tuned.tuning)}
            self.store.improve(told)
            self._fit(album)
        return {**shares, "kept": tuned.better}

    def _take(self, status: Any) -> None:
        """Let the store have what the album has found, of photographs that were asked for or have proposals."""
        album = self.album
        if album is None:
            return
        with self._fitting:
            photographs, fresh = self.store.project.photographs, {}
            for file, located in album.proposals.items():
                one = photographs.get(file)
                if self._taken.get(file) is not located and one and (file in self._asked or was_renewed(one)):
                    fresh[file] = self._points(located)
                    self._taken[file] = located
        self.store.propose(fresh)
        idle = status is not None and status.idle
        if time.monotonic() - self._saved > (0 if idle else SAVED):
            with suppress(Conflict, OSError):  # the next edit is refused, and tells
                self.store.save()
            self._saved = time.monotonic()

    def _points(self, found: "Located") -> dict[str, Point]:
        """Proposals of all landmarks; one that no reference shows is taken to be absent here, too."""
        chance = 1 / (len(self.store.project.reviewed) + 2)  # that the next photograph shows what none did
        points = {name: Point("proposed", None, True, 0.0, chance) for name in self.store.project.names}
        for name, (x, y), *values in zip(
            self._names, found.keypoints.tolist(), found.scores.tolist(), found.visible.tolist(),
            found.spread.tolist(), strict=True,
        ):  # fmt: skip
            points[name] = Point("proposed", (x, y), values[1] < UNSURE, *values)
        return points


def references_of(project: Project) -> "tuple[tuple[str, ...], dict[str, Any]]":
    """The landmarks that reviewed photographs show, and the points of these photographs, as an album takes them."""
    from normmatch.matching.album import Marked

    places = {one.file: project.keypoints(one) for one in project.reviewed}
    if not places:
        return (), {}
    shown = np.isfinite(np.stack(list(places.values()))).all(2).any(0)  # (K,)
    names = tuple(name for name, there in zip(project.names, shown, strict=True) if there)
    marked = {file: Marked(xy[shown], project.photographs[file].box) for file, xy in places.items()}
    return names, marked if names else {}


def tuning_of(project: Project) -> "Tuning":
    """The numbers that the project was improved with; the plain ones where they cannot be read."""
    from normmatch.matching.looks import PLAIN

    given = (project.improved or {}).get("tuning")
    with suppress(TypeError):
        return replace(PLAIN, **{str(key): max(float(value), 1e-3) for key, value in (given or {}).items()})
    return PLAIN


def was_proposed(project: Project) -> bool:
    return any(was_renewed(one) for one in project.photographs.values())


def was_renewed(one: Photograph) -> bool:
    """Whether the machine has proposed something here before."""
    return any(point.origin in ("proposed", "kept") for point in one.points.values())
