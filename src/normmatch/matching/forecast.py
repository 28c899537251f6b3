"""Will it work on mine, and how many must I do by hand? Told from the photographs that are annotated already.

    found = forecast(photographs, matcher.backend)
    found.curve[5].within        # of landmarks within 1, 2, 5 and 10 % of the object, from five references

Landmarks are found in each annotated photograph from some of the others, in repeated draws, and compared with what was
set by hand. What is not known is which photographs come next: the interval is that of means over photographs drawn
again and again from those at hand, widened as few of them are.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normmatch.errors import InputError
from normmatch.matching.given import Reference
from normmatch.matching.landmarks import Landmarks
from normmatch.matching.sight import Photograph, Sight

WITHIN = (0.01, 0.02, 0.05, 0.1)  # shares of the object
COUNTS = (1, 2, 3, 5, 10, 20)  # references
FEWEST = 3  # annotated photographs from which on something can be said
QUERIES, DRAWS = 8, 2  # photographs of a draw in which landmarks are found, and draws of each count
AGAIN, SURE = 2000, 0.9  # drawings again of photographs; the share of them that an interval holds
HAND = 2  # the number in WITHIN from which on a landmark needs a hand
ENOUGH = 0.02  # of the landmarks: what ten references more must gain to be worth while


@dataclass(frozen=True, eq=False)
class Known:
    """An annotated photograph."""

    image: Any
    keypoints: np.ndarray  # (K, 2) pixels, NaN where a landmark is not shown
    box: Any = None

    @property
    def size(self) -> float:
        """The longer side of the landmarks' box, in pixels."""
        return float((np.nanmax(self.keypoints, 0) - np.nanmin(self.keypoints, 0)).max())


@dataclass(frozen=True, eq=False)
class Point:
    """What is to be expected with so many references."""

    within: np.ndarray  # (4,) shares of landmarks
    low: np.ndarray  # (4,) of an interval that holds nine tenths
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class Forecast:
    """What came of all draws."""

    curve: dict[int, Point]  # by the number of references; the last is for all that there are
    landmarks: np.ndarray  # (K,) share within 5 %, with the most references; NaN where none was looked for
    seconds: float  # a photograph, on this machine

    @property
    def advice(self) -> str:
        """A sentence on what to do."""
        counts = sorted(self.curve)
        last = float(self.curve[counts[-1]].within[HAND])
        gain = self.gain(counts[-1] + 10) - last
        if self.curve[counts[-1]].within[-1] < 0.5:
            return (
                "Less than half of the landmarks come within a tenth of the object: this kind is not suited as it is."
            )
        if gain < ENOUGH:
            return "More references would gain little; correct the proposals that are uncertain instead."
        return f"Ten more references would gain about {100 * gain:.0f} points."

    def gain(self, count: int) -> float:
        """The share within 5 % to be expected with so many references, if the curve goes on as it went."""
        counts = sorted(self.curve)
        shares = [float(self.curve[n].within[HAND]) for n in counts]
        if len(counts) < 2:
            return shares[-1]
        slope = max((shares[-1] - shares[-2]) / np.log(counts[-1] / counts[-2]), 0.0)
        return min(shares[-1] + 0.7 * slope * float(np.log(count / counts[-1])), 1.0)  # it flattens


def forecast(
    photographs: Sequence[Known],
    encoder: Any,
    seed: int = 0,
    progress: Callable[[Iterator[Any], int], Iterator[Any]] = lambda steps, _: steps,
) -> Forecast:
    """Draw references among annotated photographs and look how well the landmarks of the others are found."""
    if len(photographs) < FEWEST:
        raise InputError(f"There are {len(photographs)} annotated photographs; expected {FEWEST} at least.")
    rng = np.random.default_rng(seed)
    most = len(photographs) - 1
    counts = [n for n in COUNTS if n < most] + [most]
    draws = [(n, rng.permutation(len(photographs))) for n in counts for _ in range(DRAWS)]
    if most < 2 * QUERIES:  # each photograph once, from all others
        draws = [draw for draw in draws if draw[0] != most]
        draws += [(most, np.roll(np.arange(len(photographs)), -k - 1)) for k in range(len(photographs))]
    sight = Sight(encoder)  # what it has seen it remembers
    start, asked = time.perf_counter(), 0
    off: dict[int, list[tuple[int, np.ndarray]]] = {n: [] for n in counts}
    for count, order in progress(iter(draws), len(draws)):
        queries = order[count : count + QUERIES]
        off[count] += zip(queries.tolist(), errors(photographs, order[:count], queries, sight), strict=True)
        asked += len(queries)
    curve = {n: _point(np.array([k for k, _ in some]), np.stack([e for _, e in some]), rng) for n, some in off.items()}
    last = np.stack([e for _, e in off[most]])
    known = np.isfinite(last)
    good = np.where(known, last <= WITHIN[HAND], False).sum(0) / np.maximum(known.sum(0), 1)
    hard = np.where(known.any(0), good, np.nan)
    return Forecast(curve, hard, (time.perf_counter() - start) / asked)


def errors(
    photographs: Sequence[Known], references: Sequence[int], queries: Sequence[int], sight: Sight
) -> list[np.ndarray]:
    """Distances (K,) of what is found from what was set, as shares of the object, of each query."""
    chosen = [photographs[k] for k in references]
    shown = np.isfinite(np.stack([one.keypoints for one in chosen])).all(2).any(0)  # (K,) in some reference
    asked = [photographs[k] for k in queries]
    fitted = Landmarks([Reference(one.image, one.keypoints[shown], one.box) for one in chosen], sight)
    off = []
    for number, one in zip(queries, asked, strict=True):
        located = fitted.locate(Photograph.of(one.image, f"photograph {number}"), one.box)
        distances = np.full(len(shown), np.nan)
        distances[shown] = np.linalg.norm(located.keypoints - one.keypoints[shown], axis=1) / one.size
        distances[~shown & np.isfinite(one.keypoints).all(1)] = np.inf  # nobody has shown what it looks like
        off.append(distances)
    return off


def _point(photographs: np.ndarray, off: np.ndarray, rng: np.random.Generator) -> Point:
    """Shares of landmarks within each of WITHIN, of errors (n, K) in these photographs (n,), with an interval."""
    ids = np.unique(photographs)
    known = ~np.isnan(off)
    hits = np.stack([(off <= share) & known for share in WITHIN], -1).sum(1)  # (n, 4)
    total = known.sum(1)
    of = np.stack([hits[photographs == one].sum(0) for one in ids]).astype(float)  # (P, 4)
    count = np.array([total[photographs == one].sum() for one in ids], float)
    within = of.sum(0) / max(count.sum(), 1)
    again = rng.integers(0, len(ids), (AGAIN, len(ids)))
    drawn = of[again].sum(1) / np.maximum(count[again].sum(1), 1)[:, None]  # (AGAIN, 4)
    wider = np.sqrt((len(ids) + 1) / max(len(ids) - 1, 1))
    low, high = (within + wider * (np.quantile(drawn, q, axis=0) - within) for q in ((1 - SURE) / 2, (1 + SURE) / 2))
    return Point(within, np.clip(low, 0, 1), np.clip(high, 0, 1))
