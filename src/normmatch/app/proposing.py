"""Proposals beside the work: a thread that finds the landmarks of what nobody has reviewed, least certain first.

Every reviewed photograph is a reference. When one is accepted, or changes, all proposals that may depend on it are
made anew; points that a person has set stay as they are.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from normmatch.annotations.project import Json, Photograph, Point, Project
from normmatch.app.photographs import Photographs, factor_of
from normmatch.app.store import UNSURE, Conflict, Store, counts_of, least_certainty
from normmatch.errors import InputError, NormMatchError
from normmatch.geometry import Box
from normmatch.matching.prefetch import ahead

if TYPE_CHECKING:
    from normmatch.matching.landmarks import Located
    from normmatch.matching.sight import Encoder

READ = 2000  # pixels of the longer side that a photograph is read with, at least: a second look needs no more
SAVED = 1.0  # seconds between saves while proposals come in
AHEAD = 2  # photographs that are decoded before their turn


class Proposer:
    """Works on a store until it is closed."""

    def __init__(self, store: Store, photographs: Photographs, open_encoder: "Callable[[], Encoder]") -> None:
        self.store, self.photographs = store, photographs
        self.job: Json | None = None
        self.last_job: Json | None = None
        self.engine: Json = {"ready": False, "error": None}
        self._wanted: list[Json] = []
        self._stop, self._closed, self._done = False, False, 0
        self._wake = threading.Condition()
        self._open_encoder = open_encoder
        self._thread = threading.Thread(target=self._work, name="normmatch-proposals", daemon=True)
        self._thread.start()

    def ask(self, kind: str, **more: Any) -> None:
        """Have a job done after the one at hand; a renewal makes way for anything, also for a newer one."""
        with self._wake:
            self._wanted = [job for job in self._wanted if job["kind"] != kind]
            self._wanted.append({"kind": kind, **more})
            self._stop = self._stop or (self.job is not None and self.job["kind"] == "renew")
            self._wake.notify()

    def stop(self) -> None:
        """End the job at hand after its photograph; what was found stays."""
        with self._wake:
            self._stop, self._wanted = True, []

    def close(self) -> None:
        with self._wake:
            self._closed = self._stop = True
            self._wake.notify()
        self._thread.join(10)

    def _work(self) -> None:
        try:
            encoder = self._open_encoder()
            self.engine = {"ready": True, "error": None}
        except (NormMatchError, ModuleNotFoundError) as error:
            self.engine = {"ready": False, "error": str(error)}
            return
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._wanted or self._closed)
                if self._closed:
                    return
                asked, self._stop = self._wanted.pop(0), False
                self.job = {"kind": asked["kind"], "done": 0, "total": 0}
            self._done += 1
            ended: Json = {"number": self._done, "stopped": False, "error": None}
            try:
                ended |= self._propose(encoder, asked.get("files"))
            except (NormMatchError, Conflict) as error:
                ended["error"] = str(error)
            except Exception as error:  # a fault of ours ends this job, not the thread
                ended["error"] = f"The server failed at this ({type(error).__name__})."
            ended |= {**self.job, "stopped": self._stop and not self._closed}
            ended["uncertain"] = counts_of(self.store.project)["uncertain"]
            self.job, self.last_job = None, ended

    def _propose(self, encoder: "Encoder", files: Sequence[str] | None) -> Json:
        """Propose on all that are not reviewed, or on these of them."""
        project = self.store.project
        wanted = [one for one in queue(project) if files is None or one.file in files]
        assert self.job is not None
        self.job["total"] = len(wanted)
        saved = time.monotonic()
        for one, found in locate(project, self.photographs, wanted, encoder):
            self.store.propose({one.file: found})
            self.job["done"] += 1
            if time.monotonic() - saved > SAVED:
                self.store.save()
                saved = time.monotonic()
            if self._stop:
                break
        self.store.save()
        return {}


def queue(project: Project) -> list[Photograph]:
    """What is not reviewed: new ones first, then the least certain."""
    left = [one for one in project.photographs.values() if not one.reviewed]
    return sorted(left, key=lambda one: (len(one.points) == len(project.landmarks), least_certainty(one)))


def locate(
    project: Project, photographs: Photographs, wanted: Sequence[Photograph], encoder: "Encoder"
) -> Iterator[tuple[Photograph, dict[str, Point]]]:
    """The machine's points of some photographs, by the reviewed ones; those that cannot be read are left out."""
    from normmatch.matching.given import Reference
    from normmatch.matching.landmarks import Landmarks
    from normmatch.matching.sight import Photograph as Image
    from normmatch.matching.sight import Sight

    def read(one: Photograph) -> tuple[np.ndarray, int] | None:
        try:
            array = photographs.read(one.file, READ)
        except (InputError, KeyError):
            return None
        return array, factor_of(max(one.width, one.height), array)

    references, places = [], []
    for one in project.reviewed:
        loaded = read(one)
        if loaded is not None:
            places.append(project.keypoints(one))
            references.append(Reference(loaded[0], places[-1] / loaded[1], _scaled(one.box, 1 / loaded[1])))
    if not references:
        raise InputError("No photograph is reviewed yet; set the landmarks on one and accept it, then propose.")
    known = np.isfinite(np.stack(places)).all(2).any(0)
    names = [name for name, there in zip(project.names, known, strict=True) if there]
    references = [Reference(r.image, r.keypoints[known], r.box) for r in references]
    chance = 1 / (len(references) + 2)  # that the next one shows what none of them did
    never_seen = {n: Point("proposed", None, True, 0.0, chance) for n in project.names if n not in names}
    landmarks = Landmarks(references, Sight(encoder))
    landmarks.calibrate()
    for one, loaded in zip(wanted, ahead(read, wanted, AHEAD), strict=True):
        if loaded is None:
            continue
        array, factor = loaded
        found = landmarks.locate(Image.of(array, one.file), _scaled(one.box, 1 / factor))
        yield one, {**never_seen, **as_points(names, found, factor)}


def as_points(names: Sequence[str], found: "Located", factor: int) -> dict[str, Point]:
    """What was found in a photograph that was read `factor` times smaller."""
    rows = zip(names, found.keypoints * factor, found.scores, found.visible, found.spread * factor, strict=True)
    return {
        name: Point("proposed", (float(xy[0]), float(xy[1])), bool(v < UNSURE), float(s), float(v), float(r))
        for name, xy, s, v, r in rows
    }


def _scaled(box: Box | None, by: float) -> Box | None:
    return box and (box[0] * by, box[1] * by, box[2] * by, box[3] * by)
