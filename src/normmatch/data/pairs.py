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

Box = tuple[float, float, float, float]  # xmin, ymin, width, height
Sampling = Literal["intersection", "inclusion", "all"]


@dataclass(frozen=True, eq=False)
class AnnotatedObject:
    """One object in one image file, with its named keypoints."""

    image: Path
    label: str  # the class
    names: tuple[str, ...]  # K distinct names
    keypoints: np.ndarray  # (K, 2) float32, xy in pixels of the upright image; may lie outside the box
    box: Box | None = None  # the crop; None is the whole image
    homography: np.ndarray | None = None  # (3, 3): the image is warped by it first, and keypoints, box are in the warped


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
