"""How well `normmatch check` finds mistakes that are put into good labels, by shape alone.

    python -m normmatch.experiments.checking TriloMorph/landmarks.json

Seeded corruptions of 2 % of the landmarks (slips of 5 to 20 % of the object) or of the objects (the rest). Slips: the
share of them among the worst tenth of all landmarks, and the area under the ROC curve. The rest: F1 of naming the
object and the kind, for exchanges the two landmarks as well. Landmarks closer to each other than 5 % of the object are
not exchanged, for nobody could tell; a shift moves three landmarks at least.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.mixups import find_mixups
from normmatch.annotations.shapes import Shapes
from normmatch.annotations.suspicions import sides, stack, suspect

SLIP = (0.05, 0.2)  # of the object
KINDS = ("exchanged", "left and right", "shifted", "mirrored", "upside down")
FACTORS = (0.5, 2.0)  # of another scale


def size_of(thing: np.ndarray) -> float:
    """The longer side of a thing (K, 2)."""
    return float((np.nanmax(thing, 0) - np.nanmin(thing, 0)).max())


def slips(points: np.ndarray, share: float, seed: int) -> tuple[float, float]:
    """The share of slips found in the worst tenth of the landmarks, and the area under the ROC curve."""
    rng, points = np.random.default_rng(seed), points.copy()
    things, landmarks = np.nonzero(np.isfinite(points).all(2))
    chosen = rng.choice(len(things), max(1, round(share * len(things))), replace=False)
    sizes = np.array([size_of(thing) for thing in points])[things[chosen]]
    far, angle = rng.uniform(*SLIP, len(chosen)) * sizes, rng.uniform(0, 2 * np.pi, len(chosen))
    points[things[chosen], landmarks[chosen]] += np.stack([far * np.cos(angle), far * np.sin(angle)], 1)
    doubt = Shapes(points).doubt[things, landmarks]
    wrong = np.zeros(len(things), bool)
    wrong[chosen] = True
    worst = np.argsort(-doubt)[: round(0.1 * len(doubt))]
    ranks = np.argsort(np.argsort(doubt))
    area = (ranks[wrong].mean() - (wrong.sum() - 1) / 2) / (~wrong).sum()
    return float(wrong[worst].sum() / wrong.sum()), float(area)


def mixed_up(
    points: np.ndarray, kind: str, share: float, pairs: list[tuple[int, int]], seed: int
) -> tuple[np.ndarray, dict[int, tuple[int, ...]]]:
    """Things with a mix-up in some of them, and which landmarks of which things it concerns."""
    rng, points, truth = np.random.default_rng(seed), points.copy(), {}
    for row in rng.choice(len(points), max(1, round(share * len(points))), replace=False):
        order, flip = list(range(points.shape[1])), (1, 1)
        known = np.flatnonzero(np.isfinite(points[row]).all(1))
        if kind == "exchanged":
            apart = np.linalg.norm(points[row, known][:, None] - points[row, known], axis=2) > 0.05 * size_of(
                points[row]
            )
            a, b = known[rng.permutation(np.argwhere(apart))[0]].tolist()
            order[a], order[b] = b, a
        elif kind == "left and right":
            for a, b in pairs:
                order[a], order[b] = b, a
        elif kind == "shifted":
            start = int(rng.choice(known[:-3]))
            order[start:] = np.roll(order[start:], rng.choice([-1, 1])).tolist()
        else:
            flip = (-1, 1) if kind == "mirrored" else (1, -1)
        points[row] = points[row][order] * flip
        truth[int(row)] = tuple(k for k, j in enumerate(order) if k != j)
    return points, truth


def mixups(points: np.ndarray, kind: str, share: float, pairs: list[tuple[int, int]], seed: int) -> np.ndarray:
    """Numbers found rightly, found wrongly, and missed."""
    wrong, truth = mixed_up(points, kind, share, pairs, seed)
    told: dict[int, set[tuple[str, tuple[int, ...]]]] = {}
    for one in find_mixups(wrong, pairs)[0]:
        told.setdefault(one.thing, set()).add((one.kind, one.landmarks if kind == "exchanged" else ()))
    right = {k for k, marks in truth.items() if (kind, marks if kind == "exchanged" else ()) in told.get(k, ())}
    return np.array([len(right), len(told.keys() - right), len(truth.keys() - right)])


def scales(items: list[Annotation], share: float, seed: int) -> np.ndarray:
    """The same of objects whose coordinates are those of another copy of the picture."""
    rng, items = np.random.default_rng(seed), list(items)
    chosen = set(rng.choice(len(items), max(1, round(share * len(items))), replace=False).tolist())
    for k in chosen:
        items[k] = replace(items[k], keypoints=items[k].keypoints * rng.choice(FACTORS))
    told = {one.item for one in suspect(items).suspicions if one.kind == "scale" and one.certainty >= 0.5}
    return np.array([len(told & chosen), len(told - chosen), len(chosen - told)])


def f1(counts: np.ndarray) -> float:
    right, wrong, missed = counts
    return float(2 * right / max(2 * right + wrong + missed, 1))


def groups_of(file: Path, fewest: int) -> Iterator[tuple[str, list[Annotation]]]:
    """The objects of each class with enough of them and of landmarks."""
    groups: dict[str, list[Annotation]] = {}
    for item in annotations.read(file, turned=False):
        if len(item.names) >= 4:
            groups.setdefault(item.label, []).append(item)
    yield from ((label, items) for label, items in groups.items() if len(items) >= fewest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.02, help="of the landmarks, or objects")
    parser.add_argument("--exchanged", type=float, default=0.1, help="share of the objects with two names exchanged")
    parser.add_argument("--fewest", type=int, default=10, help="objects of a class")
    given = parser.parse_args()
    groups = list(groups_of(given.file, given.fewest))
    found, counts, start = [], {kind: np.zeros(3, int) for kind in (*KINDS, "scale")}, time.perf_counter()
    for seed in range(given.seeds):
        for _, items in groups:
            names = list(dict.fromkeys(name for item in items for name in item.order))
            points, pairs = stack(items, names), sides(items, names)
            found.append(slips(points, given.share, seed))
            for kind in KINDS:
                if pairs or kind != "left and right":
                    share = given.exchanged if kind == "exchanged" else given.share
                    counts[kind] += mixups(points, kind, share, pairs, seed)
            counts["scale"] += scales(items, given.share, seed)
    print(f"slips: {np.mean(found, 0)[0]:.3f} in the worst tenth, AUC {np.mean(found, 0)[1]:.3f}")
    for kind, count in counts.items():
        if count.sum():
            print(f"{kind}: F1 {f1(count):.3f} ({count[0]} right, {count[1]} wrong, {count[2]} missed)")
    print(
        f"{time.perf_counter() - start:.0f} s, {len(groups)} classes, {sum(len(items) for _, items in groups)} objects"
    )


if __name__ == "__main__":
    main()
