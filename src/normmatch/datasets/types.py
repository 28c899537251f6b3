"""What a dataset is: annotations, and which of them form pairs.

Every benchmark is read into these few types, so that training and evaluation never know which one they have:

    Dataset  ->  prepare (crop, resize, once)  ->  PreparedSplit  ->  KeypointPair  ->  one padded, masked batch

Coordinates are x right, y down, in pixels with centres at +0.5, so resizing by s maps x to s * x.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from normmatch.annotations import Annotation
from normmatch.datasets.image_file import ImageFile

Images = np.ndarray | ImageFile
Sampling = Literal["intersection", "inclusion", "all"]


@dataclass(frozen=True, eq=False)
class Split:
    """The objects of one split; `pairs` (P, 2) are indices into them, or None where any two of a class may meet."""

    objects: tuple[Annotation, ...]
    pairs: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A benchmark as read from disk. `skipped` counts, by reason, every annotation that was left out."""

    name: str
    protocol: str
    splits: Mapping[str, Split]
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """What training and evaluation read: crops as one array, and their keypoints in pixels of the crops, float32."""

    images: Images  # (n, S, S, 3) uint8, a memory-mapped file when they come from a cache
    objects: Sequence[Annotation]
    pairs: np.ndarray | None = None  # (P, 2), as in Split
    sizes: np.ndarray | None = (
        None  # (n, 2) widths and heights of the crops before they were resized; None: as they are
    )

    def crop_sizes(self) -> np.ndarray:
        """Widths and heights (n, 2) of the crops before they were resized."""
        if self.sizes is not None:
            return self.sizes
        height, width = self.images.shape[1:3]
        return np.tile((width, height), (len(self.objects), 1))  # (n, 2)


def join(first: PreparedSplit, second: PreparedSplit) -> PreparedSplit:
    """Two splits of one cache, or of arrays, as one; where they come with pairs, the pairs of both."""
    if isinstance(first.images, ImageFile) and isinstance(second.images, ImageFile):
        images: Images = ImageFile(first.images.path, np.concatenate([first.images.rows, second.images.rows]))
    else:
        images = np.concatenate([first.images[:], second.images[:]])
    pairs = None
    if first.pairs is not None and second.pairs is not None:
        pairs = np.concatenate([first.pairs, second.pairs + len(first.objects)])
    sizes = np.concatenate([first.crop_sizes(), second.crop_sizes()])  # (n, 2)
    return PreparedSplit(images, (*first.objects, *second.objects), pairs, sizes)


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
    gt_matches0: np.ndarray  # (M,) int64: index into keypoints1, -1 where the point has no partner


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
    gt_matches0 = np.array([place.get(name, -1) for name in shuffled0], dtype=np.int64)
    return KeypointPair(*index, label, shuffled0, shuffled1, keypoints0[order0], keypoints1[order1], gt_matches0)
