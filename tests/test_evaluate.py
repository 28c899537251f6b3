"""Evaluation: its shortcuts change nothing, and the truth scores 100 %."""

import numpy as np
import pytest
import torch

from normmatch.config import PRESETS
from normmatch.data import synthetic
from normmatch.data.batches import EvalBatches, read_images
from normmatch.data.pair_lists import PairList, sample_pair_list
from normmatch.data.pairs import PreparedSplit
from normmatch.data.protocols import PROTOCOLS
from normmatch.errors import DataError
from normmatch.evaluate import evaluate, predict
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


def test_protocols_score_differently(model: NormMatch, split: PreparedSplit) -> None:
    row_wise = evaluate(model, split, "synthetic", PROTOCOLS["nmt"], pairs=30)
    one_to_one = evaluate(model, split, "synthetic", PROTOCOLS["thinkmatch"], pairs=30)
    assert row_wise["pairs"] == 4 * 30
    assert one_to_one["pairs"] == 4 * 10  # all pairs of five figures, each once
    assert row_wise["mean"] != one_to_one["mean"]
    assert row_wise == evaluate(model, split, "synthetic", PROTOCOLS["nmt"], pairs=30)


def test_one_to_one_never_uses_a_point_twice(
    split: PreparedSplit, pair_list: PairList, monkeypatch: pytest.MonkeyPatch, model: NormMatch
) -> None:
    def all_prefer_the_first(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        valid = data["mask0"].unsqueeze(2) & data["mask1"].unsqueeze(1)  # (B, N, N)
        scores = torch.zeros(valid.shape)
        scores[:, :, 0] = 1.0
        return {
            "log_assignment": scores.masked_fill(~valid, -torch.inf),
            "matches0": torch.zeros_like(data["matches0"]),
        }

    monkeypatch.setattr(model, "match", all_prefer_the_first)
    assert (predict(model, split, pair_list, progress=False).correct <= 1).all()
    assert predict(model, split, pair_list, progress=False, hungarian=True).correct.max() > 1


def test_nothing_to_evaluate(model: NormMatch, split: PreparedSplit) -> None:
    empty = PairList("synthetic", "", 0, np.zeros((0, 2), np.int64))
    with pytest.raises(DataError, match="no pair to evaluate"):
        predict(model, split, empty, progress=False)
