"""Evaluation: its shortcuts change nothing, and the truth scores 100 %."""

import numpy as np
import pytest
import torch

from normmatch.config import PRESETS
from normmatch.data import synthetic
from normmatch.data.batches import EvalBatches, read_images
from normmatch.data.pair_lists import PairList, sample_pair_list
from normmatch.data.pairs import PreparedSplit
from normmatch.evaluate import predict
from normmatch.model.matcher import NormMatch


@pytest.fixture(scope="module")
def split() -> PreparedSplit:
    return synthetic.make(5, 96, seed=3, split="val")


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
    batches = EvalBatches(split, pair_list, batch_size=1)
    for k in range(len(pair_list)):
        batch = batches[k]
        images = [read_images(split, batch[f"index{i}"].numpy()).float() / 255 for i in "01"]
        with torch.inference_mode():
            output = model({**batch, "image0": images[0], "image1": images[1]})
        known = batch["matches0"] >= 0
        assert predictions.total[k] == known.sum()
        assert predictions.correct[k] == (known & (output["matches0"] == batch["matches0"])).sum()


def test_batch_size_changes_nothing(model: NormMatch, split: PreparedSplit, pair_list: PairList) -> None:
    first = predict(model, split, pair_list, progress=False)
    second = predict(model, split, pair_list, progress=False, batch_size=3)
    np.testing.assert_array_equal(first.correct, second.correct)
    np.testing.assert_array_equal(first.total, second.total)
    assert first.labels == second.labels


def test_a_model_that_knows_scores_everything(
    split: PreparedSplit, pair_list: PairList, monkeypatch: pytest.MonkeyPatch, model: NormMatch
) -> None:
    monkeypatch.setattr(model, "match", lambda data: {"matches0": data["matches0"]})
    assert set(predict(model, split, pair_list, progress=False).accuracy().values()) == {1.0}
