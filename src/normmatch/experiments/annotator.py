"""A simulated annotator: how many points of a folder need a hand, when the machine proposes and the worst come first.

    python -m normmatch.experiments.annotator SPair-71k --within 0.1 0.05 --save annotator.json --plot annotator.svg
    python -m normmatch.experiments.annotator TriloMorph/landmarks.json --photographs 60

One photograph is annotated; the others are proposed. The annotator opens the least certain, sets every landmark that is
off by more than a share of the object's longer side, or wrongly absent or present, and accepts; it is a reference then.
Nobody tells the machine where the objects are, unless --boxes. Compared are the ways of --modes:

    all        as the label page does it        first-only   the first photograph stays the only reference
    one-look   without a second look            unadapted    photographs that nobody has labelled do not teach
"""

import argparse
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.images import find_image
from normmatch.matching.album import Album, Marked
from normmatch.matching.landmarks import Located
from normmatch.matching.matcher import Matcher
from normmatch.matching.sight import Encoder

MODES: dict[str, dict[str, Any]] = {
    "all": {}, "first-only": {"growing": False}, "unadapted": {"learn": False}, "one-look": {"looks": 1},
    "one-look-first-only": {"looks": 1, "growing": False}, "one-look-unadapted": {"looks": 1, "learn": False},
}  # fmt: skip
ABSENT = 0.5  # probability of being in the picture below which a landmark is proposed as absent


@dataclass(frozen=True, eq=False)
class Task:
    """Photographs of one kind of thing, with the truth."""

    name: str
    files: list[Path]
    points: np.ndarray  # (N, K, 2), NaN where a landmark is absent
    sizes: np.ndarray  # (N,) longer sides of the objects, in pixels
    boxes: list[Any]


@dataclass(frozen=True)
class Review:
    """What the annotator did with a photograph."""

    task: str
    reviewed: int  # photographs before this one
    landmarks: int
    hand: int  # landmarks that needed one
    shown: int  # landmarks that are in the picture
    shown_hand: int
    certainty: tuple[float, ...]  # of each landmark that was proposed
    wrong: tuple[bool, ...]
    off: tuple[float, ...]  # of landmarks in the picture, shares of the object; 9 where proposed absent, or not at all


def read_tasks(source: Path, classes: Sequence[str], most: int, seed: int) -> Iterator[Task]:
    """The kinds of things of SPair-71k's test photographs, or of any keypoints file, in a seeded order."""
    if source.is_dir():
        from normmatch.datasets.spair import load

        objects = [one for split in load(source, "thinkmatch").splits.values() for one in split.objects]
    else:
        objects = annotations.read(source)
    rng = np.random.default_rng(seed)
    for label in sorted({one.label for one in objects}):
        if classes and label not in classes:
            continue
        some = [one for one in objects if one.label == label and one.names]
        some = [some[i] for i in rng.permutation(len(some))[:most]]
        names = sorted({name for one in some for name in one.names}, key=lambda name: (len(name), name))
        points = np.full((len(some), len(names), 2), np.nan)
        for row, one in enumerate(some):
            points[row, [names.index(name) for name in one.names]] = one.keypoints
        sizes = np.array([_size(one) for one in some])
        files = [_file(one, source) for one in some]
        yield Task(label or source.parent.name, files, points, sizes, [one.box for one in some])


def _size(one: Annotation) -> float:
    return float(max(one.box[2:]) if one.box else np.ptp(one.keypoints, 0).max())


def _file(one: Annotation, source: Path) -> Path:
    found = find_image(one.image, [Path(), source.parent, source.parent / "images"])
    if found is None:
        raise FileNotFoundError(one.image)
    return found


def annotate(
    task: Task, encoder: Encoder, within: float, growing: bool = True, boxed: bool = False, cache: Path | None = None,
    **options: Any,
) -> Iterator[Review]:  # fmt: skip
    """Review all photographs of a task but the first, which is annotated by hand."""
    names = [str(number) for number in range(len(task.files))]
    boxes = {name: box for name, box in zip(names, task.boxes, strict=True) if boxed and box}
    album = Album(dict(zip(names, task.files, strict=True)), encoder, boxes, cache, **options)
    marked = {names[0]: Marked(task.points[0], boxes.get(names[0]))}
    left, known = set(names[1:]), np.zeros(task.points.shape[1], bool)
    while left:
        before, known = known, np.isfinite(np.stack([one.keypoints for one in marked.values()])).all(2).any(0)  # (K,)
        if (known != before).any():
            album.fit({})  # another set of landmarks
        if growing or not before.any():
            album.fit({name: Marked(one.keypoints[known], one.box) for name, one in marked.items()})
            _work(album, not before.any())
        proposals = album.proposals
        worst = min(left, key=lambda name: (_certainties(proposals[name]).min(), name))
        left.remove(worst)
        row = int(worst)
        found = album.locate(worst)
        review, points = _review(task, row, found, known, within, len(task.files) - len(left) - 1)
        if growing:
            marked[worst] = Marked(points, boxes.get(worst))
        yield review


def _work(album: Album, everything: bool) -> None:
    """Let the album do all that it can with what it knows, or the next step, which is to learn if it wants to."""
    stop = threading.Event()
    album.work(stop, lambda status: stop.set() if status.idle or not everything else None)


def _certainties(found: Located) -> np.ndarray:
    return np.where(found.visible < ABSENT, 1 - found.visible, found.scores)


def _review(
    task: Task, row: int, found: Located, known: np.ndarray, within: float, reviewed: int
) -> tuple[Review, np.ndarray]:
    """What is wrong with the proposals of a photograph, and its points when that is mended."""
    truth = task.points[row]
    shown = np.isfinite(truth).all(1)  # (K,)
    proposed = np.full_like(truth, np.nan)
    absent = found.visible < ABSENT
    proposed[known] = np.where(absent[:, None], np.nan, found.keypoints)
    off = np.linalg.norm(proposed - truth, axis=1) / task.sizes[row]
    right = np.where(shown, off <= within, ~np.isfinite(proposed).all(1))  # NaN is not within
    points = np.where((right & shown)[:, None], proposed, truth)
    review = Review(
        task.name, reviewed, len(truth), int((~right).sum()), int(shown.sum()), int((~right & shown).sum()),
        tuple(_certainties(found).round(4).tolist()), tuple((~right[known]).tolist()),
        tuple(np.nan_to_num(off[shown], nan=9.0).round(4).tolist()),
    )  # fmt: skip
    return review, points


def auc(certainty: np.ndarray, wrong: np.ndarray) -> float:
    """How often something wrong is less certain than something right."""
    ranks = (-certainty).argsort().argsort() + 1.0
    pairs = wrong.sum() * (~wrong).sum()
    return float((ranks[wrong].sum() - wrong.sum() * (wrong.sum() + 1) / 2) / pairs) if pairs else float("nan")


def summary(reviews: Sequence[Review]) -> dict[str, float]:
    """Means over photographs of each task, then over tasks; in per cent, but for clicks and AUC."""
    rows = []
    for task in dict.fromkeys(one.task for one in reviews):
        some = [one for one in reviews if one.task == task]
        total, shown = (sum(getattr(one, key) for one in some) for key in ("landmarks", "shown"))
        certainty, wrong = (np.array([v for one in some for v in getattr(one, key)]) for key in ("certainty", "wrong"))
        least = np.array([min(one.certainty) for one in some])
        bad = np.array([any(one.wrong) for one in some])
        hand, shown_hand = (sum(getattr(one, key) for one in some) for key in ("hand", "shown_hand"))
        off = np.array([value for one in some for value in one.off])
        aucs = auc(certainty, wrong), auc(least, bad)
        rows.append((100 * hand / total, 100 * shown_hand / shown, 100 * (off > 0.05).mean(), hand / len(some), *aucs))
    keys = ("hand", "in the picture", "beyond 0.05", "clicks a photograph", "AUC of points", "AUC of photographs")
    return dict(zip(keys, np.ma.masked_invalid(rows).mean(0).filled(np.nan).tolist(), strict=True))


def plot(found: dict[str, list[Review]], path: Path) -> None:
    """Share of the landmarks in the pictures that need a hand, against the number of photographs reviewed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(
        xlabel="photographs reviewed before", ylabel="landmarks in the picture\nthat need a hand, %"
    )
    for title, reviews in found.items():
        last = max(one.reviewed for one in reviews)
        edges = np.unique(np.geomspace(1, last + 1, 9).round().astype(int))
        middles, shares = [], []
        for low, high in pairwise(edges):
            some = [one for one in reviews if low <= one.reviewed < high]
            if some:
                middles.append(np.mean([one.reviewed for one in some]))
                shares.append(100 * sum(one.shown_hand for one in some) / sum(one.shown for one in some))
        axes.plot(middles, shares, marker="o", label=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="SPair-71k's folder, or a keypoints file")
    parser.add_argument("--within", type=float, nargs="+", default=[0.1])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["all"])
    parser.add_argument("--classes", nargs="+", default=[])
    parser.add_argument("--photographs", type=int, default=60, help="of each class at most")
    parser.add_argument("--boxes", action="store_true", help="the objects' boxes are given")
    parser.add_argument("--weights", default="small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, help="a folder for what the encoder says")
    parser.add_argument("--save", type=Path, help="a .json of all reviews")
    parser.add_argument("--plot", type=Path, help="a picture")
    given = parser.parse_args()
    encoder = Matcher(given.weights).backend
    found: dict[str, list[Review]] = {f"{mode}, {within:g}": [] for mode in given.modes for within in given.within}
    for task in read_tasks(given.source, given.classes, given.photographs, given.seed):
        for title, reviews in found.items():
            mode, within = title.split(", ")
            cache = given.cache and given.cache / task.name
            new = list(annotate(task, encoder, float(within), boxed=given.boxes, cache=cache, **MODES[mode]))
            reviews += new
            figures = "  ".join(f"{key} {value:.2f}" for key, value in summary(new).items())
            print(f"{task.name:12} {title:16} {figures}", flush=True)
            if given.save:
                given.save.write_text(
                    json.dumps({title: [asdict(one) for one in some] for title, some in found.items()})
                )
    for title, reviews in found.items():
        print(f"{'all':12} {title:16} " + "  ".join(f"{key} {value:.2f}" for key, value in summary(reviews).items()))
    if given.plot:
        plot(found, given.plot)


if __name__ == "__main__":
    main()
