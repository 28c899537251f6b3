import numpy as np
import pytest

from normmatch.annotations import Annotation
from normmatch.datasets.pairs import class_pairs, sample_pair_list
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import DataError


def prepared(label: str, names: str, seed: int = 0) -> Annotation:
    """An object whose keypoints are named by letters; each point is recognisable by its coordinates."""
    keypoints = np.random.default_rng((seed, len(names))).uniform(0, 64, (len(names), 2)).astype(np.float32)
    return Annotation(f"{label}{seed}.jpg", tuple(names), keypoints, label=label)


def split_of(*objects: Annotation, pairs: np.ndarray | None = None) -> PreparedSplit:
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
