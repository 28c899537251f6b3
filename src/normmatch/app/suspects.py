"""What looks like a mistake in a project, as `normmatch check` tells it from the shapes."""

import time
from typing import Any

from normmatch.annotations.project import Json, Project
from normmatch.annotations.suspicions import suspect

FEWEST = 5  # reviewed photographs from which on something is said
PAUSE = 2.0  # seconds until what nobody has reviewed is judged again
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
    """Remembers what it has said, as long as that is about the same."""

    def __init__(self) -> None:
        self._reviewed: list[Any] = []
        self._about: Project | None = None
        self._told: Json = {}
        self._when = 0.0

    def of(self, project: Project) -> Json:
        """By photograph: of reviewed ones everything, of others what looks exchanged."""
        reviewed = project.reviewed
        if len(reviewed) < FEWEST:
            return {}
        same = len(reviewed) == len(self._reviewed) and all(map(lambda a, b: a is b, reviewed, self._reviewed))
        if self._about is not project and not (same and time.monotonic() < self._when + PAUSE):
            told: dict[str, list[Json]] = {}
            for one in suspects_of(project, everything=True):
                if project.photographs[one["photograph"]].reviewed or one["kind"] == "exchanged":
                    told.setdefault(one.pop("photograph"), []).append(one)
            self._about, self._reviewed, self._told, self._when = project, reviewed, told, time.monotonic()
        return self._told
