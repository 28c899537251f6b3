"""Looks: a first one at the whole object, a second one at crops around its landmarks. No torch here."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import map_coordinates

from normmatch.geometry import Box
from normmatch.matching.references import RIDGE, TEMPERATURE, Background, Cells, Filters, Looks, log_likelihood, solve
from normmatch.matching.shape import (
    AGAIN,
    ROUNDS,
    SLACK,
    TRUST,
    Axes,
    Decision,
    Shape,
    add_template,
    decide,
    given_template,
    make_shape,
)
from normmatch.matching.sight import Photograph, Sight, back, into

FEW = 10  # references: with fewer a template and unlabelled photographs join in; with 20 the template lost 3 points
TAUGHT = 2  # rounds of self-training
GIVEN = 3.0  # how much a reference counts beside a photograph that was read by the model itself
SURE = 0.5  # share of the photographs, the surest for each landmark, that teach it
DOUBT = 0.045  # median deviation, as a share of the crop, under which self-training would only blur: faces 0.035

CROP, SIDE = 0.25, 224  # of a second look: share of the object's longer side, and pixels
SHARED = 0.2  # of a crop: landmarks closer than that to the middle of a group share it
MOVED = 0.25  # of a crop: how far references' crops are moved at random, as what is found is off, too
CROPS, MOST = 10, 6  # of each landmark over all references, about, and in each: moved once only is 2 points worse
EDGE, MET = 0.44, 0.3  # of a crop: how far from its middle its own landmarks may lie, and others that are seen, too
SHARP = 0.4  # temperature of a second look: trilobites like 0.5, faces 0.25
FINE_RIDGE = 0.5  # of its solve: trilobites like 1, faces 0.2
FIRST = 0.5  # weight of what the first look said, beside the second: trilobites like 1, faces 0.25
FINE = 2  # places a cell and side, in a second look


@dataclass(frozen=True)
class Tuning:
    """Numbers of a first look that a folder may want otherwise; `tuning.py` chooses."""

    ridge: float = RIDGE
    temperature: float = TEMPERATURE
    trust: float = TRUST
    slack: float = 1.0  # times SLACK


PLAIN = Tuning()


@dataclass(frozen=True, eq=False)
class FirstLook:
    """Reads one crop of an object for all landmarks together."""

    filters: Filters  # of the landmarks, then of the template's points
    shape: Shape
    landmarks: int
    plain: Filters  # of the references alone, by which scores are calibrated
    tuning: Tuning = PLAIN

    def read(self, cells: Cells, start: Decision | None = None) -> tuple[np.ndarray, Decision]:
        """What the picture says of each landmark and template point, (K', P) log-probabilities; and the decision.

        From an earlier decision about the same photograph it takes fewer rounds.
        """
        logs = log_likelihood(self.filters.answer(cells), self.filters.known, self.tuning.temperature)
        known = start is not None and len(start.mean) == len(self.shape.mean)
        return logs, decide(logs, cells.axes, self.shape, AGAIN if known else ROUNDS, start if known else None)


def fit_first(
    cells: Sequence[Cells],
    places: np.ndarray,
    unlabelled: Sequence[Cells] = (),
    scale: float = 1.0,
    background: Background | None = None,
    tuning: Tuning = PLAIN,
) -> FirstLook:
    """From references' crops and their landmarks' places (R, K, 2), shares of the crop; NaN: not shown.

    The background is that of the references and of the unlabelled photographs, if it is not known already.
    """
    few = len(cells) < FEW
    landmarks = places.shape[1]
    places = add_template(places) if few else places  # (R, K', 2)
    looks = Looks.none(places.shape[1], cells[0].features.shape[1])
    for one, place in zip(cells, places, strict=True):
        looks.add(one, place, GIVEN)
    background = background or Background.of([*cells, *unlabelled])
    slack = tuning.slack * (SLACK if few else SLACK / 2)
    plain = solve(looks, background, tuning.ridge)
    model = FirstLook(plain, make_shape(places, slack, scale, tuning.trust), landmarks, plain, tuning)
    for _ in range(TAUGHT if few and len(unlabelled) > 1 else 0):
        model = _teach(model, looks, places, unlabelled, background, scale)
    return model


def _teach(
    model: FirstLook,
    looks: Looks,
    places: np.ndarray,
    unlabelled: Sequence[Cells],
    background: Background,
    scale: float,
) -> FirstLook:
    """One round of self-training: photographs nobody has labelled, read by the model, teach the next one."""
    found = [model.read(cells)[1] for cells in unlabelled]
    doubt = np.stack([decision.variance.sum(1) for decision in found])  # (U, K')
    if np.sqrt(np.median(doubt[:, : model.landmarks])) < DOUBT:
        return model  # what is sure already, only references make more exact
    sure = doubt <= np.quantile(doubt, SURE, axis=0)
    looks = looks.copy()
    for cells, decision, chosen in zip(unlabelled, found, sure, strict=True):
        looks.add(cells, decision.mean, chosen.astype(float))
    means = np.stack([decision.mean for decision in found])  # (U, K', 2)
    spread = np.stack([decision.variance for decision in found]).mean(0)
    tuning, taught = model.tuning, np.concatenate([*[places] * int(GIVEN), means])
    shape = make_shape(taught, tuning.slack * SLACK, scale, tuning.trust, 0.3 * spread)
    return FirstLook(solve(looks, background, tuning.ridge), shape, model.landmarks, model.plain, tuning)


@dataclass(frozen=True, eq=False)
class SecondLook:
    """Reads crops around what the first look found, for the landmarks of each."""

    filters: Filters
    groups: tuple[np.ndarray, ...]  # indices of the landmarks that share a crop

    def boxes(self, points: np.ndarray, size: float) -> list[Box]:
        """The crop of each group, around points (K, 2) in pixels, of an object of that size."""
        return [_around(points[group], size * CROP) for group in self.groups]

    def read(
        self, cells: Sequence[Cells], boxes: Sequence[Box], first: np.ndarray, decision: Decision, shape: Shape,
        grid: Cells, whole: Box,
    ) -> tuple[Decision, Axes]:  # fmt: skip
        """Both looks together, decided once more by shape, in shares of the first look's crop `whole`.

        Returns:
            the decision, and the places of each landmark that it is about.
        """
        landmarks, ticks = len(self.filters.known), _finer(cells[0])
        logs, x, y = (np.zeros((landmarks, n)) for n in (len(ticks) ** 2, len(ticks), len(ticks)))
        for crop, box, group in zip(cells, boxes, self.groups, strict=True):
            fine = _interpolated(self.filters.answer(crop)[group], crop, ticks[None], ticks[None], 3)
            logs[group] = log_likelihood(fine, self.filters.known[group], SHARP)
            x[group], y[group] = into(back(np.stack([ticks, ticks], 1), box), whole).T
        logs += FIRST * _interpolated(first[:landmarks], grid, x, y, 1)
        shape = given_template(shape, decision, landmarks) if len(shape.mean) > landmarks else shape
        return decide(logs, (x, y), shape), (x, y)


def fit_second(
    sight: Sight, photographs: Sequence[Photograph], points: Sequence[np.ndarray], sizes: Sequence[float]
) -> SecondLook:
    """From references, their landmarks (K, 2) in pixels, NaN: not shown, and their objects' sizes."""
    groups = _groups(points, sizes)
    # Seeded by the reference itself: when another one joins it, its crops are known already.
    seeds = [np.random.default_rng(zlib.crc32(place.tobytes())) for place in points]
    moves = [rng.uniform(-MOVED, MOVED, (len(groups), MOST, 2)) for rng in seeds]
    views = np.zeros(len(points[0]))  # how often each landmark was seen
    crops, where = [], []
    times = min(MOST, max(1, round(CROPS / len(photographs))))
    for time in range(times):
        for photograph, place, size, moved in zip(photographs, points, sizes, moves, strict=True):
            side = size * CROP
            for number, group in enumerate(groups):
                if not np.isfinite(place[group]).any() or views[group].min() >= CROPS:
                    continue
                box = _around(place[group], side, moved[number, time] * side if time or times == 1 else 0.0)
                inside = into(place, box)
                apart = np.abs(inside - 0.5).max(1)
                seen = apart < np.where(np.isin(np.arange(len(place)), group), EDGE, MET)
                views += seen
                crops.append((photograph, box))
                where.append(np.where(seen[:, None], inside, np.nan))
    cells = sight.see_all(crops, SIDE)
    looks = Looks.none(len(points[0]), cells[0].features.shape[1])
    for one, place in zip(cells, where, strict=True):
        looks.add(one, place)
    return SecondLook(solve(looks, Background.of(cells, 64), FINE_RIDGE), groups)


def _groups(points: Sequence[np.ndarray], sizes: Sequence[float]) -> tuple[np.ndarray, ...]:
    """Landmarks that lie together in all references, the densest groups first."""
    near = SHARED * CROP
    shapes = np.stack([place / size for place, size in zip(points, sizes, strict=True)])  # (R, K, 2)
    apart = np.abs(shapes[:, :, None] - shapes[:, None]).max(3)  # (R, K, K)
    apart = np.where(np.isfinite(apart), apart, 0.0).max(0) + np.where(np.isfinite(apart).any(0), 0.0, np.inf)
    left, groups = np.ones(len(apart), bool), []
    while left.any():
        close = (apart < near) & left
        np.fill_diagonal(close, left)
        best = int(np.where(left, close.sum(1), -1).argmax())
        groups.append(np.flatnonzero(close[best]))
        left &= ~close[best]
    return tuple(groups)


def _around(points: np.ndarray, side: float, off: np.ndarray | float = 0.0) -> Box:
    seen = points[np.isfinite(points).all(1)]
    x, y = (seen.min(0) + seen.max(0)) / 2 + off
    return float(x - side / 2), float(y - side / 2), float(side), float(side)


def _finer(crop: Cells) -> np.ndarray:
    """FINE places a cell, along a side of a square crop."""
    return (np.arange(FINE * crop.width) + 0.5) / (FINE * crop.width)


def _interpolated(values: np.ndarray, cells: Cells, x: np.ndarray, y: np.ndarray, order: int) -> np.ndarray:
    """Maps (K, P) over cells at the places of each landmark's axes, by splines."""
    maps = values.reshape(-1, cells.height, cells.width)
    found = []
    for i, one in enumerate(maps):
        across, down = np.meshgrid(x[i % len(x)] * cells.width - 0.5, y[i % len(y)] * cells.height - 0.5)
        found.append(map_coordinates(one, (down.ravel(), across.ravel()), order=order, mode="nearest"))
    return np.stack(found)
