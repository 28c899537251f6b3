"""What a dataset is: annotated objects, and which of them form pairs.

Every benchmark is read into these few types, so that training and evaluation never know which one they have:

    Dataset  ->  prepare (crop, resize, once)  ->  PreparedSplit  ->  KeypointPair  ->  one padded, masked batch

Coordinates are x right, y down, in pixels with centres at +0.5, so resizing by s maps x to s * x.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from normmatch.errors import DataError, InputError
from normmatch.model.graph import delaunay

Box = tuple[float, float, float, float]  # xmin, ymin, width, height
Sampling = Literal["intersection", "inclusion", "all"]
PairStyle = Literal["replacement", "distinct"]


@dataclass(frozen=True, eq=False)
class AnnotatedObject:
    """One object in one image file, with its named keypoints."""

    image: Path
    label: str  # the class
    names: tuple[str, ...]  # K distinct names
    keypoints: np.ndarray  # (K, 2) float32, xy in pixels of the upright image; may lie outside the box
    box: Box | None = None  # the crop; None is the whole image
    homography: np.ndarray | None = None  # (3, 3): warps the image first; keypoints and box are in the warped one


@dataclass(frozen=True, eq=False)
class Split:
    """The objects of one split; `pairs` (P, 2) are indices into them, or None where any two of a class may meet."""

    objects: tuple[AnnotatedObject, ...]
    pairs: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A benchmark as read from disk. `skipped` counts, by reason, every annotation that was left out."""

    name: str
    protocol: str
    splits: Mapping[str, Split]
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, eq=False)
class PreparedObject:
    """An object after `prepare`: its keypoints are in pixels of the resized crop."""

    label: str
    names: tuple[str, ...]
    keypoints: np.ndarray  # (K, 2) float32
    source: str  # file name, for messages and failure analysis
    source_size: tuple[int, int]  # width, height of the crop before resizing


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """What training and evaluation read: crops as one array, and their keypoints."""

    images: np.ndarray  # (n, S, S, 3) uint8, memory-mapped when it comes from a cache
    objects: Sequence[PreparedObject]
    pairs: np.ndarray | None = None  # (P, 2), as in Split


@dataclass(frozen=True, eq=False)
class KeypointPair:
    """Two objects and the truth between their keypoints, each side in an order of its own."""

    index0: int
    index1: int
    label: str
    names0: tuple[str, ...]
    names1: tuple[str, ...]
    keypoints0: np.ndarray  # (M, 2) float32
    keypoints1: np.ndarray  # (N, 2) float32
    matches0: np.ndarray  # (M,) int64: index into keypoints1, -1 where the point has no partner


def make_pair(
    split: PreparedSplit, index0: int, index1: int, rng: np.random.Generator, sampling: Sampling = "intersection"
) -> KeypointPair:
    """The pair of two objects, each side shuffled by `rng` on its own."""
    first, second = split.objects[index0], split.objects[index1]
    return pair_points(
        (index0, index1), first.label, first.names, first.keypoints, second.names, second.keypoints, rng, sampling
    )


def pair_points(
    index: tuple[int, int],
    label: str,
    names0: Sequence[str],
    keypoints0: np.ndarray,
    names1: Sequence[str],
    keypoints1: np.ndarray,
    rng: np.random.Generator,
    sampling: Sampling,
) -> KeypointPair:
    """Match two sets of named points by name.

    `intersection` keeps the names that both have; `inclusion` those in image 0 and all in image 1; `all` keeps all.
    """
    shared = set(names0) & set(names1)
    keep0 = [i for i, name in enumerate(names0) if sampling == "all" or name in shared]
    keep1 = [i for i, name in enumerate(names1) if sampling != "intersection" or name in shared]
    order0, order1 = rng.permutation(keep0).astype(np.int64), rng.permutation(keep1).astype(np.int64)
    shuffled0, shuffled1 = tuple(names0[i] for i in order0), tuple(names1[i] for i in order1)
    place = {name: i for i, name in enumerate(shuffled1)}
    matches0 = np.array([place.get(name, -1) for name in shuffled0], dtype=np.int64)
    return KeypointPair(*index, label, shuffled0, shuffled1, keypoints0[order0], keypoints1[order1], matches0)


def collate(
    pairs: Sequence[KeypointPair],
    images0: Tensor | None = None,
    images1: Tensor | None = None,
    points: int | None = None,
) -> dict[str, Tensor]:
    """One padded batch of B pairs, with N points a side for all of them.

    N is `points`, or the largest number of points rounded up to a multiple of 8: few shapes, so torch.compile is calm.

    Returns:
        keypoints0, keypoints1: (B, N, 2) float32, zeros where padded
        mask0, mask1: (B, N) bool, True where there is a point
        adjacency0, adjacency1: (B, N, N) bool, the Delaunay graph of each image
        matches0: (B, N) int64, index into keypoints1; -1 where unmatched or padded
        index0, index1: (B,) int64, the objects in the split
        image0, image1: the images as given, where they are
    """
    largest = max(max(len(pair.keypoints0), len(pair.keypoints1)) for pair in pairs)
    n = -(-largest // 8) * 8 if points is None else points
    if largest > n:
        raise InputError(f"a pair has {largest} keypoints in an image, but the batch was fixed at {n} points.")
    matches0 = np.full((len(pairs), n), -1, np.int64)
    for row, pair in zip(matches0, pairs, strict=True):
        row[: len(pair.matches0)] = pair.matches0
    batch = {
        **_pad([pair.keypoints0 for pair in pairs], n, "0"),
        **_pad([pair.keypoints1 for pair in pairs], n, "1"),
        "matches0": torch.from_numpy(matches0),
        "index0": torch.tensor([pair.index0 for pair in pairs]),
        "index1": torch.tensor([pair.index1 for pair in pairs]),
    }
    if images0 is not None and images1 is not None:
        batch["image0"], batch["image1"] = images0, images1
    return batch


def _pad(points: Sequence[np.ndarray], n: int, side: str) -> dict[str, Tensor]:
    """The keypoints of one side with their mask and graph, filled up to n points."""
    keypoints = np.zeros((len(points), n, 2), np.float32)
    mask = np.zeros((len(points), n), bool)
    adjacency = np.zeros((len(points), n, n), bool)
    for b, xy in enumerate(points):
        k = len(xy)
        keypoints[b, :k], mask[b, :k], adjacency[b, :k, :k] = xy, True, delaunay(xy)
    arrays = {"keypoints": keypoints, "mask": mask, "adjacency": adjacency}
    return {key + side: torch.from_numpy(array) for key, array in arrays.items()}


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


def class_pairs(split: PreparedSplit, min_shared: int) -> dict[str, ClassPairs]:
    """The possible pairs of each class, classes in alphabetical order; a class may have none."""
    labels = np.array([item.label for item in split.objects])
    return {
        str(label): ClassPairs(members, [split.objects[int(i)].names for i in members], min_shared)
        for label in np.unique(labels)
        for members in [np.flatnonzero(labels == label)]
    }


@dataclass(frozen=True, eq=False)
class PairList:
    """The pairs of an evaluation, made once. How pair k is shuffled depends on `seed` and k alone."""

    dataset: str
    objects: str  # hash of the objects that the numbers point to
    seed: int
    pairs: np.ndarray  # (P, 2) int64 indices into the split's objects

    def __len__(self) -> int:
        return len(self.pairs)

    def pair(self, split: PreparedSplit, number: int, sampling: Sampling = "intersection") -> KeypointPair:
        """Pair `number` of the list, shuffled as it always is."""
        index0, index1 = self.pairs[number]
        return make_pair(split, int(index0), int(index1), np.random.default_rng((self.seed, number)), sampling)


def objects_hash(split: PreparedSplit) -> str:
    """A hash of which objects a split has, in order; the size of their images does not enter."""
    rows = [[item.label, item.source, list(item.names)] for item in split.objects]
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


def save_pair_list(pair_list: PairList, path: Path) -> None:
    """Write a pair list as JSON, whole or not at all."""
    content = {
        "dataset": pair_list.dataset,
        "objects": pair_list.objects,
        "seed": pair_list.seed,
        "pairs": pair_list.pairs.tolist(),
    }
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(content), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(f"{path}: the pair list cannot be written ({error.strerror}).") from error


def load_pair_list(path: Path, split: PreparedSplit) -> PairList:
    """Read a pair list and make sure that it was made for this split."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        pairs = np.array(content["pairs"], np.int64).reshape(-1, 2)
        pair_list = PairList(str(content["dataset"]), str(content["objects"]), int(content["seed"]), pairs)
    except OSError as error:
        raise DataError(f"{path}: the pair list cannot be read ({error.strerror}).") from error
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise DataError(f"{path}: not a pair list; expected JSON with dataset, objects, seed and pairs.") from error
    if pair_list.objects != objects_hash(split):
        raise DataError(f"{path}: made for other objects than this split's, namely those of '{pair_list.dataset}'.")
    if pairs.size and not (pairs.min() >= 0 and pairs.max() < len(split.objects)):
        raise DataError(f"{path}: a pair points outside the split, which has {len(split.objects)} objects.")
    return pair_list
