"""Evaluation: its shortcuts change nothing, and the truth scores 100 %."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from normmatch.config import PRESETS
from normmatch.datasets import drawn
from normmatch.datasets.batches import collate, read_images
from normmatch.datasets.pairs import PairList, sample_pair_list
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import DataError, WeightsError
from normmatch.evaluation.features import FeatureCache
from normmatch.evaluation.predict import predict
from normmatch.model.network import NormMatch
from normmatch.model.sampling import Nodes, node_features


@pytest.fixture(scope="module")
def split() -> PreparedSplit:
    return drawn.make(5, 96, seed=3, split="val")


@pytest.fixture(scope="module")
def pair_list(split: PreparedSplit) -> PairList:
    return sample_pair_list(split, "synthetic", per_class=4, seed=1)


@pytest.fixture(scope="module")
def model() -> NormMatch:
    torch.manual_seed(0)
    return NormMatch(PRESETS["tiny"]).eval()


def test_encoding_once_equals_matching_each_pair_alone(
    model: NormMatch, split: PreparedSplit, pair_list: PairList
) -> None:
    predictions = predict(model, split, pair_list, progress=False)
    for k in range(len(pair_list)):
        batch = collate([pair_list.pair(split, k, "intersection")])
        images = [read_images(split, batch[f"index{i}"].numpy()).float() / 255 for i in "01"]
        with torch.inference_mode():
            output = model({**batch, "image0": images[0], "image1": images[1]})
        known = batch["gt_matches0"] >= 0
        assert predictions.total[k] == known.sum()
        assert predictions.correct[k] == (known & (output["matches0"] == batch["gt_matches0"])).sum()


def test_batch_size_changes_nothing(model: NormMatch, split: PreparedSplit, pair_list: PairList) -> None:
    first = predict(model, split, pair_list, progress=False)
    second = predict(model, split, pair_list, progress=False, batch_size=3)
    np.testing.assert_array_equal(first.correct, second.correct)
    np.testing.assert_array_equal(first.total, second.total)
    assert first.labels == second.labels


def test_a_model_that_knows_scores_everything(
    split: PreparedSplit, pair_list: PairList, monkeypatch: pytest.MonkeyPatch, model: NormMatch
) -> None:
    monkeypatch.setattr(
        model, "match", lambda data: {"matches0": data["gt_matches0"], "matching_scores0": data["mask0"].float()}
    )
    assert set(predict(model, split, pair_list, progress=False).accuracy().values()) == {1.0}


def test_one_to_one_never_uses_a_point_twice(
    split: PreparedSplit, pair_list: PairList, monkeypatch: pytest.MonkeyPatch, model: NormMatch
) -> None:
    def all_prefer_the_first(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        valid = data["mask0"].unsqueeze(2) & data["mask1"].unsqueeze(1)  # (B, N, N)
        scores = torch.zeros(valid.shape)
        scores[:, :, 0] = 1.0
        return {
            "log_assignment": scores.masked_fill(~valid, -torch.inf),
            "similarity": scores,
            "matches0": torch.zeros_like(data["gt_matches0"]),
            "matching_scores0": torch.ones(data["mask0"].shape),
        }

    monkeypatch.setattr(model, "match", all_prefer_the_first)
    assert (predict(model, split, pair_list, progress=False).correct <= 1).all()
    assert predict(model, split, pair_list, progress=False, hungarian=True).correct.max() > 1


def test_nothing_to_evaluate(model: NormMatch, split: PreparedSplit) -> None:
    empty = PairList("synthetic", "", 0, np.zeros((0, 2), np.int64))
    with pytest.raises(DataError, match="no pair to evaluate"):
        predict(model, split, empty, progress=False)


def test_a_filled_cache_is_used_and_changes_nothing(
    model: NormMatch, split: PreparedSplit, pair_list: PairList, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = predict(model, split, pair_list, progress=False)
    copy = PreparedSplit(split.images.copy(), split.objects)  # type: ignore[union-attr]
    cache = FeatureCache(model, [(split, pair_list.pairs), (copy, pair_list.pairs)], progress=False)
    assert len(cache.pooled) == len(np.unique(pair_list.pairs))  # equal images are kept once
    monkeypatch.setattr(model, "encode", None)
    for images in (split, copy):
        again = predict(model, images, pair_list, progress=False, cache=cache)
        np.testing.assert_array_equal(again.matches0, fresh.matches0)
    with pytest.raises(DataError, match="lacks an object"):
        predict(model, drawn.make(5, 96, seed=3, split="val"), pair_list, progress=False, cache=cache)


def test_the_cache_reads_what_the_network_reads(model: NormMatch, split: PreparedSplit) -> None:
    index, rng = np.array([3, 0, 7]), np.random.default_rng(0)
    keypoints = torch.from_numpy(rng.uniform(-10, 106, (3, 12, 2)).astype(np.float32))  # some outside the image
    with torch.inference_mode():
        features = model.encode(read_images(split, index).float() / 255)
        expected = Nodes(node_features(features.maps, keypoints, features.size), features.pooled)
        found = FeatureCache(model, [(split, index)], progress=False).nodes(split, torch.from_numpy(index), keypoints)
    torch.testing.assert_close(found.features, expected.features, atol=1e-3, rtol=0)
    torch.testing.assert_close(found.pooled, expected.pooled)


@pytest.mark.parametrize(("half", "most"), [("bf16-mixed", 0.05), ("16-mixed", 0.005)])
def test_half_precision_is_close(model: NormMatch, split: PreparedSplit, half: Any, most: float) -> None:
    index = torch.arange(4)
    keypoints = torch.full((4, 1, 2), 40.0)
    exact, coarse = (
        FeatureCache(model, [(split, index.numpy())], precision, progress=False).nodes(split, index, keypoints)
        for precision in ("32-true", half)
    )
    difference = (exact.features - coarse.features).abs().max()
    assert 0 < difference < most


def test_an_overflow_is_said(model: NormMatch, split: PreparedSplit) -> None:
    large = copy.deepcopy(model)
    with torch.no_grad():
        next(large.backbone.parameters()).mul_(1e30)
        for module in large.backbone.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_var.fill_(1.0)
    with pytest.raises(WeightsError, match="features are not finite in 16-mixed"):
        FeatureCache(large, [(split, np.arange(2))], "16-mixed", progress=False)


def test_jitter_moves_points_and_nothing_else(split: PreparedSplit, pair_list: PairList) -> None:
    plain, little, much = (replace(pair_list, jitter=sigma).pair(split, 2) for sigma in (0.0, 1.0, 3.0))
    assert plain.names0 == little.names0
    np.testing.assert_array_equal(plain.gt_matches0, much.gt_matches0)
    np.testing.assert_allclose(
        3 * (little.keypoints1 - plain.keypoints1), much.keypoints1 - plain.keypoints1, atol=1e-4
    )
    moved = [
        replace(pair_list, jitter=2.0).pair(split, k).keypoints0 - pair_list.pair(split, k).keypoints0
        for k in range(len(pair_list))
    ]
    assert np.concatenate(moved).std() == pytest.approx(2.0, rel=0.15)


def test_the_record_tells_what_was_shown(model: NormMatch, split: PreparedSplit, pair_list: PairList) -> None:
    predictions = predict(model, split, pair_list, sampling="all", progress=False)
    ends = predictions.counts.cumsum(0)
    for k in (0, 7, len(pair_list) - 1):
        pair = pair_list.pair(split, k, "all")
        rows0 = slice(ends[k, 0] - predictions.counts[k, 0], ends[k, 0])
        rows1 = slice(ends[k, 1] - predictions.counts[k, 1], ends[k, 1])
        assert tuple(predictions.words[i] for i in predictions.names0[rows0]) == pair.names0
        assert tuple(predictions.words[i] for i in predictions.names1[rows1]) == pair.names1
        np.testing.assert_array_equal(predictions.keypoints1[rows1], pair.keypoints1)
        np.testing.assert_array_equal(predictions.truth0[rows0], pair.gt_matches0)
        assert predictions.labels[k] == pair.label
    assert (predictions.truth0 < 0).any()
    assert predictions.scores0.min() >= 0
    assert predictions.scores0.max() <= 1


def test_many_points_make_small_batches(
    model: NormMatch, split: PreparedSplit, pair_list: PairList, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = predict(model, split, pair_list, progress=False)
    seen = []
    match = model.match
    monkeypatch.setattr("normmatch.evaluation.predict.MOST_EDGES", 300)
    monkeypatch.setattr(model, "match", lambda data: seen.append(data["mask0"].shape) or match(data))
    again = predict(model, split, pair_list, progress=False)
    np.testing.assert_array_equal(again.matches0, whole.matches0)
    assert sum(b for b, _ in seen) == len(pair_list)
    assert all(b * n * n <= 300 for b, n in seen)
