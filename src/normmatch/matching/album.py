"""Album: a folder of photographs whose landmarks are proposed anew with each one that a person has set.

    album = Album(files, matcher.backend, cache=project / "cells")    # opens nothing yet; `cache` may be left out
    threading.Thread(target=album.work, args=(stop,)).start()         # `stop` is an Event; encodes, then looks closer
    album.fit({"a.jpg": Marked(points), "b.jpg": Marked(points, box)})  # all that people have set, each time anew:
        # (K, 2) pixels, NaN where a landmark is not shown; returns when the proposals are those of the new references
    album.proposals["c.jpg"]            # a Located of each photograph that was encoded and is no reference
    album.locate("c.jpg")               # the same with both looks, for the photograph that is opened: half a second
    album.draw("c.jpg", (x, y, w, h))   # a box that a person drew around the object, or None to take it away
    album.status                        # how many photographs are encoded, and looked at closer, of how many
    stop.set()                          # `work` returns within a step, half a second

Photographs are called what `files` calls them. `fit` and `locate` go before `work`, which may run in one thread beside
any number that call the rest; when it has nothing to do it waits for the next `fit` or `draw`. What a person has set is
never proposed, nor changed. With `progress` `work` says after each step what `status` is.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from normmatch.errors import InputError, NormMatchError
from normmatch.geometry import Box
from normmatch.matching.given import Reference, check_box, whole_box
from normmatch.matching.landmarks import Kind, Landmarks, Located
from normmatch.matching.locate import POOL, choose_evenly
from normmatch.matching.looks import FEW, PLAIN
from normmatch.matching.references import Background, Cells
from normmatch.matching.shape import Decision
from normmatch.matching.sight import Encoder, Photograph, Sight
from normmatch.matching.tuning import Tuned, tune

AHEAD = 12  # photographs, the least sure first, that are looked at closer before they are opened
CROPS = 2000  # that stay in memory: 3.4 GB, of a thousand photographs without boxes


@dataclass(frozen=True, eq=False)
class Marked:
    """What a person has set in a photograph."""

    keypoints: Any  # (K, 2) xy in pixels; NaN where a landmark is not shown
    box: Any = None  # xmin, ymin, width and height of the object


@dataclass(frozen=True)
class Status:
    """How far the work on an album is."""

    photographs: int
    encoded: int
    closer: int  # looked at twice, with the references of now
    references: int
    failed: dict[str, str]  # photographs that cannot be read, and why
    idle: bool  # nothing is left to do


@dataclass(frozen=True, eq=False)
class _Seen:
    """What is known of a photograph."""

    photograph: Photograph
    crop: Box  # what first looks are at
    whole: bool  # that is all of it
    decision: Decision | None = None  # of the last first look, from which the next one begins
    located: Located | None = None
    settled: bool = False  # the crop is that of the references of now
    closer: bool = False  # and `located` is of both looks


class Album:
    """Photographs, each encoded once, and proposals for those that nobody has set.

    Args:
        files: paths; what they are called here is what everything else calls them.
        encoder: what runs the network, such as a `Matcher`'s backend.
        boxes: of objects, where people have drawn them.
        cache: a folder for what the encoder says, so that the album opens at once the next time.
        looks: 1 looks once, which is faster.
        learn: with few references, the other photographs teach how the landmarks look.
    """

    def __init__(
        self,
        files: Mapping[str, Path] | Sequence[Path | str],
        encoder: Encoder,
        boxes: Mapping[str, Any] | None = None,
        cache: Path | None = None,
        looks: Literal[1, 2] = 2,
        learn: bool = True,
    ) -> None:
        self.learn, self.tuning = learn, PLAIN  # of the next fit
        self.files = dict(files) if isinstance(files, Mapping) else {str(file): Path(file) for file in files}
        self.boxes, self.looks, self.sight = dict(boxes or {}), looks, Sight(encoder, CROPS, cache)
        self.references: dict[str, Marked] = {}
        self.failed: dict[str, str] = {}
        self._seen: dict[str, _Seen] = {}
        self._backgrounds: dict[bool, Background] = {}  # of whole photographs, and of crops of objects
        self._counted: set[tuple[bytes, bool]] = set()
        self._model: Landmarks | None = None
        self._learned = True
        self._turn, self._news = threading.RLock(), threading.Event()
        self._asking = 0  # people who wait for their turn, or have it

    def fit(self, references: Mapping[str, Marked]) -> None:
        """Propose the landmarks of all photographs anew; those given are the references, and no others."""
        with self._first():
            self._model = self._fitted(references) if references else None
            self.references, self._learned = dict(references), not (self.learn and 0 < len(references) < FEW)
            self._renew()

    def locate(self, name: str) -> Located:
        """The landmarks of a photograph by both looks."""
        with self._first():
            if self._model is None:
                raise InputError("No photograph of the album has landmarks yet; expected a reference first.")
            self._see(name)
            if not self._seen[name].settled:
                self._settle(name)
            found = self._seen[name].located if self._seen[name].closer else self._look_closer(name)
            assert found is not None
            return found

    def draw(self, name: str, box: Any) -> None:
        """A person has drawn a box around the object of a photograph; None takes it away."""
        with self._first():
            self.boxes[name] = box
            self._seen.pop(name, None)
            self._see(name)

    @property
    def proposals(self) -> dict[str, Located]:
        """Of each photograph that was encoded and is no reference, as exact as is known now."""
        seen = list(self._seen.items())
        return {name: one.located for name, one in seen if one.located is not None and name not in self.references}

    def is_settled(self, name: str) -> bool:
        """Whether a photograph's proposals are about the object, found with the references of now."""
        return name in self._seen and self._seen[name].settled

    def look_of(self, name: str) -> np.ndarray | None:
        """The unit vector (D,) of all that a photograph shows, by which others are alike; None before it is encoded."""
        seen = self._seen.get(name)
        if seen is None:
            return None
        mean = self.sight.see(seen.photograph, seen.crop).features.mean(0)
        return mean / max(float(np.linalg.norm(mean)), 1e-9)

    def tune(self, progress: Callable[[int, int], bool]) -> Tuned | None:
        """What would be found better with other numbers, by the references; `fit` takes those of `self.tuning`."""
        with self._first():
            model = self._fitted(self.references)
        return tune(model, progress)

    @property
    def status(self) -> Status:
        """How far the work is."""
        closer = sum(one.closer for one in list(self._seen.values()))
        counts = len(self.files), len(self._seen), closer, len(self.references)
        return Status(*counts, dict(self.failed), self._next() is None)

    def work(self, stop: threading.Event, progress: Callable[[Status], None] | None = None) -> None:
        """Encode all photographs, and look closer at those that are the least sure, until `stop` is set."""
        while not stop.is_set():
            if self._asking:
                stop.wait(0.005)
                continue
            self._news.clear()
            step = self._next()
            if step is not None:
                step()
                if progress is not None:
                    progress(self.status)
            while step is None and not self._news.wait(0.2) and not stop.is_set():
                pass

    def _next(self) -> Callable[[], None] | None:
        """The most useful step that is left."""
        for name in self.files:
            if name not in self._seen and name not in self.failed:
                return lambda: self._trying(name, self._see)
        left = {n: one for n, one in list(self._seen.items()) if n not in self.references and n not in self.failed}
        if self._model is None or not left:
            return None
        if not self._learned:
            return self._learn
        unsettled = next((name for name, one in left.items() if not one.settled), None)
        if unsettled is not None:
            return lambda: self._trying(unsettled, self._settle)
        unsure = sorted(left, key=lambda name: _certainty(left[name]))[:AHEAD]
        closer = next((name for name in unsure if not left[name].closer), None)
        return None if closer is None or self.looks == 1 else lambda: self._trying(closer, self._look_closer)

    @contextmanager
    def _first(self) -> Iterator[None]:
        """People go before the work."""
        self._asking += 1
        try:
            with self._turn:
                yield
        finally:
            self._asking -= 1
            self._news.set()

    def _trying(self, name: str, step: Callable[[str], Any]) -> None:
        try:
            with self._turn:
                step(name)
        except NormMatchError as error:
            self.failed[name] = str(error)

    def _fitted(self, references: Mapping[str, Marked]) -> Landmarks:
        """What the references say, with what all photographs have in common."""
        given = [Reference(self._file(name), one.keypoints, one.box) for name, one in references.items()]
        model = Landmarks(given, self.sight, self.looks, tuning=self.tuning)
        for photograph, box in zip(model.photographs, model.boxes["drawn"], strict=True):
            self._count(photograph, False, self.sight.see(photograph, box))
        kinds: dict[Kind, bool] = {"whole": True, "close": False, "drawn": False}
        model.backgrounds = {kind: self._backgrounds[key] for kind, key in kinds.items() if key in self._backgrounds}
        model.shift = self._model.shift if self._model else 0.0
        return model

    def _count(self, photograph: Photograph, whole: bool, cells: Cells) -> None:
        """A crop joins what all crops have in common."""
        if (photograph.key, whole) not in self._counted:
            self._counted.add((photograph.key, whole))
            self._backgrounds.setdefault(whole, Background(cells.features.shape[1])).add(cells)

    def _file(self, name: str) -> Path:
        if name not in self.files:
            raise InputError(f"The album has no photograph {name!r}.")
        return self.files[name]

    def _see(self, name: str) -> None:
        """Encode a photograph, its box or the whole of it, and propose."""
        if name in self._seen:
            return
        photograph = Photograph.of(self._file(name), str(self._file(name)))
        box = self.boxes.get(name)
        crop = check_box(box, self.sight.size(photograph), photograph.name)
        self._look(name, _Seen(photograph, crop, box is None, settled=box is not None))

    def _look(self, name: str, seen: _Seen) -> None:
        """A first look at a crop."""
        self._count(seen.photograph, seen.whole, self.sight.see(seen.photograph, seen.crop))
        if self._model is not None:
            glance = self._model.first_look(seen.photograph, seen.crop, self._kind(name, seen), seen.decision)
            seen = replace(seen, decision=glance.decision, located=glance.located, closer=self.looks == 1)
        self._seen[name] = seen

    def _kind(self, name: str, seen: _Seen) -> Kind:
        assert self._model is not None
        return "whole" if seen.whole else self._model.kind(seen.crop) if self.boxes.get(name) is not None else "close"

    def _settle(self, name: str) -> None:
        """Find the object in the whole photograph, and look at that."""
        seen = self._seen[name]
        if self.boxes.get(name) is None and self._model is not None:
            box = self._model.found_box(seen.photograph, whole_box(self.sight.size(seen.photograph)))
            self._look(name, replace(seen, crop=box, whole=False, decision=None))
        self._seen[name] = replace(self._seen[name], settled=True)

    def _look_closer(self, name: str) -> Located:
        """The second look at a photograph."""
        seen = self._seen[name]
        assert self._model is not None
        glance = self._model.first_look(seen.photograph, seen.crop, self._kind(name, seen), seen.decision)
        found = self._model.second_look(seen.photograph, glance)
        self._seen[name] = replace(seen, located=found, closer=True)
        return found

    def _renew(self) -> None:
        """A first look at all photographs, after the references have changed."""
        for name, seen in list(self._seen.items()):
            fresh = replace(seen, settled=self.boxes.get(name) is not None, closer=False)
            if self._model is None:
                self._seen[name] = replace(fresh, decision=None, located=None)
            elif name not in self.references:
                self._look(name, fresh)

    def _learn(self) -> None:
        """Let the photographs teach how the landmarks look, and the references how sure to be; people need not wait."""
        references, pool = self.references, dict[Kind, list[Cells]]()
        for name in choose_evenly([name for name in self._seen if name not in references], POOL):
            seen = self._seen[name]
            pool.setdefault(self._kind(name, seen), []).append(self.sight.see(seen.photograph, seen.crop))
        model = self._fitted(references)
        model.learn(pool)
        model.calibrate()
        for kind in pool:
            model.model(kind)
        with self._turn:
            if self.references is references:
                self._model, self._learned = model, True
                self._renew()


def _certainty(seen: _Seen) -> float:
    return float(seen.located.scores.mean()) if seen.located is not None else 1.0
