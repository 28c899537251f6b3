"""Landmarks: what references say of them, ready to find them in photographs. No torch here.

`locate.py` and `album.py` are what users call. A photograph is cropped in one of three ways, and compared with
references that are cropped in the same way: *drawn*, where people drew boxes around the objects; *whole*; and *close*
to the landmarks that were found in the whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from normmatch.checks import check_flag, shown
from normmatch.errors import InputError
from normmatch.geometry import Box
from normmatch.matching.certainty import (
    SCORE,
    VISIBLE,
    WITHIN,
    likeliest_shift,
    logits_of,
    mass_near,
    radius_of,
    sigmoid,
    strength_of,
    widened,
)
from normmatch.matching.given import (
    Reference,
    box_of,
    check_box,
    check_flip,
    check_points,
    check_references,
    size_of,
    whole_box,
)
from normmatch.matching.looks import PLAIN, SIDE, FirstLook, SecondLook, Tuning, fit_first, fit_second
from normmatch.matching.references import Background, Cells
from normmatch.matching.shape import Axes, Decision
from normmatch.matching.sight import SIZE, Photograph, Sight, back, into
from normmatch.matching.turned import TURNINGS, Turned, Turntable, angle_between

WIDE = 3.0  # in a whole photograph things are shifted and scaled so much more than in a box
CLOSER = 3  # turnings that are seen close, of those that a coarse look finds the likeliest
QUARTERS, CLEARLY = (0, 90, 180, 270), 0.1  # turnings of the cheap check; by how much one must look more alike
TELLING, LEFT_OUT = 3, 8  # references from which on their own photographs calibrate, and how many of them do
TAUGHT_BY = 16  # photographs without labels, when references calibrate

Kind = Literal["drawn", "close", "whole"]


@dataclass(frozen=True, eq=False)
class Located:
    """Where the landmarks are in a photograph."""

    keypoints: np.ndarray  # (K, 2) xy in pixels of the upright photograph
    scores: np.ndarray  # (K,) probability that the landmark is there and within a tenth of the object
    visible: np.ndarray  # (K,) probability that it is in the photograph at all
    spread: np.ndarray  # (K,) radius in pixels that holds 68 % of where it may be
    box: Box  # what was looked at


@dataclass(frozen=True, eq=False)
class Glance:
    """A first look at a crop."""

    model: FirstLook
    cells: Cells
    box: Box  # of the crop
    logs: np.ndarray  # (K', P) what the picture says of each landmark and template point
    decision: Decision
    located: Located


@dataclass(frozen=True, eq=False)
class LeftOut:
    """How a reference that was left out is found by the others: (n,) of its landmarks that are known."""

    off: np.ndarray  # shares of the object
    logits: np.ndarray  # of the scores, before they are shifted


class Landmarks:
    """What references say of their landmarks, ready to find them.

    Args:
        references: one or more annotated photographs of any kind of thing.
        sight: what sees photographs; references that it has seen before cost nothing.
        looks: 1 or 2.
        turned, mirrored, flip: see `locate_many`.
    """

    def __init__(
        self,
        references: Sequence[Reference],
        sight: Sight,
        looks: Literal[1, 2] = 2,
        turned: bool = False,
        mirrored: bool = False,
        flip: Sequence[int] | None = None,
        tuning: Tuning = PLAIN,
    ) -> None:
        given: Any = looks
        if type(given) is not int or given not in (1, 2):
            raise InputError(f"looks is {shown(looks)}; expected 1 or 2.")
        turned, mirrored = check_flag(turned, "turned"), check_flag(mirrored, "mirrored")
        check_references(references)
        self.sight, self.looks, self.tuning = sight, looks, tuning
        self.backgrounds: Mapping[Kind, Background] = {}  # of each kind of crop, where many were seen already
        self.turnings, self.sides = TURNINGS if turned else (0,), (False, True)[: 1 + mirrored]
        self.photographs = [Photograph.of(one.image, f"reference {i}") for i, one in enumerate(references)]
        self.points: list[np.ndarray] = []
        self.boxes: dict[Kind, list[Box]] = {"drawn": [], "close": [], "whole": []}
        for one, photograph in zip(references, self.photographs, strict=True):
            size = sight.size(photograph)
            self.points.append(check_points(one.keypoints, size, photograph.name))
            self.boxes["whole"].append(whole_box(size))
            self.boxes["close"].append(box_of(self.points[-1], size))
            drawn = None if one.box is None else check_box(one.box, size, photograph.name)
            self.boxes["drawn"].append(drawn or self.boxes["close"][-1])
        self.drawn = all(one.box is not None for one in references)
        self.flip = check_flip(flip, len(self.points[0]))
        self.shift = 0.0
        self._pool: dict[Kind, list[Cells]] = {}
        self._first: dict[Kind, FirstLook] = {}
        self._second: SecondLook | None = None

    def learn(self, pool: dict[Kind, list[Cells]]) -> None:
        """Let crops of photographs nobody has labelled teach how the landmarks look in other specimens."""
        self._pool |= pool
        for kind in pool:
            self._first.pop(kind, None)

    def calibrate(self) -> None:
        """Shift the scores to how often each reference's landmarks are found by the others, where there are three.

        The shift s of all logits is what is likeliest, with a prior N(0, 1) that keeps it small where little is known.
        """
        if len(self.points) >= TELLING:
            # They must be found as the photographs are: what has taught these teaches them, too.
            pool = self._pool.get("drawn" if self.drawn else "close", [])[:TAUGHT_BY]
            found = [self.left_out(number, self.tuning, pool) for number in range(min(len(self.points), LEFT_OUT))]
            logits, off = (np.concatenate([getattr(one, key) for one in found]) for key in ("logits", "off"))
            self.shift = likeliest_shift(logits, off <= WITHIN)

    def left_out(self, number: int, tuning: Tuning, pool: Sequence[Cells] = ()) -> "LeftOut":
        """A reference's landmarks as a first look finds them by all other references."""
        kind: Kind = "drawn" if self.drawn else "close"
        boxes, seen = self.boxes[kind], self._seen(kind)
        rest = [i for i in range(len(boxes)) if i != number]
        places = np.stack([into(self.points[i], boxes[i]) for i in rest])
        background = self.backgrounds.get(kind) or Background.of(seen)
        # A photograph that is located has been among those that teach: so is this one.
        taught_by = [*pool, seen[number]] if pool else ()
        model = fit_first([seen[i] for i in rest], places, taught_by, background=background, tuning=tuning)
        cells, box = seen[number], boxes[number]
        decision = model.read(cells)[1]
        mean = decision.mean[: model.landmarks]
        found, size = back(mean, box), size_of(self.points[number], box)
        off = np.linalg.norm(found - self.points[number], axis=1)
        known = np.isfinite(off) & model.filters.known[: model.landmarks]
        mass, strength = mass_near(decision, cells.grid, found, box, size), strength_of(model, cells, mean)
        logits = logits_of(mass, strength, decision.variance[: len(mass)], SCORE)
        return LeftOut(off[known] / size, logits[known])

    def locate(self, photograph: Photograph, box: Any = None) -> Located:
        """The landmarks in one photograph; without a box the object is searched for in the whole of it."""
        whole = check_box(box, self.sight.size(photograph), photograph.name)
        if len(self.turnings) + len(self.sides) > 2:
            return self._any_way_round(photograph, whole)
        kind = self.kind(box)
        if kind == "whole":
            kind, whole = "close", self.found_box(photograph, whole)
        return self.second_look(photograph, self.first_look(photograph, whole, kind))

    def kind(self, box: Any) -> Kind:
        """How a photograph is cropped."""
        return "whole" if box is None else "drawn" if self.drawn else "close"

    def found_box(self, photograph: Photograph, whole: Box) -> Box:
        """Where the object is in a photograph, of which `whole` is all."""
        glance = self.first_look(photograph, whole, "whole")
        return box_of(glance.located.keypoints, self.sight.size(photograph))

    def first_look(self, photograph: Photograph, box: Box, kind: Kind, start: Decision | None = None) -> Glance:
        """One look at a crop; from an earlier decision about the same crop it is faster."""
        model, cells = self.model(kind), self.sight.see(photograph, box)
        logs, decision = model.read(cells, start)
        return Glance(
            model, cells, box, logs, decision, self._located(model, cells, box, decision, decision, cells.axes)
        )

    def second_look(self, photograph: Photograph, glance: Glance) -> Located:
        """A closer look at each landmark's surroundings, if two looks are wanted."""
        if self.looks == 1:
            return glance.located
        if self._second is None:
            kind: Kind = "drawn"  # where there is none, it is the close one
            sizes = [size_of(points, box) for points, box in zip(self.points, self.boxes[kind], strict=True)]
            self._second = fit_second(self.sight, self.photographs, self.points, sizes)
        first = glance.located.keypoints
        boxes = self._second.boxes(first, size_of(first, glance.box))
        seen = self.sight.see_all([(photograph, box) for box in boxes], SIDE, remember=False)
        shape = glance.model.shape
        found, axes = self._second.read(seen, boxes, glance.logs, glance.decision, shape, glance.cells, glance.box)
        return self._located(glance.model, glance.cells, glance.box, glance.decision, found, axes)

    def model(self, kind: Kind) -> FirstLook:
        """The first look, fitted when it is needed."""
        if kind not in self._first:
            boxes = self.boxes[kind]
            places = np.stack([into(points, box) for points, box in zip(self.points, boxes, strict=True)])
            scale = WIDE if kind == "whole" else 1.0
            pool, background = self._pool.get(kind, ()), self.backgrounds.get(kind)
            self._first[kind] = fit_first(self._seen(kind), places, pool, scale, background, self.tuning)
        return self._first[kind]

    def _seen(self, kind: Kind) -> list[Cells]:
        """The references' crops."""
        return self.sight.see_all(list(zip(self.photographs, self.boxes[kind], strict=True)))

    def _located(
        self, model: FirstLook, cells: Cells, box: Box, first: Decision, found: Decision, axes: Axes
    ) -> Located:
        """Places and certainties, of a first look at a crop and of what was found in the end."""
        landmarks = model.landmarks
        size = size_of(back(first.mean[:landmarks], box), box)
        keypoints = back(found.mean[:landmarks], box)  # (K, 2)
        mass, doubt = mass_near(first, cells.grid, keypoints, box, size), first.variance[:landmarks]
        strength = strength_of(model, cells, first.mean[:landmarks])
        scores = sigmoid(logits_of(mass, strength, doubt, SCORE) + self.shift)
        visible = np.maximum(scores, sigmoid(logits_of(mass, strength, doubt, VISIBLE)))
        radius = widened(radius_of(axes, found.probability[:landmarks], keypoints, box), scores, size)
        return Located(keypoints, scores, visible, radius, box)

    def seems_turned(self, photograph: Photograph, box: Any = None) -> bool:
        """Whether the landmarks look clearly more like the references' in a photograph that is turned."""
        whole = check_box(box, self.sight.size(photograph), photograph.name)
        strengths = [
            one[:2] for one in self._coarse(photograph, Turntable(self.sight.array(photograph), whole), QUARTERS)
        ]
        upright = next(strength for strength, turning in strengths if turning == 0)
        return max(strengths)[0] > upright + CLEARLY

    def _coarse(
        self, photograph: Photograph, table: Turntable, turnings: Sequence[int]
    ) -> list[tuple[float, int, bool, float]]:
        """How much the landmarks look like the references' at some turnings, the most alike first.

        Each is the mean strength, the turning, whether it is mirrored, and the angle that is left then.
        """
        model, found = self.model("whole"), []
        for mirrored in self.sides:
            for turning in turnings:
                view = Photograph.of(table.turn(turning, mirrored, SIZE).image, photograph.name)
                cells = self.sight.see(view, (0.0, 0.0, SIZE, SIZE))
                places = model.read(cells)[1].mean[: model.landmarks]
                strength = strength_of(model, cells, places)
                rest = angle_between(places, model.shape.mean[: model.landmarks], strength.clip(0.01, 1))
                found.append((float(strength.mean()), turning, mirrored, rest if len(turnings) > 1 else 0.0))
        return sorted(found, reverse=True)

    def _any_way_round(self, photograph: Photograph, whole: Box) -> Located:
        """Both looks at the turning, and the side, that is best when the likeliest of them are seen close."""
        table = Turntable(self.sight.array(photograph), whole)
        best: tuple[float, Turned, Photograph, Glance] | None = None
        for coarse, turning, mirrored, rest in self._coarse(photograph, table, self.turnings)[:CLOSER]:
            view = table.turn(turning - rest, mirrored)
            upright = Photograph.of(view.image, photograph.name)
            box = self.found_box(upright, whole_box(self.sight.size(upright)))
            glance = self.first_look(upright, box, "close")
            places = glance.decision.mean[: glance.model.landmarks]
            likeness = coarse + float(strength_of(glance.model, glance.cells, places).mean())
            if best is None or likeness > best[0]:  # either alone goes wrong more often
                best = likeness, view, upright, glance
        assert best is not None
        _, view, upright, glance = best
        found = self.second_look(upright, glance)
        order = self.flip if view.mirrored else np.arange(len(self.flip))
        points, spread = view.back(found.keypoints), found.spread * view.scale
        return Located(points[order], found.scores[order], found.visible[order], spread[order], whole)
