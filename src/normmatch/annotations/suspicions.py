"""What looks wrong in labels, by shape and by rules: which landmark, what is suspected, where it should be, and why.

    found = suspect(annotations)
    for one in found.suspicions: print(annotations[one.item].image, one.kind, one.landmarks, one.why)

Kinds of things are judged apart. Mix-ups are undone before slips are looked for, so that one mistake is told once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from normmatch.annotations import Annotation
from normmatch.annotations.mixups import Mixup, find_mixups
from normmatch.annotations.names import swap_left_right
from normmatch.annotations.shapes import Shapes

What = Literal[
    "slip",
    "exchanged",
    "left and right",
    "shifted",
    "mirrored",
    "upside down",
    "scale",
    "outside",
    "same place",
    "missing",
]
USUAL = 4.0  # log of how many times rarer a slip is than a landmark that is right: 2 %
FEWEST_THINGS, FEWEST_LANDMARKS = 4, 4  # from which on a shape says something
SURE = 10  # things from which on it says much
RARE = 0.1  # of the things: what is so rare may be a mistake
BEYOND = 0.01  # of the picture: what lies farther outside is told
SCALES = (0.1, 0.25, 0.5, 2.0, 4.0, 10.0)  # by which labels of another copy of a picture, or of another unit, are off
SCALED = 3.0  # gain of the log from which on such a factor is told
SMOOTH = 1.0  # of the spread of what was measured: the width of a kernel


@dataclass(frozen=True)
class Suspicion:
    """Something that looks wrong in one object."""

    item: int  # the number of the object in the file
    kind: What
    landmarks: tuple[str, ...]
    doubt: float  # log of how much likelier what is seen is with a mistake than without
    why: str
    expected: tuple[float, float] | None = None  # pixels
    order: tuple[str, ...] | None = None  # of exchanges and shifts: whose place each of the landmarks rightly has

    @property
    def certainty(self) -> float:
        """The probability that it is a mistake, where mistakes are as rare as 2 in 100."""
        return float(1 / (1 + np.exp(np.clip(USUAL - self.doubt, -50, 50))))


@dataclass(frozen=True, eq=False)
class Kind:
    """The objects of one class, judged together."""

    items: tuple[int, ...]  # numbers in the file
    names: tuple[str, ...]
    shapes: Shapes  # once mix-ups are undone


@dataclass(frozen=True, eq=False)
class Findings:
    """All that is suspected, worst first, and what could not be judged."""

    suspicions: tuple[Suspicion, ...]
    notes: tuple[str, ...]
    kinds: tuple[Kind, ...] = field(default=(), repr=False)


def suspect(annotations: Sequence[Annotation]) -> Findings:
    """Judge all objects of a file."""
    found: list[Suspicion] = []
    notes, kinds = [], []
    groups: dict[str, list[int]] = {}
    for number, item in enumerate(annotations):
        if item.names:
            groups.setdefault(item.label, []).append(number)
        found += by_rules(number, item)
    for label, numbers in groups.items():
        some = [annotations[number] for number in numbers]
        about = f"of the class {label!r} " if label else ""
        names = tuple(dict.fromkeys(name for item in some for name in (*item.order, *item.names)))
        if len(some) < FEWEST_THINGS or len(names) < FEWEST_LANDMARKS:
            notes.append(
                f"The {len(some)} objects {about}have {len(names)} landmarks: too few to tell mistakes from shapes, "
                f"which takes {FEWEST_THINGS} objects with {FEWEST_LANDMARKS} landmarks at least."
            )
            continue
        if len(some) < SURE:
            notes.append(f"There are only {len(some)} objects {about}; with so few, unusual shapes look like mistakes.")
        points = stack(some, names)
        mixups, points = find_mixups(points, sides(some, names))
        shapes = Shapes(points)
        kinds.append(Kind(tuple(numbers), names, shapes))
        told = [
            *_mixups(mixups, names, shapes),
            *_slips(names, shapes),
            *_same_place(names, points),
            *_missing(some, names),
        ]
        found += [replace(one, item=numbers[one.item]) for one in (*told, *_scales(some, shapes))]
    return Findings(tuple(sorted(found, key=lambda one: -one.doubt)), tuple(notes), tuple(kinds))


def stack(items: Sequence[Annotation], names: Sequence[str]) -> np.ndarray:
    """The keypoints (R, K, 2) of objects by these names, NaN where there is none."""
    points = np.full((len(items), len(names), 2), np.nan)
    index = {name: k for k, name in enumerate(names)}
    for row, item in zip(points, items, strict=True):
        for name, xy in zip(item.names, item.keypoints, strict=True):
            if name in index:
                row[index[name]] = xy
    return points


def sides(items: Sequence[Annotation], names: Sequence[str]) -> list[tuple[int, int]]:
    """The landmarks that are left and right of each other, by the file or by their names."""
    index = {name: k for k, name in enumerate(names)}
    given = {pair for item in items if item.landmarks for pair in item.landmarks.pairs}
    given = given or {(name, swap_left_right(name)) for name in names}
    pairs = {(index[a], index[b]) for a, b in given if a in index and b in index}
    return sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})


def _mixups(mixups: Sequence[Mixup], names: Sequence[str], shapes: Shapes) -> Iterator[Suspicion]:
    for one in mixups:
        wrong = tuple(names[k] for k in one.landmarks)
        whose = tuple(names[one.order[k]] for k in one.landmarks) or None
        why = {
            "exchanged": f"{' and '.join(wrong)} fit far better the other way round",
            "left and right": "all fits far better with left and right exchanged",
            "shifted": f"from {wrong[0] if wrong else ''} on each lies where its neighbour in the list should be",
            "mirrored": "the whole is the mirror image of the others",
            "upside down": "the whole is that of the others with y counted from the other end",
        }[one.kind]
        yield Suspicion(one.thing, one.kind, wrong, one.gain, why, None, whose if one.flip == (1, 1) else None)


def _slips(names: Sequence[str], shapes: Shapes) -> Iterator[Suspicion]:
    doubt, expected, spread, sizes = shapes.doubt, shapes.expected, shapes.spread, shapes.sizes
    for thing, k in np.argwhere(doubt > 0):
        off = float(np.linalg.norm(shapes.points[thing, k] - expected[thing, k]))
        why = (
            f"{off:.3g} pixels ({off / sizes[thing]:.1%} of the object) from where the others say "
            f"(usually {spread[thing, k]:.2g})"
        )
        x, y = expected[thing, k].tolist()
        yield Suspicion(int(thing), "slip", (names[k],), float(doubt[thing, k]), why, (x, y))


def _same_place(names: Sequence[str], points: np.ndarray) -> Iterator[Suspicion]:
    """Two landmarks in one place where they are apart in nearly all others."""
    for a in range(len(names)):
        same = (np.abs(points[:, a : a + 1] - points[:, a + 1 :]) < 1e-6).all(2)  # (R, K - a - 1)
        both = np.isfinite(points[:, a : a + 1] + points[:, a + 1 :]).all(2)
        rare = same.sum(0) <= np.maximum(RARE * both.sum(0), 1)
        for thing, k in np.argwhere(same & rare & (both.sum(0) >= FEWEST_THINGS)):
            share = same[:, k].sum() / both[:, k].sum()
            pair = (names[a], names[a + 1 + k])
            why = f"{' and '.join(pair)} are in one place, as in {share:.0%} of the objects"
            yield Suspicion(int(thing), "same place", pair, USUAL + 0.5, why)


def _missing(items: Sequence[Annotation], names: Sequence[str]) -> Iterator[Suspicion]:
    """A landmark that nearly all others have, and that nobody has said to be absent."""
    have = Counter(name for item in items for name in (*item.names, *item.absent))
    for thing, item in enumerate(items):
        gone = tuple(
            n for n in names if n not in item.names and n not in item.absent and have[n] >= (1 - RARE) * len(items)
        )
        if gone and len(items) >= SURE:
            listed = f"{len(gone)} landmarks" if len(gone) > 3 else ", ".join(gone)
            yield Suspicion(
                thing, "missing", gone, USUAL - 1.0, f"{listed} missing here, and in hardly any other object"
            )


def by_rules(number: int, item: Annotation) -> Iterator[Suspicion]:
    """What is wrong whatever the others are like: landmarks outside the picture."""
    if item.size is None or item.y_up:
        return
    beyond = np.maximum(-item.keypoints / item.size, item.keypoints / item.size - 1).max(1)  # (N,)
    out = np.flatnonzero(beyond > BEYOND).tolist()
    if len(out) > len(item.names) / 2:
        names = tuple(item.names[k] for k in out)
        yield Suspicion(
            number, "outside", names, USUAL + 5, f"{len(out)} of {len(item.names)} landmarks are outside the picture"
        )
    else:
        for k in out:
            why = f"{beyond[k]:.0%} of the picture outside of it"
            yield Suspicion(number, "outside", (item.names[k],), USUAL + 2, why)


def _scales(items: Sequence[Annotation], shapes: Shapes) -> Iterator[Suspicion]:
    """Objects whose coordinates, or millimetres, are a multiple of what the others' are."""
    log_size = np.log(shapes.sizes)
    scale = np.array([item.scale or np.nan for item in items])
    size = np.array([item.size or (np.nan, np.nan) for item in items], float)
    corner = np.nanmax(shapes.points, 1) / size  # (R, 2) shares of the picture
    outside = np.nan_to_num(corner).max(1) > 1 + BEYOND
    for values, what in ((corner, "the picture"), (np.exp(log_size + np.log(scale))[:, None], "millimetres")):
        known = np.isfinite(values).all(1)
        if known.sum() < SURE:
            continue
        logs = np.log(np.clip(values, 1e-6, None))
        own = density(logs, logs[known], np.cumsum(known) - 1)
        best, factor = np.zeros(len(items)), np.ones(len(items))
        for tried in SCALES:
            gain = density(logs - np.log(tried), logs[known], np.cumsum(known) - 1) - own
            gain[~known] = 0
            gain[outside & (corner.max(1) < (1 + BEYOND) * tried)] += SCALED
            factor, best = np.where(gain > best, tried, factor), np.maximum(gain, best)
        for thing in np.flatnonzero(best > SCALED):
            why = f"measured by {what}, about {factor[thing]:g} times as large as the others"
            yield Suspicion(int(thing), "scale", (), float(best[thing]) - SCALED + USUAL, why)


def density(values: np.ndarray, others: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Log of the density (R,) of values (R, D) among others (A, D) without their `own` (R,): heavy-tailed kernels."""
    spread = 1.4826 * np.median(np.abs(others - np.median(others, 0)), 0)
    apart = (values[:, None] - others) / np.maximum(SMOOTH * spread, 0.02)  # (R, A, D)
    kernel = (1 + np.nan_to_num(apart**2, nan=1e9).sum(2) / 3) ** -3
    kernel[np.arange(len(values)), own] = 0
    return np.log(kernel.mean(1) + 1e-5)


def corrected(annotations: Sequence[Annotation], findings: Findings) -> tuple[list[Annotation], int]:
    """The objects with exchanges and shifts undone, never slips, and how many objects that are."""
    items, changed = list(annotations), set()
    for one in findings.suspicions:
        if one.order is None:
            continue
        item = items[one.item]
        places = {name: k for k, name in enumerate(item.names)}
        target = {rightly: name for name, rightly in zip(one.landmarks, one.order, strict=True)}
        names = tuple(target.get(name, name) for name in item.names)
        order = sorted(
            range(len(names)), key=lambda k: items[one.item].order.index(names[k]) if names[k] in item.order else k
        )
        assert len(set(names)) == len(places)
        items[one.item] = replace(
            item,
            names=tuple(names[k] for k in order),
            keypoints=item.keypoints[order],
            visible=None if item.visible is None else item.visible[order],
            scores=None if item.scores is None else item.scores[order],
        )
        changed.add(one.item)
    return items, len(changed)
