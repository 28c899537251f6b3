"""What a dataset is: annotated objects, and which of them form pairs.

Every benchmark is read into these few types, so that training and evaluation never know which one they have:

    Dataset  ->  prepare (crop, resize, once)  ->  PreparedSplit  ->  KeypointPair  ->  one padded, masked batch

Coordinates are x right, y down, in pixels with centres at +0.5, so resizing by s maps x to s * x.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from normmatch.data.crops import Box
from normmatch.data.image_file import ImageFile
from normmatch.errors import InputError
from normmatch.model.delaunay import pad_points

Images = np.ndarray | ImageFile
Sampling = Literal["intersection", "inclusion", "all"]


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

    images: Images  # (n, S, S, 3) uint8, a memory-mapped file when they come from a cache
    objects: Sequence[PreparedObject]
    pairs: np.ndarray | None = None  # (P, 2), as in Split


def join(first: PreparedSplit, second: PreparedSplit) -> PreparedSplit:
    """Two splits of one cache, or of arrays, as one; where they come with pairs, the pairs of both."""
    if isinstance(first.images, ImageFile) and isinstance(second.images, ImageFile):
        images: Images = ImageFile(first.images.path, np.concatenate([first.images.rows, second.images.rows]))
    else:
        images = np.concatenate([first.images[:], second.images[:]])
    pairs = None
    if first.pairs is not None and second.pairs is not None:
        pairs = np.concatenate([first.pairs, second.pairs + len(first.objects)])
    return PreparedSplit(images, (*first.objects, *second.objects), pairs)


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
    points: int | None = None,
    numbers: Mapping[tuple[str, str], int] | None = None,
) -> dict[str, Tensor]:
    """One padded batch of B pairs, without their images, with N points a side for all of them.

    N is `points`, or the largest number of points rounded up to a multiple of 8: few shapes, so torch.compile is calm.
    `numbers` gives each (class, name) a number.

    Returns:
        keypoints0, keypoints1: (B, N, 2) float32, zeros where padded
        mask0, mask1: (B, N) bool, True where there is a point
        adjacency0, adjacency1: (B, N, N) bool, the Delaunay graph of each image
        matches0: (B, N) int64, index into keypoints1; -1 where unmatched or padded
        index0, index1: (B,) int64, the objects in the split
        names0, names1: (B, N) int64, the points' numbers in `numbers`, -1 where padded; only if `numbers` is given
    """
    largest = max(max(len(pair.keypoints0), len(pair.keypoints1)) for pair in pairs)
    n = -(-largest // 8) * 8 if points is None else points
    if largest > n:
        raise InputError(f"a pair has {largest} keypoints in an image, but the batch was fixed at {n} points.")
    batch = {
        **_pad([pair.keypoints0 for pair in pairs], n, "0"),
        **_pad([pair.keypoints1 for pair in pairs], n, "1"),
        "matches0": _fill([pair.matches0 for pair in pairs], n),
        "index0": torch.tensor([pair.index0 for pair in pairs]),
        "index1": torch.tensor([pair.index1 for pair in pairs]),
    }
    if numbers is not None:
        batch["names0"] = _fill([[numbers[pair.label, name] for name in pair.names0] for pair in pairs], n)
        batch["names1"] = _fill([[numbers[pair.label, name] for name in pair.names1] for pair in pairs], n)
    return batch


def _fill(rows: Sequence[Sequence[int] | np.ndarray], n: int) -> Tensor:
    """Rows of whole numbers (B, n), filled up with -1."""
    filled = np.full((len(rows), n), -1, np.int64)
    for place, row in zip(filled, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(filled)


def _pad(points: Sequence[np.ndarray], n: int, side: str) -> dict[str, Tensor]:
    """The keypoints of one side with their mask and graph, filled up to n points."""
    return {key + side: torch.from_numpy(array) for key, array in pad_points(points, n).items()}
