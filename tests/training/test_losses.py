"""The losses against loops over keypoints, with unmatched and padded points."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from normmatch.config import LossConfig
from normmatch.training.losses import (
    MatchingLoss,
    NameLoss,
    count_points,
    cross_entropy,
    hyperspherical,
    info_nce,
    inverse,
    locating,
    weigh_layers,
)

PAPER = LossConfig(names=0, layer_match=0)  # the paper's terms alone
FUZZ = settings(deadline=None, max_examples=30, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 6)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def random_truth(batch: int, m: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Masks, and one-to-one gt_matches0 (B, M) between some of the valid points; the rest are -1."""
    mask0, mask1 = torch.rand(batch, m) < 0.8, torch.rand(batch, n) < 0.8
    gt_matches0 = torch.full((batch, m), -1)
    for b in range(batch):
        rows, columns = mask0[b].nonzero()[:, 0], mask1[b].nonzero()[:, 0]
        rows, columns = rows[torch.randperm(len(rows))], columns[torch.randperm(len(columns))]
        count = int(torch.randint(0, min(len(rows), len(columns)) + 1, ()))
        gt_matches0[b, rows[:count]] = columns[:count]
    return gt_matches0, mask0, mask1


def pairs_of(gt_matches0: Tensor) -> list[tuple[int, int, int]]:
    return [(b, i, j) for b, row in enumerate(gt_matches0.tolist()) for i, j in enumerate(row) if j >= 0]


def unit(*shape: int) -> Tensor:
    return F.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def info_nce_by_loop(
    similarity: Tensor, gt_matches0: Tensor, mask0: Tensor, mask1: Tensor, temperature: float
) -> float:
    terms = []
    for b, i, j in pairs_of(gt_matches0):
        exps = (similarity[b] / temperature).exp()
        terms.append(-math.log(exps[i, j] / sum(exps[i, k] for k in range(exps.shape[1]) if mask1[b, k])))
        terms.append(-math.log(exps[i, j] / sum(exps[k, j] for k in range(exps.shape[0]) if mask0[b, k])))
    return sum(terms) / len(terms) if terms else 0.0


def hyperspherical_by_loop(descriptors: Tensor, mask: Tensor) -> float:
    largest = []
    for b in range(mask.shape[0]):
        points = descriptors[b, mask[b]]
        for i in range(len(points)):
            cosines = [float(points[i] @ points[k]) for k in range(len(points)) if k != i]
            largest += [max(cosines)] if cosines else []
    return sum(largest) / len(largest) if largest else 0.0


@FUZZ
@given(seeds, st.integers(1, 3), sizes, sizes, st.sampled_from([0.05, 0.1, 1.0]))
def test_info_nce_equals_a_loop_over_matches(seed, batch, m, n, temperature):
    torch.manual_seed(seed)
    gt_matches0, mask0, mask1 = random_truth(batch, m, n)
    similarity = torch.rand(batch, m, n, dtype=torch.float64) * 2 - 1
    expected = info_nce_by_loop(similarity, gt_matches0, mask0, mask1, temperature)
    assert info_nce(similarity, gt_matches0, mask0, mask1, temperature).item() == pytest.approx(expected, rel=1e-9)


@FUZZ
@given(seeds, st.integers(1, 3), sizes, sizes)
def test_info_nce_is_symmetric(seed, batch, m, n):
    torch.manual_seed(seed)
    gt_matches0, mask0, mask1 = random_truth(batch, m, n)
    similarity = torch.rand(batch, m, n, dtype=torch.float64)
    there = info_nce(similarity, gt_matches0, mask0, mask1, 0.1)
    torch.testing.assert_close(info_nce(similarity.mT, inverse(gt_matches0, n), mask1, mask0, 0.1), there)


@FUZZ
@given(seeds, st.integers(1, 3), sizes, sizes)
def test_inverse_sees_the_same_matches_from_the_other_image(seed, batch, m, n):
    torch.manual_seed(seed)
    gt_matches0, _, _ = random_truth(batch, m, n)
    matches1 = inverse(gt_matches0, n)
    assert matches1.shape == (batch, n)
    assert {(b, i, j) for b, i, j in pairs_of(gt_matches0)} == {(b, i, j) for b, j, i in pairs_of(matches1)}
    assert torch.equal(inverse(matches1, m), gt_matches0)


def test_unmatched_points_are_negatives_of_the_others():
    """A point without partner has no term of its own, yet resembling it costs its rivals."""
    gt_matches0, mask = torch.tensor([[0, -1]]), torch.ones(1, 2, dtype=torch.bool)
    similarity = torch.tensor([[[0.5, -0.5], [-0.5, 0.3]]])
    before = info_nce(similarity, gt_matches0, mask, mask, 0.1)
    similarity[0, 1, 1] = -0.9  # between the two unmatched points: counts nowhere
    torch.testing.assert_close(info_nce(similarity, gt_matches0, mask, mask, 0.1), before)
    similarity[0, 0, 1] = 0.5  # an unmatched point that looks like the true one
    assert info_nce(similarity, gt_matches0, mask, mask, 0.1) > before + 0.3


def test_perfect_and_chance_values():
    gt_matches0, mask = torch.arange(4)[None], torch.ones(1, 4, dtype=torch.bool)
    assert info_nce(2 * torch.eye(4)[None] - 1, gt_matches0, mask, mask, 0.05).item() == pytest.approx(0, abs=1e-6)
    assert info_nce(torch.zeros(1, 4, 4), gt_matches0, mask, mask, 0.05).item() == pytest.approx(math.log(4))
    assert cross_entropy(torch.zeros(1, 4, 4), gt_matches0, mask).item() == pytest.approx(math.log(4))


@FUZZ
@given(seeds, st.integers(1, 3), st.integers(1, 7))
def test_hyperspherical_equals_a_loop_over_points(seed, batch, n):
    torch.manual_seed(seed)
    descriptors, mask = unit(batch, n, 5), torch.rand(batch, n) < 0.6
    expected = hyperspherical_by_loop(descriptors, mask)
    assert hyperspherical(descriptors, mask).item() == pytest.approx(expected)


def test_hyperspherical_of_known_points():
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert hyperspherical(torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]]), mask).item() == -1  # spread as far as can be
    assert hyperspherical(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), mask).item() == 1
    assert hyperspherical(unit(3, 1, 4), torch.ones(3, 1, dtype=torch.bool)).item() == 0  # a single point has no other


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_layer_weights_fall_by_three_tenths(layers):
    weights = {1: [0.3], 2: [0.6, 0.3], 4: [1.2, 0.9, 0.6, 0.3]}[layers]
    outputs, mask = unit(layers, 2, 5, 4), torch.rand(2, 5) < 0.8
    expected = sum(w * hyperspherical_by_loop(x, mask) for w, x in zip(weights, outputs, strict=True))
    assert weigh_layers(hyperspherical(outputs, mask)).item() == pytest.approx(expected)


def test_layers_together_are_layers_one_by_one():
    output, batch = random_batch()
    layers0, layers1, mask0 = output["layers0"], output["layers1"], batch["mask0"]
    torch.testing.assert_close(hyperspherical(layers0, mask0), torch.stack([hyperspherical(x, mask0) for x in layers0]))
    given = (batch["gt_matches0"], mask0, batch["mask1"], 0.1)
    similarity = layers0 @ layers1.mT
    torch.testing.assert_close(info_nce(similarity, *given), torch.stack([info_nce(s, *given) for s in similarity]))


@FUZZ
@given(seeds, sizes, sizes)
def test_cross_entropy_equals_a_loop_over_rows(seed, m, n):
    torch.manual_seed(seed)
    gt_matches0, _, mask1 = random_truth(2, m, n)
    similarity = torch.rand(2, m, n, dtype=torch.float64) * 2 - 1
    terms = [
        -math.log(similarity[b, i, j].exp() / similarity[b, i, mask1[b]].exp().sum())
        for b, i, j in pairs_of(gt_matches0)
    ]
    expected = sum(terms) / len(terms) if terms else 0.0
    assert cross_entropy(similarity, gt_matches0, mask1).item() == pytest.approx(expected)


def random_batch(batch: int = 2, m: int = 5, n: int = 6, layers: int = 4) -> tuple[dict, dict]:
    """What `NormMatch.describe` gives and what a dataset gives, in float32."""
    gt_matches0, mask0, mask1 = random_truth(batch, m, n)
    layers0, layers1 = unit(layers, batch, m, 8).float(), unit(layers, batch, n, 8).float()
    output = {"layers0": layers0, "layers1": layers1, "similarity": layers0[-1] @ layers1[-1].mT}
    names0, names1 = torch.arange(m).repeat(batch, 1), torch.arange(n).repeat(batch, 1)
    names = {"name_ids0": names0.masked_fill(~mask0, -1), "name_ids1": names1.masked_fill(~mask1, -1)}
    return output, {"gt_matches0": gt_matches0, "mask0": mask0, "mask1": mask1, **names}


def test_the_whole_loss_is_the_sum_of_the_papers_terms():
    output, batch = random_batch()
    losses = MatchingLoss(PAPER)(output, batch)
    masks = (batch["mask0"], batch["mask1"])
    both = list(zip((output["layers0"], output["layers1"]), masks, strict=True))
    expected = {
        "info_nce": info_nce_by_loop(output["similarity"], batch["gt_matches0"], *masks, 0.1),
        "hyperspherical": sum(hyperspherical_by_loop(layers[-1], mask) for layers, mask in both) / 2,
        "layers": sum(
            weight * hyperspherical_by_loop(x, mask)
            for layers, mask in both
            for weight, x in zip((1.2, 0.9, 0.6, 0.3), layers, strict=True)
        )
        / 2,
    }
    assert losses.keys() == {"loss", *expected}
    for name, value in expected.items():
        assert losses[name].item() == pytest.approx(value, rel=1e-4, abs=1e-6)
    assert losses["loss"].item() == pytest.approx(sum(expected.values()), rel=1e-4)


def test_the_switches_of_the_ablations():
    output, batch = random_batch()
    full = MatchingLoss(PAPER)(output, batch)
    without_layers = MatchingLoss(replace(PAPER, layer_loss=False))(output, batch)
    assert without_layers.keys() == {"loss", "info_nce", "hyperspherical"}
    torch.testing.assert_close(without_layers["loss"], full["loss"] - full["layers"])
    plain = MatchingLoss(LossConfig(contrastive=False))(output, batch)
    assert plain.keys() == {"loss", "cross_entropy"}
    expected = cross_entropy(output["similarity"], batch["gt_matches0"], batch["mask1"])
    torch.testing.assert_close(plain["loss"], expected)


def test_the_name_loss_against_a_loop():
    classes, names = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([[0, 2, -1], [4, 3, 3]])
    loss, descriptors = NameLoss(classes, 8), unit(2, 3, 8).float()
    terms = []
    for b, i in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2)):
        name = names[b, i]
        cosines = F.normalize(loss.vectors, dim=1) @ descriptors[b, i] / 0.1
        terms.append(-cosines[classes == classes[name]].log_softmax(0)[(name - 3) if name > 2 else name])
    torch.testing.assert_close(loss(descriptors, names, 0.1), torch.stack(terms).mean())


def test_vectors_of_other_classes_do_not_learn():
    loss = NameLoss(torch.tensor([0, 0, 1, 1]), 8)
    loss(unit(1, 2, 8).float(), torch.tensor([[0, 1]]), 0.1).backward()
    assert (loss.vectors.grad[:2] != 0).any()
    assert (loss.vectors.grad[2:] == 0).all()


def test_layer_match_is_the_mean_info_nce_of_the_earlier_layers():
    output, batch = random_batch(layers=3)
    losses = MatchingLoss(LossConfig(layer_match=0.5))(output, batch)
    terms = [
        info_nce_by_loop(x0 @ x1.mT, batch["gt_matches0"], batch["mask0"], batch["mask1"], 0.1)
        for x0, x1 in zip(output["layers0"][:2], output["layers1"][:2], strict=True)
    ]
    assert losses["layer_match"].item() == pytest.approx(0.5 * sum(terms) / 2, rel=1e-4)


@FUZZ
@given(seed=seeds, more0=st.integers(0, 3), more1=st.integers(0, 3), contrastive=st.booleans())
def test_padding_changes_nothing(seed, more0, more1, contrastive):
    torch.manual_seed(seed)
    output, batch = random_batch()
    loss = MatchingLoss(LossConfig(contrastive=contrastive), torch.zeros(6, dtype=torch.long), 8)
    expected = loss(output, batch)
    assert ("names" in expected) == ("layer_match" in expected) == contrastive
    padded = {
        "layers0": F.pad(output["layers0"], (0, 0, 0, more0), value=0.9),
        "layers1": F.pad(output["layers1"], (0, 0, 0, more1), value=0.9),
        "similarity": F.pad(output["similarity"], (0, more1, 0, more0), value=0.9),
    }
    truth = {
        "gt_matches0": F.pad(batch["gt_matches0"], (0, more0), value=-1),
        "mask0": F.pad(batch["mask0"], (0, more0)),
        "mask1": F.pad(batch["mask1"], (0, more1)),
        "name_ids0": F.pad(batch["name_ids0"], (0, more0), value=-1),
        "name_ids1": F.pad(batch["name_ids1"], (0, more1), value=-1),
    }
    for name, value in loss(padded, truth).items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=1e-5)


def test_temperature_starts_at_a_tenth_and_learns():
    output, batch = random_batch()
    batch["gt_matches0"][:, 0], batch["mask0"][:, 0], batch["mask1"][:] = 0, True, True
    loss = MatchingLoss(LossConfig())
    assert loss.log_temperature.exp().item() == pytest.approx(0.1)
    loss(output, batch)["loss"].backward()
    assert loss.log_temperature.grad.abs() > 0
    fixed = MatchingLoss(LossConfig(temperature=0.07, learn_temperature=False))
    assert not fixed.log_temperature.requires_grad
    assert fixed.log_temperature.exp().item() == pytest.approx(0.07)


def test_the_temperature_divides_the_similarity():
    output, batch = random_batch()
    value = MatchingLoss(LossConfig(temperature=0.5))(output, batch)["info_nce"].item()
    expected = info_nce_by_loop(output["similarity"], batch["gt_matches0"], batch["mask0"], batch["mask1"], 0.5)
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("contrastive", [True, False])
def test_a_batch_without_matches_costs_nothing_and_stays_finite(contrastive):
    layers = [unit(2, 3, 4, 8).float().requires_grad_() for _ in range(2)]
    similarity = layers[0][-1] @ layers[1][-1].mT
    masks = {"mask0": torch.zeros(3, 4, dtype=torch.bool), "mask1": torch.zeros(3, 4, dtype=torch.bool)}
    losses = MatchingLoss(LossConfig(contrastive=contrastive))(
        {"layers0": layers[0], "layers1": layers[1], "similarity": similarity},
        {"gt_matches0": torch.full((3, 4), -1), **masks},
    )
    assert losses["loss"].item() == 0
    losses["loss"].backward()
    assert all(x.grad.isfinite().all() for x in layers if x.grad is not None)


def test_bfloat16_outputs_are_compared_in_float32():
    output, batch = random_batch()
    losses = MatchingLoss(LossConfig())({key: value.bfloat16() for key, value in output.items()}, batch)
    assert all(value.dtype == torch.float32 for value in losses.values())


def test_gradients():
    gt_matches0, mask0, mask1 = torch.tensor([[2, -1, 0]]), torch.tensor([[True, True, True]]), torch.ones(1, 4).bool()
    mask1[0, 3] = False
    similarity = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    layers = [unit(1, 4, 3).requires_grad_() for _ in range(2)]
    assert torch.autograd.gradcheck(lambda s, t: info_nce(s, gt_matches0, mask0, mask1, t), (similarity, temperature))
    assert torch.autograd.gradcheck(lambda s: cross_entropy(s, gt_matches0, mask1), (similarity,))
    assert torch.autograd.gradcheck(lambda x: hyperspherical(x, mask1), (layers[0],))
    assert torch.autograd.gradcheck(lambda *x: weigh_layers(hyperspherical(torch.stack(x), mask1)), tuple(layers))


def test_locating_is_a_cross_entropy_against_a_gaussian_of_one_cell() -> None:
    batch, points, side = 2, 3, 5
    log_p = [torch.randn(batch, points, side * side + 1, dtype=torch.float64).log_softmax(-1) for _ in "01"]
    places = [torch.rand(batch, points, 2, dtype=torch.float64) for _ in "01"]
    present = [torch.rand(batch, points) < 0.6 for _ in "01"]
    output = {"located0": log_p[0], "located1": log_p[1]}
    data = {"places0": places[0], "places1": places[1], "present0": present[0], "present1": present[1]}
    found, absent = [], []
    for source, target in ((0, 1), (1, 0)):
        for b in range(batch):
            for v in range(points):
                if not present[source][b, v]:
                    continue
                if not present[target][b, v]:
                    absent.append(-log_p[source][b, v, -1])
                    continue
                weights = torch.zeros(side, side, dtype=torch.float64)
                for row in range(side):
                    for column in range(side):
                        x, y = places[target][b, v] * side
                        weights[row, column] = torch.exp(-((x - column - 0.5) ** 2 + (y - row - 0.5) ** 2) / 2)
                found.append(-(weights / weights.sum() * log_p[source][b, v, :-1].view(side, side)).sum())
    assert found
    assert absent
    expected = torch.stack(found).mean() + 0.2 * torch.stack(absent).mean()
    torch.testing.assert_close(locating(output, data), expected)
    counts = count_points({**data, "mask0": present[0], "mask1": present[1], "gt_matches0": torch.full((2, 3), -1)})
    assert (int(counts["count_shown"]), int(counts["count_absent"])) == (len(found), len(absent))
    torch.testing.assert_close(locating(output, {**data, **counts}), expected)
