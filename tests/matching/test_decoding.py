"""From assignment to matches: the options by themselves and together, on numbers that can be followed."""

from typing import Any

import numpy as np
import pytest

from normmatch.matching.decoding import decode, low_scores

COSINES = np.array([[0.9, 0.8, 0.1], [0.8, 0.1, 0.1]], np.float32)
SHARES = np.array([[0.6, 0.35, 0.05], [0.3, 0.1, 0.6]], np.float32)


def chosen(shares: np.ndarray = SHARES, cosines: np.ndarray = COSINES, **options: object) -> dict[str, np.ndarray]:
    options = {"one_to_one": False, "mutual": False, "min_score": 0.0, **options}
    (result,) = decode(cosines[None], np.log(shares)[None], [shares.shape], **options)  # type: ignore[arg-type,list-item]
    return result


def test_the_best_of_each_point() -> None:
    result = chosen()
    assert result["matches0"].tolist() == [0, 2]
    assert result["matches1"].tolist() == [0, 0, 1]
    assert result["matching_scores0"] == pytest.approx([0.54, 0.06])  # of the matches: (1, 0) has a larger one
    assert result["matching_scores1"] == pytest.approx([0.54, 0.28, 0.06])
    assert result["scores"] == pytest.approx([0.54, 0.06])


def test_one_to_one_prefers_the_largest_sum() -> None:
    shares = np.exp(np.array([[5.0, 4.0], [4.0, 0.0]]) - 6)
    assert chosen(shares, np.ones((2, 2)), one_to_one=True)["matches0"].tolist() == [1, 0]


@pytest.mark.parametrize("one_to_one", [False, True])
def test_mutual_matches_are_the_best_of_both(one_to_one: bool) -> None:
    """Also one to one, where the largest sum would take others."""
    shares = np.exp(np.array([[5.0, 4.0], [4.0, 0.0]]) - 6)
    result = chosen(shares, np.ones((2, 2)), mutual=True, one_to_one=one_to_one)
    assert result["matches0"].tolist() == result["matches1"].tolist() == [0, -1]


@pytest.mark.parametrize("options", [{"mutual": True}, {"one_to_one": True}, {"mutual": True, "one_to_one": True}])
@pytest.mark.parametrize("min_score", [0.0, 0.05, 0.1, 0.3, 1.0])
def test_both_sides_agree_at_every_threshold(options: dict[str, bool], min_score: float) -> None:
    result = chosen(min_score=min_score, **options)
    for i, j in enumerate(result["matches0"].tolist()):
        assert j < 0 or result["matches1"][j] == i
    for j, i in enumerate(result["matches1"].tolist()):
        assert i < 0 or result["matches0"][i] == j


@pytest.mark.parametrize("one_to_one", [False, True])
@pytest.mark.parametrize("mutual", [False, True])
@pytest.mark.parametrize("min_score", [0.0, 0.1])
def test_a_batch_gives_what_its_pairs_give_alone(one_to_one: bool, mutual: bool, min_score: float) -> None:
    """What fills a pair up has cosine 0, which is more than a real one may have, but no assignment."""
    rng = np.random.default_rng(0)
    counts = [(2, 3), (4, 1), (3, 3), (0, 2), (4, 4), (3, 0)]
    cosines = rng.uniform(-1, 1, (6, 4, 4)).astype(np.float32)
    cosines[2] = -0.5
    logs = np.log(rng.uniform(0, 1, (6, 4, 4))).astype(np.float32)
    for i, (m, n) in enumerate(counts):
        for array, nothing in ((cosines, 0), (logs, -np.inf)):
            array[i, m:], array[i, :, n:] = nothing, nothing
    options = {"one_to_one": one_to_one, "mutual": mutual, "min_score": min_score}
    results = decode(cosines, logs, counts, **options)  # type: ignore[arg-type]
    for i, (m, n) in enumerate(counts):
        alone = decode(cosines[i : i + 1, :m, :n], logs[i : i + 1, :m, :n], [(m, n)], **options)[0]  # type: ignore[arg-type]
        assert results[i].keys() == alone.keys()
        for key, value in alone.items():
            assert results[i][key].tolist() == value.tolist()
            assert results[i][key].dtype == value.dtype
            assert results[i][key].base is None, "the whole batch stays in memory"


def test_scores_are_low_where_most_points_are_unsure() -> None:
    assert low_scores(chosen(), 0.5)
    assert not low_scores(chosen(), 0.29)  # the median of 0.54 and 0.06 is 0.3
    assert not low_scores(chosen(np.zeros((0, 3)), np.zeros((0, 3))), 0.5)


def test_scores_become_probabilities_and_the_threshold_is_one_of_them() -> None:
    similarity = np.array([[[0.8, 0.1], [0.1, 0.4]]], np.float32)
    log_assignment = np.log(np.array([[[1.0, 1e-9], [1e-9, 1.0]]], np.float32))
    options: dict[str, Any] = {"one_to_one": False, "mutual": False}
    raw = decode(similarity, log_assignment, [(2, 2)], min_score=0.5, **options)[0]
    np.testing.assert_allclose(raw["matching_scores0"], [0.8, 0.4], atol=1e-6)
    assert raw["matches0"].tolist() == [0, -1]
    found = decode(
        similarity, log_assignment, [(2, 2)], min_score=0.5, calibration=(0.0, 0.5, 1.0, 0.0, 0.9, 1.0), **options
    )[0]
    np.testing.assert_allclose(found["matching_scores0"], [0.96, 0.72], atol=1e-6)
    assert found["matches0"].tolist() == [0, 1]
