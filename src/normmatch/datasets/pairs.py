"""Which objects meet: all possible pairs of a class, and the fixed list of pairs of an evaluation."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from normmatch.datasets.types import KeypointPair, PreparedSplit, Sampling, Split, make_pair
from normmatch.errors import DataError

PairStyle = Literal["replacement", "distinct"]


class ClassPairs:
    """Every pair of two objects of one class that share at least `min_shared` names, without listing them.

    Pairs are numbered 0..len-1 through their first object, so one random integer draws one pair, each as likely.
    """

    def __init__(self, members: np.ndarray, names: Sequence[Sequence[str]], min_shared: int) -> None:
        self.members = members  # (n,) indices into the split's objects
        self.min_shared = min_shared
        column = {name: i for i, name in enumerate(sorted({name for row in names for name in row}))}
        self.has = np.zeros((len(members), len(column)), np.float32)  # (n, V)
        for i, row in enumerate(names):
            self.has[i, [column[name] for name in row]] = 1
        self.ends = np.cumsum([len(self._partners(i)) for i in range(len(members))])  # (n,)

    def _partners(self, i: int) -> np.ndarray:
        """Members after i that share enough names with it."""
        return i + 1 + np.flatnonzero(self.has[i + 1 :] @ self.has[i] >= self.min_shared)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, number: int) -> tuple[int, int]:
        i = int(np.searchsorted(self.ends, number, side="right"))
        j = self._partners(i)[number - (self.ends[i - 1] if i else 0)]
        return int(self.members[i]), int(self.members[j])


def class_pairs(split: Split | PreparedSplit, min_shared: int) -> dict[str, ClassPairs]:
    """The possible pairs of each class, classes in alphabetical order; a class may have none."""
    labels = np.array([item.label for item in split.objects])
    return {
        str(label): ClassPairs(members, [split.objects[int(i)].names for i in members], min_shared)
        for label in np.unique(labels)
        for members in [np.flatnonzero(labels == label)]
    }


@dataclass(frozen=True, eq=False)
class PairList:
    """The pairs of an evaluation, made once. How pair k is shuffled and jittered depends on `seed` and k alone."""

    dataset: str
    objects: str  # hash of the objects that the numbers point to
    seed: int
    pairs: np.ndarray  # (P, 2) int64 indices into the split's objects
    jitter: float = 0.0  # standard deviation of the noise on the keypoints' coordinates, in pixels of the crop

    def __len__(self) -> int:
        return len(self.pairs)

    def pair(self, split: PreparedSplit, number: int, sampling: Sampling = "intersection") -> KeypointPair:
        """Pair `number` of the list, shuffled as it always is."""
        index0, index1 = self.pairs[number]
        rng = np.random.default_rng((self.seed, number))
        pair = make_pair(split, int(index0), int(index1), rng, sampling)
        if not self.jitter:
            return pair
        # the same noise, scaled, for any jitter: so that levels differ by the level and not by the draw
        moved = [
            points + np.float32(self.jitter) * rng.standard_normal(points.shape, np.float32)
            for points in (pair.keypoints0, pair.keypoints1)
        ]
        return replace(pair, keypoints0=moved[0], keypoints1=moved[1])


def objects_hash(split: PreparedSplit) -> str:
    """A hash of which objects a split has, in order; the size of their images does not enter."""
    rows = [[item.label, item.image, list(item.names)] for item in split.objects]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def sample_pair_list(
    split: PreparedSplit,
    dataset: str,
    per_class: int = 1000,
    seed: int = 0,
    min_shared: int = 2,
    style: PairStyle = "replacement",
    strict: bool = True,
) -> PairList:
    """Draw the evaluation pairs of a split; a split that comes with its own pairs keeps exactly those.

    `replacement` draws `per_class` pairs of each class, repeats allowed (protocols nmt and bbgm); `distinct` draws as
    many different ones, or all there are (thinkmatch). A class without a single pair is an error when `strict`,
    because leaving it out would change the mean over classes; otherwise it is left out.
    """
    if split.pairs is not None:
        return PairList(dataset, objects_hash(split), seed, np.asarray(split.pairs, np.int64).reshape(-1, 2))
    possible = class_pairs(split, min_shared)
    empty = [label for label, pairs in possible.items() if len(pairs) == 0]
    if (empty and strict) or len(empty) == len(possible):
        raise DataError(
            f"{dataset}: no two objects share {min_shared} keypoint names in class {', '.join(empty) or '(no class)'}."
        )
    drawn: list[tuple[int, int]] = []
    rng = np.random.default_rng(seed)
    for pairs in possible.values():
        if style == "distinct":
            chosen = rng.choice(len(pairs), min(per_class, len(pairs)), replace=False)
        else:
            chosen = rng.integers(len(pairs), size=per_class) if len(pairs) else np.empty(0, np.int64)
        turned = rng.random(len(chosen)) < 0.5  # which of the two is image 0
        drawn += [pairs[k][::-1] if turn else pairs[k] for k, turn in zip(chosen, turned, strict=True)]
    return PairList(dataset, objects_hash(split), seed, np.array(drawn, np.int64).reshape(-1, 2))
