"""What looks like a slip in a project: told from the shapes, again only for what has changed."""

import numpy as np

from normmatch.annotations.project import Json, Photograph, Project
from normmatch.app.exports import as_suspect, pairs_of
from normmatch.matching.slips import FEWEST, Shapes, find_exchanges, find_slips, fit_shapes


class Suspects:
    """Remembers what it has said of each photograph."""

    def __init__(self) -> None:
        self._reviewed: list[Photograph] = []
        self._landmarks: tuple[object, ...] = ()
        self._shapes: Shapes | None = None
        self._known: dict[str, tuple[Photograph, list[Json]]] = {}

    def of(self, project: Project) -> Json:
        """Of reviewed photographs landmarks that are far off or exchanged, of others what looks exchanged."""
        reviewed = project.reviewed
        if len(reviewed) < FEWEST or not project.landmarks:
            return {}
        same = len(reviewed) == len(self._reviewed) and all(map(lambda a, b: a is b, reviewed, self._reviewed))
        if not same or self._landmarks is not project.landmarks:
            self._reviewed, self._landmarks, self._known = reviewed, project.landmarks, {}
            self._shapes = fit_shapes(np.stack([project.keypoints(one) for one in reviewed]))
        known = self._known
        for kind in (True, False):
            fresh = [
                one for one in project.photographs.values()
                if one.reviewed is kind and one.points and (one.file not in known or known[one.file][0] is not one)
            ]  # fmt: skip
            if fresh:
                self._look(project, fresh, kind)
        return {file: told for file, (one, told) in known.items() if told and file in project.photographs}

    def _look(self, project: Project, fresh: list[Photograph], reviewed: bool) -> None:
        assert self._shapes is not None
        points, pairs = np.stack([project.keypoints(one) for one in fresh]), pairs_of(project)
        find = find_slips if reviewed else find_exchanges
        self._known |= {one.file: (one, []) for one in fresh}
        for slip in find(points, self._shapes, pairs):
            self._known[fresh[slip.shape].file][1].append(as_suspect(project, slip))
