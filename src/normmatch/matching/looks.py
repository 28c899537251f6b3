"""Looks: a first one at the whole object, a second one at crops around its landmarks. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image
from scipy.ndimage import map_coordinates

from normmatch.matching.references import Background, Cells, Filters, Looks, log_likelihood, make_cells, solve
from normmatch.matching.shape import SLACK, Decision, Shape, add_template, decide, given_template, make_shape

Box = tuple[float, float, float, float]  # xmin, ymin, width, height

BLOCKS = (5, 8, 11)  # of the backbone, counted from 0; 4, 7, 10 are as good, 8 and 11 alone 3 points worse
FEW = 10  # references: with fewer a template and unlabelled photographs join in; with 20 the template lost 3 points
ROUNDS = 2  # of self-training
GIVEN = 3.0  # how much a reference counts beside a photograph that was read by the model itself
SURE = 0.5  # share of the photographs, the surest for each landmark, that teach it
DOUBT = 0.045  # median deviation, as a share of the crop, under which self-training would only blur: faces 0.035

CROP, SIDE = 0.25, 224  # of a second look: share of the object's longer side, and pixels
SHARED = 0.2  # of a crop: landmarks closer than that to the middle of a group share it
MOVED = 0.25  # of a crop: how far references' crops are moved at random, as what is found is off, too
CROPS, MOST = 10, 6  # of each landmark over all references, about, and in each: moved once only is 2 points worse
SHARP = 0.4  # temperature of a second look: trilobites like 0.5, faces 0.25
FINE_RIDGE = 0.5  # of its solve: trilobites like 1, faces 0.2
FIRST = 0.5  # weight of what the first look said, beside the second: trilobites like 1, faces 0.25
FINE = 2  # places a cell and side, in a second look
BATCH = 16  # crops that are encoded together


class Encoder(Protocol):
    """What runs the network: the backends of `Matcher`."""

    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """The maps (B, C, h, w) of the blocks, beside each other, of images (B, 3, S, S) uint8."""
        ...


def encode(encoder: Encoder, crops: Sequence[np.ndarray]) -> list[Cells]:
    """Crops (S, S, 3) as the encoder sees them, some at a time."""
    found: list[Cells] = []
    for start in range(0, len(crops), BATCH):
        images = np.stack(crops[start : start + BATCH]).transpose(0, 3, 1, 2)  # (B, 3, S, S)
        found += make_cells(encoder.maps(np.ascontiguousarray(images), BLOCKS), len(BLOCKS))
    return found


def cut(image: np.ndarray, box: Box, size: int) -> np.ndarray:
    """A box of an image (H, W, 3) as a square (size, size, 3); where it sticks out the border's pixels go on."""
    height, width = image.shape[:2]
    x, y, w, h = box
    x, y = min(max(x, 1 - w), width - 1), min(max(y, 1 - h), height - 1)  # at least a pixel of the image is in it
    left, top, right, bottom = int(np.floor(x)), int(np.floor(y)), int(np.ceil(x + w)), int(np.ceil(y + h))
    inside = image[max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
    out = ((max(-top, 0), max(bottom - height, 0)), (max(-left, 0), max(right - width, 0)), (0, 0))
    padded = Image.fromarray(np.pad(inside, out, mode="edge") if any(map(any, out)) else np.ascontiguousarray(inside))
    edges = (x - left, y - top, min(x - left + w, padded.width), min(y - top + h, padded.height))
    return np.asarray(padded.resize((size, size), Image.Resampling.BICUBIC, box=edges))


def into(points: np.ndarray, box: Box) -> np.ndarray:
    """Points (..., 2) in pixels as shares of a box."""
    return (points - box[:2]) / box[2:]


def back(points: np.ndarray, box: Box) -> np.ndarray:
    """Shares of a box as pixels."""
    return points * box[2:] + box[:2]


@dataclass(frozen=True, eq=False)
class FirstLook:
    """Reads one crop of an object for all landmarks together."""

    filters: Filters  # of the landmarks, then of the template's points
    shape: Shape
    landmarks: int
    plain: Filters  # of the references alone, by which scores are calibrated

    def read(self, cells: Cells) -> tuple[np.ndarray, Decision]:
        """What the picture says of each landmark and template point, (K', P) log-probabilities; and the decision."""
        logs = log_likelihood(self.filters.answer(cells), self.filters.known)
        return logs, decide(logs, cells.grid, self.shape)


def fit_first(
    cells: Sequence[Cells], places: np.ndarray, unlabelled: Sequence[Cells] = (), scale: float = 1.0
) -> FirstLook:
    """From references' crops and their landmarks' places (R, K, 2), shares of the crop; NaN: not shown."""
    few = len(cells) < FEW
    landmarks = places.shape[1]
    places = add_template(places) if few else places  # (R, K', 2)
    looks = Looks.none(places.shape[1], cells[0].features.shape[1])
    for one, place in zip(cells, places, strict=True):
        looks.add(one, place, GIVEN)
    background = Background.of([*cells, *unlabelled])
    slack = SLACK if few else SLACK / 2
    plain = solve(looks, background)
    model = FirstLook(plain, make_shape(places, slack, scale), landmarks, plain)
    for _ in range(ROUNDS if few and len(unlabelled) > 1 else 0):
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
    shape = make_shape(np.concatenate([*[places] * int(GIVEN), means]), SLACK, scale, spread=0.3 * spread)
    return FirstLook(solve(looks, background), shape, model.landmarks, model.plain)


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
    ) -> tuple[Decision, np.ndarray]:  # fmt: skip
        """Both looks together, decided once more by shape, in shares of the first look's crop `whole`.

        Returns:
            the decision, and the places (K, P, 2) it is about.
        """
        landmarks = len(self.filters.known)
        count = FINE**2 * len(cells[0].features)
        logs, places = np.zeros((landmarks, count)), np.zeros((landmarks, count, 2))
        for crop, box, group in zip(cells, boxes, self.groups, strict=True):
            fine, answers = _finer(crop, self.filters.answer(crop)[group])
            logs[group] = log_likelihood(answers, self.filters.known[group], SHARP)
            places[group] = into(back(fine, box), whole)
        logs += FIRST * _interpolated(first[:landmarks], grid, places)
        shape = given_template(shape, decision, landmarks) if len(shape.mean) > landmarks else shape
        return decide(logs, places, shape), places


def fit_second(
    encoder: Encoder,
    images: Sequence[np.ndarray],
    points: Sequence[np.ndarray],
    sizes: Sequence[float],
    seed: int = 0,
) -> SecondLook:
    """From references (H, W, 3), their landmarks (K, 2) in pixels, NaN: not shown, and their objects' sizes."""
    rng = np.random.default_rng(seed)
    groups = _groups(points, sizes)
    times = min(MOST, max(1, round(CROPS / len(images))))
    crops, where, who = [], [], []
    for image, place, size in zip(images, points, sizes, strict=True):
        side = size * CROP
        for group in groups:
            if not np.isfinite(place[group]).any():
                continue
            for time in range(times):
                off = rng.uniform(-MOVED, MOVED, 2) * side if time or times == 1 else np.zeros(2)
                box = _around(place[group], side, off)
                crops.append(cut(image, box, SIDE))
                where.append(into(place[group], box))
                who.append(group)
    cells = encode(encoder, crops)
    looks = Looks.none(len(points[0]), cells[0].features.shape[1])
    for one, place, group in zip(cells, where, who, strict=True):
        inside = np.abs(place - 0.5).max(1) < 0.5 - 1 / one.width
        looks.add(one, np.where(inside[:, None], place, np.nan), 1.0, group)
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


def _finer(crop: Cells, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """FINE^2 places for each cell (P', 2), and a map's values (K, P) there, by cubic splines."""
    fine = Cells(crop.features[:0], crop.height * FINE, crop.width * FINE)
    x, y = (fine.grid * (crop.width, crop.height) - 0.5).T
    maps = values.reshape(-1, crop.height, crop.width)
    return fine.grid, np.stack([map_coordinates(one, (y, x), order=3, mode="nearest") for one in maps])


def _interpolated(values: np.ndarray, cells: Cells, places: np.ndarray) -> np.ndarray:
    """Maps (K, P) over cells at each landmark's own places (K, P', 2), bilinearly."""
    x, y = (places * (cells.width, cells.height) - 0.5).transpose(2, 0, 1)  # (K, P') each
    maps = values.reshape(-1, cells.height, cells.width)
    return np.stack(
        [map_coordinates(one, (v, u), order=1, mode="nearest") for one, u, v in zip(maps, x, y, strict=True)]
    )
