"""Mix-ups: names exchanged, left and right, order shifted, a whole photograph mirrored or upside down.

Each is undone in turn, and suspected where the thing fits clearly better then: compared are densities of whole shapes
(`Shapes.fit_of`) under what the other things vary like.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from normmatch.annotations.shapes import Shapes

Kind = Literal["exchanged", "left and right", "shifted", "mirrored", "upside down"]
GAIN = {"exchanged": 12.0, "left and right": 10.0, "shifted": 12.0, "mirrored": 10.0, "upside down": 10.0}  # of the log
TRIED, ROUNDS = 4, 4  # exchanges of a thing that are looked at closely; mix-ups of a thing, one after the other
LOOKED = 1.0  # things whose worst landmark is doubted less have no mix-up
APART = 0.02  # of the thing: names closer to each other cannot be told to be exchanged

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Mixup:
    """What is mixed up in a thing, and how to undo it."""

    thing: int
    kind: Kind
    gain: float  # log of how much likelier the thing is without it
    order: tuple[int, ...]  # landmark k is rightly at the place that `order[k]` has in the file
    flip: tuple[int, int] = (1, 1)  # signs of x and y

    @property
    def landmarks(self) -> tuple[int, ...]:
        """Those whose names are wrong."""
        return tuple(k for k, j in enumerate(self.order) if k != j)


def find_mixups(points: np.ndarray, pairs: Pairs = ()) -> tuple[list[Mixup], np.ndarray]:
    """The mix-ups of things (R, K, 2), and the things without them; `pairs` are landmarks left and right of each other.

    What was mixed up misleads about the others, so that things are looked at again once the worst are undone.
    """
    found: list[Mixup] = []
    points = points.copy()
    for _ in range(ROUNDS):
        shapes = Shapes(points)
        new = list(_round(shapes, pairs))
        for mixup in new:
            points[mixup.thing] = undone(points[mixup.thing], mixup)
        found += new
        if not new:
            break
    return found, points


def undone(thing: np.ndarray, mixup: Mixup) -> np.ndarray:
    """The landmarks (K, 2) of a thing without a mix-up."""
    return thing[list(mixup.order)] * mixup.flip


def _round(shapes: Shapes, pairs: Pairs) -> Iterator[Mixup]:
    doubt = shapes.doubt
    looked = np.flatnonzero((doubt.max(1) > LOOKED) & (shapes.known.sum(1) >= 4))
    tried = [mixup for thing in looked for mixup in _candidates(shapes, int(thing), pairs)]
    if not tried:
        return
    which = np.array([mixup.thing for mixup in tried])
    now = shapes.fit_of(looked, shapes.points[looked])
    before = dict(zip(looked.tolist(), now.tolist(), strict=True))
    after = shapes.fit_of(which, np.stack([undone(shapes.points[m.thing], m) for m in tried]))
    best: dict[int, Mixup] = {}
    for mixup, fit in zip(tried, after.tolist(), strict=True):
        gain = fit - before[mixup.thing]
        worth = gain - GAIN[mixup.kind]
        known = best.get(mixup.thing)
        if worth > 0 and (known is None or worth > known.gain - GAIN[known.kind]):
            best[mixup.thing] = Mixup(mixup.thing, mixup.kind, gain, mixup.order, mixup.flip)
    whole = [mixup for mixup in best.values() if mixup.kind != "exchanged"]  # these mislead most: they are undone first
    for mixup in whole or best.values():
        yield _named(shapes, mixup)


def _candidates(shapes: Shapes, thing: int, pairs: Pairs) -> Iterator[Mixup]:
    known = shapes.known[thing]
    same = tuple(range(len(known)))
    yield Mixup(thing, "mirrored", 0, same, (-1, 1))
    if pairs:
        order = list(same)
        for a, b in pairs:
            order[a], order[b] = b, a
        yield Mixup(thing, "left and right", 0, tuple(order))
    for start in range(len(same) - 2):  # exchanging two is not shifting
        rest = same[start:]
        yield Mixup(thing, "shifted", 0, same[:start] + rest[-1:] + rest[:-1])
        yield Mixup(thing, "shifted", 0, same[:start] + rest[1:] + rest[:1])
    place, expected = shapes.points[thing], shapes.expected[thing]
    cross = (
        np.linalg.norm(place[:, None] - expected[None], axis=2) / shapes.sizes[thing]
    )  # (K, K) of a to where b belongs
    own = np.diag(cross)
    gain = own[:, None] ** 2 + own[None] ** 2 - cross**2 - cross.T**2
    near = np.linalg.norm(place[:, None] - place[None], axis=2) < APART * shapes.sizes[thing]
    gain[~(known[:, None] & known) | near | np.tri(len(own), dtype=bool)] = -np.inf
    for index in np.argsort(-gain, axis=None)[:TRIED]:
        a, b = divmod(int(index), len(own))
        if np.isfinite(gain[a, b]):
            order = list(same)
            order[a], order[b] = b, a
            yield Mixup(thing, "exchanged", 0, tuple(order))


def _named(shapes: Shapes, mixup: Mixup) -> Mixup:
    """A mirrored thing is upside down if it lies like the others once y, not x, is turned."""
    if mixup.kind != "mirrored":
        return mixup
    angles = []
    for flip in ((-1, 1), (1, -1)):
        points = shapes.points.copy()
        points[mixup.thing] *= flip
        angles.append(_angle(shapes, points[mixup.thing], mixup.thing))
    flip = (-1, 1) if angles[0] <= angles[1] else (1, -1)
    return Mixup(mixup.thing, "mirrored" if flip[0] < 0 else "upside down", mixup.gain, mixup.order, flip)


def _angle(shapes: Shapes, points: np.ndarray, thing: int) -> float:
    """How far a thing is turned against how the others are."""
    turns = shapes.turns
    usual = np.median(turns.real / np.abs(turns)) + 1j * np.median(turns.imag / np.abs(turns))
    return float(abs(np.angle(shapes.turn_of(points) / usual)))
