"""How well landmarks are found from 1, 5, 20 references on a kind of thing that no training has shown.

    python -m normmatch.experiments.references TriloMorph/landmarks.json --references 1,5,20
    python -m normmatch.experiments.references LondonFaces/landmarks.json --every 6 --references 1,5 --queries 25

Seeded draws of references; of the rest so many are queries. Within 0.01, 0.02, 0.05 and 0.1 of the longer side of the
landmarks' box; the crop is that box and 15 % on each side, or with --whole the photograph, where nothing is known.
"""

import argparse
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normmatch import annotations
from normmatch.matching.backends.torch import TorchBackend
from normmatch.matching.given import MARGIN, Reference
from normmatch.matching.landmarks import Located
from normmatch.matching.locate import locate_many

WITHIN = (0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True, eq=False)
class Photograph:
    """An image with its landmarks (K, 2), NaN where one is missing."""

    file: str
    points: np.ndarray

    @property
    def size(self) -> float:
        return float((np.nanmax(self.points, 0) - np.nanmin(self.points, 0)).max())

    def box(self) -> tuple[float, ...]:
        low, high = np.nanmin(self.points, 0), np.nanmax(self.points, 0)
        return (*(low - MARGIN * (high - low)), *((1 + 2 * MARGIN) * (high - low)))


def read(file: Path, every: int = 1) -> list[Photograph]:
    """The photographs of a keypoints file, with every so manieth of its landmarks."""
    sets = annotations.read(file)
    names = sorted({name for one in sets for name in one.names}, key=lambda name: (len(name), name))[::every]
    photographs = []
    for one in sets:
        known = dict(zip(one.names, one.keypoints, strict=True))
        points = np.array([known.get(name, (np.nan, np.nan)) for name in names])
        places = [folder / one.image for folder in (file.parent, file.parent / "images")]
        photographs.append(Photograph(str(next(place for place in places if place.exists())), points))
    return photographs


class Remembered:
    """An encoder that keeps maps of single images in a folder, for runs that see the same crops again."""

    def __init__(self, encoder: TorchBackend, folder: Path | None) -> None:
        self.encoder, self.folder = encoder, folder

    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """`TorchBackend.maps`."""
        if self.folder is None or len(images) > 1:
            return self.encoder.maps(images, blocks)
        key = hashlib.blake2b(images.tobytes() + str(tuple(blocks)).encode()).hexdigest()[:24]
        file = self.folder / f"{key}.npy"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            np.save(file, self.encoder.maps(images, blocks).astype(np.float16))
        return np.load(file).astype(np.float32)


def errors(found: Sequence[Located], queries: Sequence[Photograph]) -> np.ndarray:
    """(Q, K) distances as shares of the longer side of the landmarks' box; NaN where a landmark is missing."""
    pairs = zip(found, queries, strict=True)
    return np.stack([np.linalg.norm(one.keypoints - query.points, axis=1) / query.size for one, query in pairs])


@dataclass(frozen=True, eq=False)
class Draw:
    """What came of one draw of references."""

    within: list[float]  # per cent of the landmarks within each of WITHIN
    off: np.ndarray  # (n,) errors of all landmarks that are there
    scores: np.ndarray  # (n,)
    radius: np.ndarray  # (n,) shares of the landmarks' box
    seconds: float  # a photograph, of all cores' time


def one_draw(
    photographs: Sequence[Photograph], encoder: Remembered, count: int, seed: int, given: argparse.Namespace
) -> Draw:
    """Some seeded references, and some others in which their landmarks are found."""
    order = np.random.default_rng(seed).permutation(len(photographs))[: count + given.queries]
    chosen, asked = ([photographs[i] for i in part] for part in np.split(order, [count]))
    boxes = [None if given.whole else one.box() for one in chosen + asked]
    references = [Reference(one.file, one.points, box) for one, box in zip(chosen, boxes, strict=False)]
    files = [one.file for one in asked]
    start = time.process_time()
    options = {"looks": given.looks, "learn": not given.alone, "turned": given.turned}
    found = list(locate_many(references, files, boxes[count:], encoder=encoder, **options))
    seconds = (time.process_time() - start) / len(asked)
    off = errors(found, asked)
    seen = np.isfinite(off)
    scores = np.stack([one.scores for one in found])
    radius = np.stack([one.spread / other.size for one, other in zip(found, asked, strict=True)])
    within = [100 * float((off[seen] <= share).mean()) for share in WITHIN]
    return Draw(within, off[seen], scores[seen], radius[seen], seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--references", default="1,5,20")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--every", type=int, default=1, help="of the landmarks")
    parser.add_argument("--looks", type=int, default=2, choices=(1, 2))
    parser.add_argument("--whole", action="store_true", help="whole photographs, no boxes")
    parser.add_argument("--turned", action="store_true", help="take it that they lie any way round")
    parser.add_argument("--alone", action="store_true", help="unlabelled photographs do not teach")
    parser.add_argument("--weights", default="small")
    parser.add_argument("--cache", type=Path, help="a folder for what the encoder says")
    parser.add_argument("--save", type=Path, help="a .npz for errors and scores")
    given = parser.parse_args()
    photographs = read(given.file, given.every)
    encoder = Remembered(TorchBackend(given.weights, "auto", "auto", False), given.cache)
    for count in map(int, given.references.split(",")):
        draws = [one_draw(photographs, encoder, count, seed, given) for seed in range(given.draws)]
        rows = np.array([draw.within for draw in draws])
        pairs = zip(rows.mean(0), rows.std(0), strict=True)
        off, scores, radius = (np.concatenate([getattr(d, key) for d in draws]) for key in ("off", "scores", "radius"))
        seconds = np.mean([draw.seconds for draw in draws])
        text = "  ".join(f"{mean:5.1f} ±{spread:4.1f}" for mean, spread in pairs)
        print(f"{count:3d} references  {text}  {figures(off, scores, radius)}  {seconds:.2f} s", flush=True)
        if given.save:
            np.savez(given.save.with_stem(f"{given.save.stem}-{count}"), off=off, scores=scores, radius=radius)


def figures(off: np.ndarray, scores: np.ndarray, radius: np.ndarray) -> str:
    """AUC of right within 0.05, ECE of the score for within 0.1, and the share within the radius of 68 %."""
    right = off <= 0.05
    ranks = scores.argsort().argsort() + 1
    pairs = right.sum() * (~right).sum()
    auc = (ranks[right].sum() - right.sum() * (right.sum() + 1) / 2) / pairs if pairs else np.nan
    bins = np.minimum((scores * 10).astype(int), 9)
    gaps = [abs((off[bins == b] <= 0.1).mean() - scores[bins == b].mean()) * (bins == b).mean() for b in set(bins)]
    return f"AUC {auc:.2f}  ECE {sum(gaps):.2f}  in radius {(off <= radius).mean():.2f}"


if __name__ == "__main__":
    main()
