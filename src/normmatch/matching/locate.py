"""Locate: landmarks of one or a few annotated photographs, found in others, with probabilities. No torch here.

found = locate("mine.jpg", "other.jpg", keypoints0, encoder=backend)
for found in locate_many([Reference("a.jpg", points_a), Reference("b.jpg", points_b)], files, encoder=backend):
    found.keypoints, found.scores

Any kind of thing: nothing is trained. The references' features give one filter a landmark (`references.py`), their
places a shape (`shape.py`), and each landmark is looked at twice (`looks.py`).
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat, zip_longest
from typing import Any, Literal

import numpy as np

from normmatch.checks import check_flag, check_iterator, shown
from normmatch.errors import InputError
from normmatch.io import load_image
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
from normmatch.matching.given import Reference, box_of, check_box, check_flip, check_references, size_of, whole_box
from normmatch.matching.looks import (
    SIDE,
    Box,
    Encoder,
    FirstLook,
    SecondLook,
    back,
    cut,
    encode,
    fit_first,
    fit_second,
    into,
)
from normmatch.matching.references import Cells
from normmatch.matching.turned import TURNINGS, Turned, Turntable, angle_between

SIZE = 378  # pixels a side of a first look
WIDE = 3.0  # in a whole photograph things are shifted and scaled so much more than in a box
TELLING, LEFT_OUT = 3, 8  # references from which on their own photographs calibrate, and how many of them do
POOL = 40  # photographs without labels that teach, where there are few references: 60 gained 2 points more than 20


@dataclass(frozen=True, eq=False)
class Located:
    """Where the landmarks are in a photograph."""

    keypoints: np.ndarray  # (K, 2) xy in pixels of the upright photograph
    scores: np.ndarray  # (K,) probability that the landmark is there and within a tenth of the object
    visible: np.ndarray  # (K,) probability that it is in the photograph at all
    spread: np.ndarray  # (K,) radius in pixels that holds 68 % of where it may be
    box: Box  # what was looked at


def locate(
    image0: Any, image1: Any, keypoints0: Any, box0: Any = None, box1: Any = None, *,
    encoder: Encoder, looks: Literal[1, 2] = 2,
) -> Located:  # fmt: skip
    """Find the points of one photograph in another. `locate_many` says what the arguments are."""
    many = locate_many([Reference(image0, keypoints0, box0)], [image1], [box1], encoder=encoder, looks=looks)
    return next(many)


def locate_many(
    references: Sequence[Reference],
    images: Iterable[Any],
    boxes: Iterable[Any] | None = None,
    *,
    encoder: Encoder,
    looks: Literal[1, 2] = 2,
    learn: bool = True,
    turned: bool = False,
    mirrored: bool = False,
    flip: Sequence[int] | None = None,
) -> Iterator[Located]:
    """Find the landmarks of annotated photographs in many others, one after the other.

    Args:
        references: one or more of any kind of thing.
        images: paths, PIL images, arrays (H, W, 3) of uint8 or floats in [0, 1], or tensors (3, H, W).
        boxes: of each image the object's xmin, ymin, width and height, or None: the whole image is searched.
        encoder: what runs the network, such as a `Matcher`'s backend.
        looks: 2 looks at each landmark's surroundings once more, in more detail; 1 is faster.
        learn: with fewer than ten references some of the images, if they are a sequence, teach how the landmarks look.
        turned: the things lie any way round; takes eight first looks more for each image.
        mirrored: they may be seen from the other side; twice as many.
        flip: the number that each landmark has in a mirrored thing, where left and right exchange their names.
    """
    if not isinstance(images, list | tuple):
        images = check_iterator(images, "images")
    if boxes is not None and not isinstance(boxes, list | tuple):
        boxes = check_iterator(boxes, "boxes")
    learn = check_flag(learn, "learn")
    fitted = Landmarks(references, encoder, looks, turned, mirrored, flip)
    fitted.calibrate()
    pairs = _paired(images, boxes)
    if learn and not (turned or mirrored) and isinstance(images, Sequence) and len(images) > 2:
        given = [None] * len(images) if boxes is None else list(boxes)
        if len(given) != len(images):
            raise InputError(f"There are {len(images)} images and {len(given)} boxes; expected as many of each.")
        chosen = np.unique(np.linspace(0, len(images) - 1, min(POOL, len(images))).round().astype(int))
        fitted.learn([images[i] for i in chosen], [given[i] for i in chosen])
        pairs = zip(images, given, strict=True)
    for number, (image, box) in enumerate(pairs):
        yield fitted.locate(image, box, f"image {number}")


def _paired(images: Iterable[Any], boxes: Iterable[Any] | None) -> Iterator[tuple[Any, Any]]:
    """Images, each with its box."""
    if boxes is None:
        yield from zip(images, repeat(None), strict=False)
        return
    nothing = object()
    for image, box in zip_longest(images, boxes, fillvalue=nothing):
        if image is nothing or box is nothing:
            raise InputError("There are not as many boxes as images; expected a box, or None, for each.")
        yield image, box


class Landmarks:
    """What references say of their landmarks, ready to find them."""

    def __init__(
        self,
        references: Sequence[Reference],
        encoder: Encoder,
        looks: Literal[1, 2] = 2,
        turned: bool = False,
        mirrored: bool = False,
        flip: Sequence[int] | None = None,
    ) -> None:
        given: Any = looks
        if type(given) is not int or given not in (1, 2):
            raise InputError(f"looks is {shown(looks)}; expected 1 or 2.")
        turned, mirrored = check_flag(turned, "turned"), check_flag(mirrored, "mirrored")
        self.encoder, self.turnings, self.sides = encoder, TURNINGS if turned else (0,), (False, True)[: 1 + mirrored]
        self.images, self.points, self.given = check_references(references)
        self.drawn = all(box is not None for box in self.given)
        self.close = [box_of(points, image) for points, image in zip(self.points, self.images, strict=True)]
        self.boxed = [box or close for box, close in zip(self.given, self.close, strict=True)]
        self.flip = check_flip(flip, len(self.points[0]))
        self._first: dict[str, FirstLook] = {}
        self._cells: dict[str, list[Cells]] = {}
        self._pool: dict[str, list[Cells]] = {}
        self._seen: dict[bytes, Cells] = {}  # crops that teach
        self.learning, self.shift = False, 0.0
        sizes = [size_of(points, box) for points, box in zip(self.points, self.boxed, strict=True)]
        self.second: SecondLook | None = fit_second(encoder, self.images, self.points, sizes) if looks == 2 else None

    def learn(self, images: Sequence[Any], boxes: Sequence[Any]) -> None:
        """See photographs nobody has labelled, so that they teach how the landmarks look in other specimens."""
        pool: dict[str, list[Cells]] = {"drawn": [], "close": [], "whole": []}
        self.learning = True
        loaded = [(load_image(image, f"image {i}"), box) for i, image, box in zip(count(), images, boxes, strict=False)]
        for i, (image, box) in enumerate(loaded):
            kind = self._kind(box)
            pool[kind].append(self._see(image, check_box(box, image, f"image {i}")))
        self._pool, self._first = {"whole": pool["whole"]}, {}
        searched = [image for image, box in loaded if box is None]
        for image, cells in zip(searched, pool["whole"], strict=True):
            pool["close"].append(self._see(image, self._found_box(image, cells)))
        self._pool = pool
        self._first.pop("close", None)
        self.learning = False

    def calibrate(self) -> None:
        """Shift the scores to how often each reference's landmarks are found by the others, where there are three.

        The shift s of all logits is what is likeliest, with a prior N(0, 1) that keeps it small where little is known.
        """
        if len(self.images) < TELLING:
            return
        kind = "drawn" if self.drawn else "close"
        self._model(kind)
        boxes = self.boxed if self.drawn else self.close
        logits, right = [], []
        for left_out in range(min(len(boxes), LEFT_OUT)):
            rest = [i for i in range(len(boxes)) if i != left_out]
            places = np.stack([into(self.points[i], boxes[i]) for i in rest])
            model = fit_first([self._cells[kind][i] for i in rest], places)
            cells, box = self._cells[kind][left_out], boxes[left_out]
            decision = model.read(cells)[1]
            mean = decision.mean[: model.landmarks]
            found, size = back(mean, box), size_of(self.points[left_out], box)
            off = np.linalg.norm(found - self.points[left_out], axis=1)
            known = np.isfinite(off) & model.filters.known[: model.landmarks]
            mass, strength = mass_near(decision, cells.grid, found, box, size), strength_of(model, cells, mean)
            logits.append(logits_of(mass, strength, decision.variance[: len(mass)], SCORE)[known])
            right.append(off[known] <= WITHIN * size)
        self.shift = likeliest_shift(np.concatenate(logits), np.concatenate(right))

    def _see(self, image: np.ndarray, box: Box) -> Cells:
        """A crop as the encoder sees it; those that teach are not encoded again when they are located."""
        crop = cut(image, box, SIZE)
        key = hashlib.blake2b(crop.tobytes()).digest()
        found = self._seen.get(key)
        if found is None:
            (found,) = encode(self.encoder, [crop])
            if self.learning:
                self._seen[key] = found
        return found

    def locate(self, image: Any, box: Any = None, name: str = "image") -> Located:
        """The landmarks in one photograph; without a box the object is searched for in the whole of it."""
        array = load_image(image, name)
        kind, whole = self._kind(box), check_box(box, array, name)
        if len(self.turnings) + len(self.sides) > 2:
            return self._upright(self._turn(array, whole), whole)
        if kind == "whole":
            kind, whole = "close", self._found_box(array, self._see(array, whole))
        return self._look(array, whole, kind)

    def _turn(self, image: np.ndarray, box: Box) -> Turned:
        """The turning, and the side, at which the landmarks look most like the references'."""
        table, model = Turntable(image, box), self._model("whole")
        best, most = table.turn(0), -np.inf
        for mirrored in self.sides:
            for turning in self.turnings:
                view = table.turn(turning, mirrored, SIZE)
                cells = self._see(view.image, whole_box(view.image))
                places = model.read(cells)[1].mean[: model.landmarks]
                strength = strength_of(model, cells, places)
                if strength.mean() > most:
                    rest = angle_between(places, model.shape.mean[: model.landmarks], strength.clip(0.01, 1))
                    most, best = strength.mean(), table.turn(turning - rest * (len(self.turnings) > 1), mirrored)
        return best

    def _upright(self, view: Turned, whole: Box) -> Located:
        """Both looks at a turned photograph, and back."""
        box = self._found_box(view.image, self._see(view.image, whole_box(view.image)))
        found = self._look(view.image, box, "close")
        order = self.flip if view.mirrored else np.arange(len(self.flip))
        points, spread = view.back(found.keypoints), found.spread * view.scale
        return Located(points[order], found.scores[order], found.visible[order], spread[order], whole)

    def _look(self, array: np.ndarray, whole: Box, kind: str) -> Located:
        """Both looks at an upright thing."""
        cells = self._see(array, whole)
        model = self._model(kind)
        logs, decision = model.read(cells)
        first = decision.mean[: model.landmarks]
        size = size_of(back(first, whole), whole)
        strength = strength_of(model, cells, first)
        found, places = decision, cells.grid
        if self.second is not None:
            crops = self.second.boxes(back(first, whole), size)
            seen = encode(self.encoder, [cut(array, crop, SIDE) for crop in crops])
            found, places = self.second.read(seen, crops, logs, decision, model.shape, cells, whole)
        keypoints = back(found.mean[: model.landmarks], whole)  # (K, 2)
        mass = mass_near(decision, cells.grid, keypoints, whole, size)
        doubt = decision.variance[: len(mass)]
        scores = sigmoid(logits_of(mass, strength, doubt, SCORE) + self.shift)
        visible = np.maximum(scores, sigmoid(logits_of(mass, strength, doubt, VISIBLE)))
        apart = np.linalg.norm(back(places, whole) - keypoints[:, None], axis=2)  # (K, P)
        radius = widened(radius_of(apart, found.probability[: model.landmarks]), scores, size)
        return Located(keypoints, scores, visible, radius, whole)

    def _kind(self, box: Any) -> str:
        """How a photograph is cropped, and so the references that it is compared with."""
        return "whole" if box is None else "drawn" if self.drawn else "close"

    def _model(self, kind: str) -> FirstLook:
        """The first look, fitted when it is needed."""
        if kind not in self._first:
            boxes = {"drawn": self.boxed, "close": self.close, "whole": [whole_box(image) for image in self.images]}[
                kind
            ]
            if kind not in self._cells:
                crops = [cut(image, box, SIZE) for image, box in zip(self.images, boxes, strict=True)]
                self._cells[kind] = encode(self.encoder, crops)
            places = np.stack([into(points, box) for points, box in zip(self.points, boxes, strict=True)])
            scale = WIDE if kind == "whole" else 1.0
            self._first[kind] = fit_first(self._cells[kind], places, self._pool.get(kind, ()), scale)
        return self._first[kind]

    def _found_box(self, image: np.ndarray, cells: Cells) -> Box:
        """Where the object is in a photograph, of which `cells` are the whole."""
        model = self._model("whole")
        decision = model.read(cells)[1]
        return box_of(back(decision.mean[: model.landmarks], whole_box(image)), image)
