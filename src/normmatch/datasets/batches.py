"""Pairs as tensors: one padded, masked batch of keypoints, and the pixels of its images."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from normmatch.datasets.types import KeypointPair, PreparedSplit
from normmatch.errors import InputError
from normmatch.geometry import pad_points


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
        gt_matches0: (B, N) int64, index into keypoints1; -1 where unmatched or padded
        index0, index1: (B,) int64, the objects in the split
        name_ids0, name_ids1: (B, N) int64, numbers of the names, -1 where padded; only if `numbers` is given
    """
    largest = max(max(len(pair.keypoints0), len(pair.keypoints1)) for pair in pairs)
    n = -(-largest // 8) * 8 if points is None else points
    if largest > n:
        raise InputError(f"a pair has {largest} keypoints in an image, but the batch was fixed at {n} points.")
    batch = {
        **_pad([pair.keypoints0 for pair in pairs], n, "0"),
        **_pad([pair.keypoints1 for pair in pairs], n, "1"),
        "gt_matches0": _fill([pair.gt_matches0 for pair in pairs], n),
        "index0": torch.tensor([pair.index0 for pair in pairs]),
        "index1": torch.tensor([pair.index1 for pair in pairs]),
    }
    if numbers is not None:
        batch["name_ids0"] = _fill([[numbers[pair.label, name] for name in pair.names0] for pair in pairs], n)
        batch["name_ids1"] = _fill([[numbers[pair.label, name] for name in pair.names1] for pair in pairs], n)
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


def read_images(split: PreparedSplit, index: np.ndarray) -> Tensor:
    """The images (B, 3, S, S) uint8 of objects index (B,), read from the cache."""
    return torch.from_numpy(np.asarray(split.images[index])).permute(0, 3, 1, 2)
