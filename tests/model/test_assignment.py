"""Sinkhorn against a plain loop, with masks and rectangles; decoding against brute force."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from normmatch.model.assignment import best_matches, log_sinkhorn, one_to_one

FUZZ = settings(deadline=None, max_examples=30, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 6)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def all_valid(similarity: Tensor) -> tuple[Tensor, Tensor]:
    batch, m, n = similarity.shape
    return torch.ones(batch, m, dtype=torch.bool), torch.ones(batch, n, dtype=torch.bool)


def random_problem(seed: int, batch: int, m: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cosines (B, M, N) in float64, and masks that may leave nothing over."""
    torch.manual_seed(seed)
    similarity = torch.rand(batch, m, n, dtype=torch.float64) * 2 - 1
    return similarity, torch.rand(batch, m) < 0.7, torch.rand(batch, n) < 0.7


def sinkhorn_by_loop(similarity: np.ndarray, epsilon: float, rounds: int) -> np.ndarray:
    """Plain Sinkhorn of one matrix (M, N), rows first, without logarithms; a slack takes in the surplus."""
    m, n = similarity.shape
    kernel = np.exp(similarity / epsilon)
    row_sums, column_sums = np.ones(m), np.ones(n)
    if m < n:
        kernel, row_sums = np.vstack([kernel, np.ones(n)]), np.append(row_sums, n - m)
    if n < m:
        kernel, column_sums = np.hstack([kernel, np.ones((m, 1))]), np.append(column_sums, m - n)
    for _ in range(rounds):
        kernel = kernel * (row_sums / kernel.sum(1))[:, None]
        kernel = kernel * (column_sums / kernel.sum(0))
    return kernel[:m, :n]


@FUZZ
@given(seeds, st.integers(1, 3), sizes, sizes, st.integers(1, 30))
def test_sinkhorn_equals_a_plain_loop_over_the_valid_part(seed, batch, m, n, rounds):
    """The log-assignment is the mean of the rows-first and columns-first ones; padded points are not there."""
    similarity, mask0, mask1 = random_problem(seed, batch, m, n)
    log_assignment = log_sinkhorn(similarity, mask0, mask1, 0.2, rounds).numpy()
    for b in range(batch):
        valid = np.ix_(mask0[b].numpy(), mask1[b].numpy())
        part = similarity[b].numpy()[valid]
        if part.size:
            rows_first, columns_first = sinkhorn_by_loop(part, 0.2, rounds), sinkhorn_by_loop(part.T, 0.2, rounds).T
            np.testing.assert_allclose(np.exp(log_assignment[b][valid]), np.sqrt(rows_first * columns_first), rtol=1e-9)


@FUZZ
@given(seeds, st.integers(1, 3), sizes, sizes)
def test_rows_and_columns_sum_to_one_on_the_valid_part(seed, batch, m, n):
    """The points of the smaller side sum to one, those of the larger to at most one; all mass is used."""
    similarity, mask0, mask1 = random_problem(seed, batch, m, n)
    assignment = log_sinkhorn(similarity, mask0, mask1, 0.5, 300).exp()
    for b in range(batch):
        count0, count1 = mask0[b].sum(), mask1[b].sum()
        rows, columns = assignment[b].sum(1)[mask0[b]], assignment[b].sum(0)[mask1[b]]
        if count0 <= count1:
            torch.testing.assert_close(rows, torch.ones_like(rows) * (count1 > 0), atol=1e-6, rtol=0)
        if count1 <= count0:
            torch.testing.assert_close(columns, torch.ones_like(columns) * (count0 > 0), atol=1e-6, rtol=0)
        assert (rows <= 1 + 1e-6).all()
        assert (columns <= 1 + 1e-6).all()
        assert assignment[b].sum().item() == pytest.approx(min(count0, count1).item(), abs=1e-5)


@pytest.mark.parametrize(("m", "n"), [(10, 10), (6, 10), (10, 9)])
def test_published_values_nearly_sum_to_one(m, n):
    """Epsilon 0.035 and 27 rounds on cosines of random descriptors, in float32 as the network runs."""
    first, second = (torch.nn.functional.normalize(torch.randn(16, k, 48), dim=-1) for k in (m, n))
    similarity = first @ second.mT
    assignment = log_sinkhorn(similarity, *all_valid(similarity), 0.035, 27).exp()
    smaller = assignment.sum(2) if m <= n else assignment.sum(1)
    torch.testing.assert_close(smaller, torch.ones_like(smaller), atol=0.05, rtol=0)


@FUZZ
@given(seeds, sizes, sizes, st.integers(1, 4))
def test_transposing_is_symmetric_after_any_number_of_rounds(seed, m, n, rounds):
    similarity, mask0, mask1 = random_problem(seed, 2, m, n)
    there = log_sinkhorn(similarity, mask0, mask1, 0.035, rounds)
    back = log_sinkhorn(similarity.mT, mask1, mask0, 0.035, rounds).mT
    torch.testing.assert_close(there, back, atol=1e-10, rtol=0)


@FUZZ
@given(seeds, sizes, sizes, st.integers(0, 4), st.integers(0, 4))
def test_padding_and_order_mean_nothing(seed, m, n, more0, more1):
    torch.manual_seed(seed)
    similarity = torch.rand(2, m, n) * 2 - 1
    expected = log_sinkhorn(similarity, *all_valid(similarity), 0.035, 27)
    order0, order1 = torch.randperm(m + more0), torch.randperm(n + more1)
    padded = torch.nn.functional.pad(similarity, (0, more1, 0, more0), value=0.9)[:, order0][:, :, order1]
    mask0, mask1 = (order0 < m).expand(2, -1), (order1 < n).expand(2, -1)
    found = log_sinkhorn(padded, mask0, mask1, 0.035, 27)
    torch.testing.assert_close(found[:, order0.argsort()[:m]][:, :, order1.argsort()[:n]], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["random", "two values", "one favourite"])
@pytest.mark.parametrize(("m", "n"), [(12, 12), (40, 25)])
def test_float32_is_exact_to_five_digits(kind, m, n):
    """Factors in place of logs lose nothing, however far apart the cosines are."""
    similarity = torch.rand(2, m, n) * 2 - 1
    if kind == "two values":
        similarity = similarity.sign()
    elif kind == "one favourite":
        similarity = torch.full((2, m, n), -1.0)
        similarity[:, :, 0] = similarity[:, 3] = 1.0
    mask0, mask1 = torch.rand(2, m) < 0.8, torch.rand(2, n) < 0.8
    valid = mask0.unsqueeze(2) & mask1.unsqueeze(1)
    found = log_sinkhorn(similarity, mask0, mask1, 0.035, 27)[valid]
    expected = log_sinkhorn(similarity.double(), mask0, mask1, 0.035, 27)[valid]
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=0)
    torch.testing.assert_close(found.double().exp(), expected.exp(), atol=1e-6, rtol=0)


def test_small_epsilons_stay_in_logs():
    """Where factors would leave the range of float32, the answer is still there."""
    similarity = torch.rand(2, 6, 6) * 2 - 1
    found = log_sinkhorn(similarity, *all_valid(similarity), 0.002, 5)
    expected = log_sinkhorn(similarity.double(), *all_valid(similarity), 0.002, 5)
    assert found.isfinite().all()
    torch.testing.assert_close(found.double(), expected, atol=1e-3, rtol=1e-5)


def test_padding_is_minus_infinity_and_nothing_else_is():
    similarity, mask0, mask1 = random_problem(3, 4, 5, 6)
    valid = mask0.unsqueeze(2) & mask1.unsqueeze(1)
    assert torch.equal(log_sinkhorn(similarity, mask0, mask1, 0.035, 27).isneginf(), ~valid)


def test_a_slack_lets_a_point_without_partner_go():
    """Image 1 has one point more than image 0: the one that nobody resembles is left out."""
    similarity = torch.full((1, 2, 3), -0.5)
    similarity[0, 0, 2] = similarity[0, 1, 0] = 0.9
    assignment = log_sinkhorn(similarity, *all_valid(similarity), 0.035, 27).exp()
    torch.testing.assert_close(assignment.sum(1), torch.tensor([[1.0, 0.0, 1.0]]), atol=0.01, rtol=0)


@pytest.mark.parametrize("empty", ["first", "second", "both"])
def test_an_image_of_padding_alone_matches_nothing(empty):
    similarity = torch.rand(1, 3, 4, requires_grad=True)
    mask0, mask1 = all_valid(similarity)
    if empty != "second":
        mask0[:] = False
    if empty != "first":
        mask1[:] = False
    log_assignment = log_sinkhorn(similarity, mask0, mask1, 0.035, 27)
    assert log_assignment.isneginf().all()
    matches, scores = best_matches(log_assignment, similarity)
    assert (matches == -1).all()
    assert (scores == 0).all()
    assert (one_to_one(log_assignment) == -1).all()
    log_assignment.exp().sum().backward()
    assert (similarity.grad == 0).all()


@FUZZ
@given(seeds, sizes, sizes)
def test_gradients_are_finite_with_padding(seed, m, n):
    similarity, mask0, mask1 = random_problem(seed, 3, m, n)
    similarity = similarity.float().requires_grad_()
    valid = mask0.unsqueeze(2) & mask1.unsqueeze(1)
    log_assignment = log_sinkhorn(similarity, mask0, mask1, 0.035, 27)
    (log_assignment.masked_fill(~valid, 0.0).sum() + log_assignment.exp().square().sum()).backward()
    assert similarity.grad.isfinite().all()
    assert (similarity.grad[~valid] == 0).all()


@pytest.mark.parametrize(("m", "n"), [(3, 3), (2, 4), (4, 2)])
def test_gradients(m, n):
    similarity = torch.rand(1, m + 1, n, dtype=torch.float64, requires_grad=True)
    mask0, mask1 = all_valid(similarity)
    mask0[:, 1] = False
    assert torch.autograd.gradcheck(
        lambda s: log_sinkhorn(s, mask0, mask1, 0.3, 4)[:, mask0[0]], (similarity,), check_undefined_grad=False
    )


@FUZZ
@given(seeds, sizes, sizes)
def test_best_matches_are_the_largest_of_each_row_with_their_own_scores(seed, m, n):
    similarity, mask0, mask1 = random_problem(seed, 3, m, n)
    log_assignment = log_sinkhorn(similarity, mask0, mask1, 0.035, 2)  # far from converged
    matches, scores = best_matches(log_assignment, similarity)
    assert matches.dtype == torch.long
    assert ((scores >= 0) & (scores <= 1)).all()
    for b in range(3):
        for i in range(m):
            candidates = [j for j in range(n) if mask0[b, i] and mask1[b, j]]
            best = max(candidates, key=lambda j: log_assignment[b, i, j], default=-1)
            assert matches[b, i] == best
            score = log_assignment[b, i, best].exp().item() * max(similarity[b, i, best].item(), 0) if candidates else 0
            assert scores[b, i] == pytest.approx(score)


def test_the_score_is_that_of_the_match_and_not_the_largest_of_its_row() -> None:
    log_assignment = torch.tensor([[[0.3, 0.1, 0.6]]]).log()
    similarity = torch.tensor([[[0.8, 0.1, 0.1]]])
    matches, scores = best_matches(log_assignment, similarity)
    assert (matches.item(), scores.item()) == (2, pytest.approx(0.06))


def test_scores_never_exceed_one():
    matches, scores = best_matches(torch.tensor([[[1e-3, -5.0]]]), torch.tensor([[[1 + 1e-3, 0.0]]]))
    assert (matches.item(), scores.item()) == (0, 1.0)


def test_best_matches_without_candidates():
    matches, scores = best_matches(torch.zeros(2, 3, 0), torch.zeros(2, 3, 0))
    assert matches.tolist() == [[-1] * 3] * 2
    assert scores.tolist() == [[0.0] * 3] * 2


@FUZZ
@given(seeds, st.integers(1, 5), st.integers(1, 5))
def test_one_to_one_is_the_best_of_all_assignments(seed, m, n):
    similarity, mask0, mask1 = random_problem(seed, 2, m, n)
    log_assignment = log_sinkhorn(similarity, mask0, mask1, 0.2, 5)
    for b, matches in enumerate(one_to_one(log_assignment)):
        rows, columns = mask0[b].nonzero()[:, 0].tolist(), mask1[b].nonzero()[:, 0].tolist()
        chosen = [(i, j) for i, j in enumerate(matches.tolist()) if j >= 0]
        assert len(chosen) == min(len(rows), len(columns))
        assert len({j for _, j in chosen}) == len(chosen)
        assert all(i in rows and j in columns for i, j in chosen)
        if len(rows) <= len(columns):
            every = (zip(rows, picked, strict=True) for picked in permutations(columns, len(rows)))
        else:
            every = (zip(picked, columns, strict=True) for picked in permutations(rows, len(columns)))
        best = max(sum(log_assignment[b, i, j].item() for i, j in pairs) for pairs in every)
        assert sum(log_assignment[b, i, j].item() for i, j in chosen) == pytest.approx(best)


def test_a_clear_permutation_is_found_with_certainty():
    order = torch.randperm(7)
    similarity = torch.full((1, 7, 7), -0.2)
    similarity[0, torch.arange(7), order] = 0.8
    log_assignment = log_sinkhorn(similarity, *all_valid(similarity), 0.035, 27)
    matches0, scores0 = best_matches(log_assignment, similarity)
    matches1, _ = best_matches(log_assignment.mT, similarity.mT)
    assert torch.equal(matches0[0], order)
    assert torch.equal(matches1[0], order.argsort())
    assert torch.equal(one_to_one(log_assignment)[0], order)
    torch.testing.assert_close(scores0, torch.full((1, 7), 0.8), atol=1e-3, rtol=0)


def test_one_to_one_settles_a_conflict_that_row_maxima_do_not():
    log_assignment = torch.tensor([[[0.9, 0.8], [0.9, 0.1]]]).log()
    similarity = torch.ones(1, 2, 2)
    assert best_matches(log_assignment, similarity)[0].tolist() == [[0, 0]]
    assert one_to_one(log_assignment).tolist() == [[1, 0]]


def test_of_equal_candidates_the_first_is_taken() -> None:
    log_assignment = torch.tensor([[[-2.0, -1.0, -1.0], [-3.0, -3.0, -3.0], [-torch.inf] * 3]])
    assert best_matches(log_assignment, torch.ones(1, 3, 3))[0].tolist() == [[1, 0, -1]]
