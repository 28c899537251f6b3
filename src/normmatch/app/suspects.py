"""What looks like a mistake in a project, as `normmatch check` tells it from the shapes."""

import math
import time
from concurrent.futures import ThreadPoolExecutor

from normmatch.annotations.project import Json, Project
from normmatch.annotations.suspicions import suspect

FEWEST = 5  # reviewed photographs from which on something is said
PAUSE = 0.3  # seconds, and as long as it took, until a project is judged again
LIKELY = 0.5  # probability of a mistake from which on it is told
EXCHANGED = ("exchanged", "left and right")


def suspects_of(project: Project, everything: bool) -> list[Json]:
    """The suspicions about reviewed photographs, or about all, worst first."""
    items, found = project.as_annotations(everything), []
    for one in suspect(items).suspicions:
        told: Json = {"photograph": items[one.item].image, "kind": "far" if one.kind == "slip" else one.kind}
        if one.kind in EXCHANGED and one.order and len(one.landmarks) > 1:
            told |= {"kind": "exchanged", "other": one.order[0]}
        if one.landmarks:
            told |= {"landmark": one.landmarks[0]}
        if one.expected is not None:
            told |= {"x": round(one.expected[0], 1), "y": round(one.expected[1], 1)}
        if one.certainty >= LIKELY:
            found.append({**told, "certainty": round(one.certainty, 3), "why": one.why})
    return found


class Suspects:
    """Judges a project in a thread of its own, so that nobody waits; what is told may be a moment old."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "normmatch-suspects")
        self._about: Project | None = None
        self._told: Json = {}
        self._rest = 0.0  # until when nothing is judged again

    def of(self, project: Project) -> Json:
        """By photograph: of reviewed ones everything, of others what looks exchanged."""
        if self._about is not project and time.monotonic() >= self._rest:
            self._about, self._rest = project, math.inf
            self._pool.submit(self._judge, project)
        return self._told

    def _judge(self, project: Project) -> None:
        told: dict[str, list[Json]] = {}
        start = time.monotonic()
        try:
            for one in suspects_of(project, everything=True) if len(project.reviewed) >= FEWEST else ():
                if project.photographs[one["photograph"]].reviewed or one["kind"] == "exchanged":
                    told.setdefault(one.pop("photograph"), []).append(one)
        finally:
            self._told, self._rest = told, 2 * time.monotonic() - start + PAUSE
