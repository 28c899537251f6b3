from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from normmatch.annotations import Annotation
from normmatch.datasets.batches import collate
from normmatch.datasets.image_file import ImageFile
from normmatch.datasets.types import PreparedSplit, join, make_pair
from normmatch.errors import InputError
from normmatch.geometry import delaunay


def prepared(label: str, names: str, seed: int = 0) -> Annotation:
    """An object whose keypoints are named by letters; each point is recognisable by its coordinates."""
    keypoints = np.random.default_rng((seed, len(names))).uniform(0, 64, (len(names), 2)).astype(np.float32)
    return Annotation(f"{label}{seed}.jpg", tuple(names), keypoints, label=label)


def split_of(*objects: Annotation) -> PreparedSplit:
    return PreparedSplit(np.zeros((len(objects), 64, 64, 3), np.uint8), objects)


@pytest.mark.parametrize(
    ("sampling", "names0", "names1"),
    [("intersection", "cd", "cd"), ("inclusion", "cd", "cdef"), ("all", "abcd", "cdef")],
)
def test_make_pair_keeps_and_matches_names(sampling: str, names0: str, names1: str) -> None:
    split = split_of(prepared("cat", "abcd", 1), prepared("cat", "fdec", 2))
    orders = set()
    for seed in range(20):
        pair = make_pair(split, 0, 1, np.random.default_rng(seed), sampling)
        assert sorted(pair.names0) == list(names0)
        assert sorted(pair.names1) == list(names1)
        for side, item in ((0, split.objects[0]), (1, split.objects[1])):
            names, keypoints = (pair.names0, pair.keypoints0) if side == 0 else (pair.names1, pair.keypoints1)
            np.testing.assert_array_equal(keypoints, item.keypoints[[item.names.index(name) for name in names]])
        for name, match in zip(pair.names0, pair.gt_matches0, strict=True):
            assert (match == -1) if name not in pair.names1 else (pair.names1[match] == name)
        orders.add((pair.names0, pair.names1))
    assert len({order[0] for order in orders}) > 1
    assert len({order[1] for order in orders}) > 1
    assert any(a != b for a, b in orders)  # the sides are shuffled independently


def test_make_pair_without_shared_names_is_empty() -> None:
    pair = make_pair(split_of(prepared("cat", "ab"), prepared("cat", "cd")), 0, 1, np.random.default_rng(0))
    assert pair.keypoints0.shape == (0, 2)
    assert pair.gt_matches0.shape == (0,)
    assert collate([pair])["mask0"].sum() == 0


def test_collate_pads_and_masks() -> None:
    split = split_of(prepared("cat", "abcdefghi", 1), prepared("cat", "cdefx", 2), prepared("cat", "cdab", 3))
    rng = np.random.default_rng(0)
    pairs = [make_pair(split, 0, 1, rng, "all"), make_pair(split, 2, 0, rng, "inclusion")]
    batch = collate(pairs)
    n = 16  # nine points, up to a multiple of 8, on both sides
    for side in ("0", "1"):
        assert batch["keypoints" + side].shape == (2, n, 2)
        assert batch["keypoints" + side].dtype == torch.float32
        assert batch["adjacency" + side].shape == (2, n, n)
        for b, pair in enumerate(pairs):
            xy = getattr(pair, "keypoints" + side)
            k = len(xy)
            assert batch["mask" + side][b].tolist() == [True] * k + [False] * (n - k)
            np.testing.assert_array_equal(batch["keypoints" + side][b, :k], xy)
            assert not batch["keypoints" + side][b, k:].any()
            np.testing.assert_array_equal(batch["adjacency" + side][b, :k, :k], delaunay(xy))
            assert not batch["adjacency" + side][b, k:].any()
            assert not batch["adjacency" + side][b, :, k:].any()
    assert batch["gt_matches0"].dtype == torch.int64
    for b, pair in enumerate(pairs):
        np.testing.assert_array_equal(batch["gt_matches0"][b, : len(pair.gt_matches0)], pair.gt_matches0)
        assert (batch["gt_matches0"][b, len(pair.gt_matches0) :] == -1).all()
    assert batch["index0"].tolist() == [0, 2]
    assert batch["index1"].tolist() == [1, 0]


def test_collate_with_a_fixed_number_of_points() -> None:
    split = split_of(prepared("cat", "abc", 1), prepared("cat", "abcd", 2))
    pair = make_pair(split, 0, 1, np.random.default_rng(0), "all")
    assert collate([pair], points=5)["mask1"].shape == (1, 5)
    with pytest.raises(InputError, match=r"4 keypoints.*3 points"):
        collate([pair], points=3)


@pytest.mark.parametrize("from_file", [True, False])
def test_joined_splits_have_the_objects_images_and_pairs_of_both(tmp_path: Path, from_file: bool) -> None:
    pixels = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1).repeat(3, axis=3)
    np.save(tmp_path / "images.npy", pixels)
    objects = [Annotation("", ("a",), np.zeros((1, 2), np.float32), label=str(i)) for i in range(5)]
    rows = np.array([4, 1]), np.array([0, 2, 3])
    images = [ImageFile(tmp_path / "images.npy", row) if from_file else pixels[row] for row in rows]
    pairs = np.array([[0, 1]]), np.array([[0, 2], [1, 0]])
    first, second = (
        PreparedSplit(image, [objects[i] for i in row], given)
        for image, row, given in zip(images, rows, pairs, strict=True)
    )
    both = join(first, second)
    assert [item.label for item in both.objects] == ["4", "1", "0", "2", "3"]
    assert both.images[np.arange(5)][:, 0, 0, 0].tolist() == [4, 1, 0, 2, 3]
    assert both.pairs is not None
    assert both.pairs.tolist() == [[0, 1], [2, 4], [3, 2]]
    assert join(replace(first, pairs=None), replace(second, pairs=None)).pairs is None
    np.testing.assert_array_equal(both.crop_sizes(), [[1, 1]] * 5)  # they were not resized
    some = join(replace(first, sizes=np.array([[30, 20], [50, 40]])), second)
    np.testing.assert_array_equal(some.crop_sizes(), [[30, 20], [50, 40], *[[1, 1]] * 3])
