import json
from pathlib import Path

import numpy as np
import pytest
import torch

from normmatch.data.pairs import (
    PreparedObject,
    PreparedSplit,
    class_pairs,
    collate,
    load_pair_list,
    make_pair,
    sample_pair_list,
    save_pair_list,
)
from normmatch.errors import DataError, InputError
from normmatch.model.graph import delaunay


def prepared(label: str, names: str, seed: int = 0) -> PreparedObject:
    """An object whose keypoints are named by letters; each point is recognisable by its coordinates."""
    keypoints = np.random.default_rng((seed, len(names))).uniform(0, 64, (len(names), 2)).astype(np.float32)
    return PreparedObject(label, tuple(names), keypoints, f"{label}{seed}.jpg", (64, 64))


def split_of(*objects: PreparedObject, pairs: np.ndarray | None = None) -> PreparedSplit:
    return PreparedSplit(np.zeros((len(objects), 64, 64, 3), np.uint8), objects, pairs)


@pytest.fixture
def split() -> PreparedSplit:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefgh"))
    objects = []
    for seed in range(60):
        names = "".join(rng.permutation(letters)[: rng.integers(2, 9)])
        objects.append(prepared(("cat", "dog", "owl")[seed % 3], names, seed))
    return split_of(*objects)


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
        for name, match in zip(pair.names0, pair.matches0, strict=True):
            assert (match == -1) if name not in pair.names1 else (pair.names1[match] == name)
        orders.add((pair.names0, pair.names1))
    assert len({order[0] for order in orders}) > 1
    assert len({order[1] for order in orders}) > 1
    assert any(a != b for a, b in orders)  # the sides are shuffled independently


def test_make_pair_without_shared_names_is_empty() -> None:
    pair = make_pair(split_of(prepared("cat", "ab"), prepared("cat", "cd")), 0, 1, np.random.default_rng(0))
    assert pair.keypoints0.shape == (0, 2)
    assert pair.matches0.shape == (0,)
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
    assert batch["matches0"].dtype == torch.int64
    for b, pair in enumerate(pairs):
        np.testing.assert_array_equal(batch["matches0"][b, : len(pair.matches0)], pair.matches0)
        assert (batch["matches0"][b, len(pair.matches0) :] == -1).all()
    assert batch["index0"].tolist() == [0, 2]
    assert batch["index1"].tolist() == [1, 0]


def test_collate_with_a_fixed_number_of_points_and_images() -> None:
    split = split_of(prepared("cat", "abc", 1), prepared("cat", "abcd", 2))
    pair = make_pair(split, 0, 1, np.random.default_rng(0), "all")
    image = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    batch = collate([pair], image, image + 1, points=5)
    assert batch["mask1"].shape == (1, 5)
    assert batch["image1"].float().mean() == 1
    with pytest.raises(InputError, match=r"4 keypoints.*3 points"):
        collate([pair], points=3)


@pytest.mark.parametrize("min_shared", [1, 2, 4])
def test_class_pairs_are_exactly_the_possible_ones(split: PreparedSplit, min_shared: int) -> None:
    for label, pairs in class_pairs(split, min_shared).items():
        members = [i for i, item in enumerate(split.objects) if item.label == label]
        expected = [
            (i, j)
            for i in members
            for j in members
            if i < j and len(set(split.objects[i].names) & set(split.objects[j].names)) >= min_shared
        ]
        assert [pairs[k] for k in range(len(pairs))] == expected


def test_pair_list_with_replacement(split: PreparedSplit) -> None:
    pair_list = sample_pair_list(split, "toy", per_class=300, seed=3)
    again = sample_pair_list(split, "toy", per_class=300, seed=3)
    np.testing.assert_array_equal(pair_list.pairs, again.pairs)
    assert (pair_list.pairs != sample_pair_list(split, "toy", per_class=300, seed=4).pairs).any()
    labels = [(split.objects[i].label, split.objects[j].label) for i, j in pair_list.pairs]
    assert labels == [(label, label) for label in ("cat", "dog", "owl") for _ in range(300)]
    assert (pair_list.pairs[:, 0] != pair_list.pairs[:, 1]).all()
    assert 0.4 < (pair_list.pairs[:, 0] < pair_list.pairs[:, 1]).mean() < 0.6  # either may be image 0
    assert min(len(pair_list.pair(split, k).names0) for k in range(len(pair_list))) == 2


def test_distinct_pair_list_has_no_repeats(split: PreparedSplit) -> None:
    possible = class_pairs(split, 3)
    few = sample_pair_list(split, "toy", per_class=20, min_shared=3, style="distinct")
    assert len({tuple(sorted(pair)) for pair in few.pairs.tolist()}) == len(few) == 60
    everything = sample_pair_list(split, "toy", per_class=10**6, min_shared=3, style="distinct")
    assert len(everything) == sum(map(len, possible.values()))
    assert len({tuple(sorted(pair)) for pair in everything.pairs.tolist()}) == len(everything)


def test_shuffle_depends_on_seed_and_number_alone(split: PreparedSplit) -> None:
    pair_list = sample_pair_list(split, "toy", per_class=5, seed=1)
    forward = [pair_list.pair(split, k).names0 for k in range(15)]
    backward = [pair_list.pair(split, k).names0 for k in reversed(range(15))][::-1]
    assert forward == backward
    other = sample_pair_list(split, "toy", per_class=5, seed=2)
    assert forward != [other.pair(split, k).names0 for k in range(15)]


def test_a_repeated_pair_is_shuffled_anew() -> None:
    pairs = np.tile([0, 1], (20, 1))
    split = split_of(prepared("cat", "abcdef", 1), prepared("cat", "abcdef", 2), pairs=pairs)
    pair_list = sample_pair_list(split, "toy")
    assert len({pair_list.pair(split, k).names0 for k in range(20)}) > 10


def test_own_pairs_of_a_split_are_the_list() -> None:
    pairs = np.array([[2, 0], [1, 2]])
    split = split_of(prepared("cat", "ab", 1), prepared("cat", "ab", 2), prepared("cat", "ab", 3), pairs=pairs)
    np.testing.assert_array_equal(sample_pair_list(split, "spair").pairs, pairs)


def test_classes_without_a_pair_are_named() -> None:
    split = split_of(
        prepared("cat", "abc", 1), prepared("cat", "bcd", 2), prepared("elk", "abc", 3), prepared("owl", "a", 4)
    )
    with pytest.raises(DataError, match=r"elk, owl"):
        sample_pair_list(split, "toy", per_class=3)
    for style in ("replacement", "distinct"):
        pair_list = sample_pair_list(split, "toy", per_class=3, strict=False, style=style)
        assert set(pair_list.pairs.ravel().tolist()) == {0, 1}
    with pytest.raises(DataError, match=r"cat, elk, owl"):
        sample_pair_list(split, "toy", min_shared=3, strict=False)
    with pytest.raises(DataError, match=r"no class"):
        sample_pair_list(split_of(), "toy")


def test_pair_list_round_trip(split: PreparedSplit, tmp_path: Path) -> None:
    pair_list = sample_pair_list(split, "toy", per_class=4, seed=9)
    save_pair_list(pair_list, tmp_path / "pairs.json")
    loaded = load_pair_list(tmp_path / "pairs.json", split)
    np.testing.assert_array_equal(loaded.pairs, pair_list.pairs)
    assert (loaded.dataset, loaded.seed) == ("toy", 9)
    assert loaded.pair(split, 7).names1 == pair_list.pair(split, 7).names1
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.json"]


def test_pair_list_that_cannot_be_written_leaves_nothing(split: PreparedSplit, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "taken", tmp_path / "absent" / "pairs.json"):
        with pytest.raises(DataError, match=path.name):
            save_pair_list(sample_pair_list(split, "toy", per_class=4), path)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_pair_list_of_other_objects_is_refused(split: PreparedSplit, tmp_path: Path) -> None:
    save_pair_list(sample_pair_list(split, "toy", per_class=4), tmp_path / "pairs.json")
    other = PreparedSplit(split.images, split.objects[::-1])
    with pytest.raises(DataError, match=r"pairs\.json.*'toy'"):
        load_pair_list(tmp_path / "pairs.json", other)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"dataset": 1, "objects": 2, "seed": 0, "pairs": [[1]]}', "nan"])
def test_broken_pair_list_is_one_sentence(split: PreparedSplit, tmp_path: Path, content: str) -> None:
    (tmp_path / "pairs.json").write_text(content)
    with pytest.raises(DataError, match=r"pairs\.json"):
        load_pair_list(tmp_path / "pairs.json", split)
    with pytest.raises(DataError, match=r"absent\.json"):
        load_pair_list(tmp_path / "absent.json", split)


def test_pair_list_with_a_number_outside_is_refused(split: PreparedSplit, tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    save_pair_list(sample_pair_list(split, "toy", per_class=4), path)
    content = json.loads(path.read_text())
    content["pairs"][0] = [0, 60]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"outside.*60 objects"):
        load_pair_list(path, split)
