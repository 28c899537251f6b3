"""Dense spline convolution against a plain loop over edges."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from normmatch.geometry import delaunay
from normmatch.model import spline
from normmatch.model.spline import (
    SplineCNN,
    SplineConv,
    edge_list,
    nearest_knots,
    pseudo_coordinates,
    spline_basis,
)

FUZZ = settings(deadline=None, max_examples=25, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def random_graphs(batch: int, n: int, share: float = 0.4) -> tuple[Tensor, Tensor]:
    """Pseudo-coordinates (B, N, N, 2) and any adjacency (B, N, N); the last node has no neighbour."""
    adjacency = (torch.rand(batch, n, n) < share) & ~torch.eye(n, dtype=torch.bool)
    adjacency[:, -1] = False
    return torch.rand(batch, n, n, 2, dtype=torch.float64), adjacency


def kernel_at(weight: Tensor, u: Tensor, kernel: int) -> Tensor:
    """The kernel matrix (C, D) at u (2,): bilinear between the four knots around it, knot (x, y) at y * K + x."""
    matrices = weight.view(weight.shape[0], kernel * kernel, -1)  # (C, K*K, D)
    place = u * (kernel - 1)
    corner = place.floor().long().clamp_max(kernel - 2)
    fraction = place - corner
    total = torch.zeros_like(matrices[:, 0])
    for dx in (0, 1):
        for dy in (0, 1):
            share = (fraction[0] if dx else 1 - fraction[0]) * (fraction[1] if dy else 1 - fraction[1])
            total = total + share * matrices[:, (corner[1] + dy) * kernel + corner[0] + dx]
    return total


def conv_by_loop(conv: SplineConv, x: Tensor, pseudo: Tensor, adjacency: Tensor) -> Tensor:
    """Edge by edge: the largest message a node receives, element by element, plus root weight and bias."""
    out = []
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            messages = [
                x[b, j] @ kernel_at(conv.weight, pseudo[b, i, j], conv.kernel)
                for j in range(x.shape[1])
                if adjacency[b, i, j]
            ]
            strongest = torch.stack(messages).max(0).values if messages else 0
            out.append(conv.root.weight @ x[b, i] + conv.root.bias + strongest)
    return torch.stack(out).view(*x.shape[:2], -1)


@FUZZ
@given(seeds, st.integers(2, 6), st.integers(1, 9))
def test_basis_is_a_partition_of_one(seed, kernel, n):
    torch.manual_seed(seed)
    basis = spline_basis(torch.rand(n, 2, dtype=torch.float64), kernel)
    assert basis.shape == (n, kernel * kernel)
    assert (basis >= 0).all()
    assert ((basis > 0).sum(-1) <= 4).all()  # degree 1: the knots of one cell
    torch.testing.assert_close(basis.sum(-1), torch.ones(n, dtype=torch.float64))


def test_open_spline_has_its_outer_knots_on_the_border():
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    assert torch.equal(spline_basis(corners, 5).argmax(-1), torch.tensor([0, 4, 20, 24, 12]))
    assert (spline_basis(corners, 5).amax(-1) == 1).all()


@FUZZ
@given(seeds, st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.sampled_from([2, 3, 5]))
def test_conv_equals_a_loop_over_edges(seed, batch, n, dim_in, dim_out, kernel):
    torch.manual_seed(seed)
    conv = SplineConv(dim_in, dim_out, kernel).double()
    x = torch.randn(batch, n, dim_in, dtype=torch.float64)
    pseudo, adjacency = random_graphs(batch, n)
    expected = conv_by_loop(conv, x, pseudo, adjacency)
    torch.testing.assert_close(conv(x, spline_basis(pseudo, kernel), adjacency), expected)


def test_default_kernel_is_five_by_five():
    assert SplineConv(3, 7).weight.shape == (3, 25 * 7)
    assert SplineCNN(3, 7).kernel == 5


def test_isolated_nodes_get_root_weight_and_bias_alone():
    conv, x = SplineConv(3, 4), torch.randn(2, 5, 3)
    basis = spline_basis(torch.rand(2, 5, 5, 2), 5)
    out = conv(x, basis, torch.zeros(2, 5, 5, dtype=torch.bool))
    torch.testing.assert_close(out, x @ conv.root.weight.T + conv.root.bias)


def test_negative_messages_are_not_replaced_by_zero():
    """Max aggregation over the neighbours: where all messages are negative, so is the largest."""
    conv, x = SplineConv(1, 1), torch.ones(1, 3, 1)
    torch.nn.init.constant_(conv.weight, -2.0)
    torch.nn.init.zeros_(conv.root.weight)
    torch.nn.init.zeros_(conv.root.bias)
    out = conv(x, spline_basis(torch.rand(1, 3, 3, 2), 5), ~torch.eye(3, dtype=torch.bool)[None])
    torch.testing.assert_close(out, torch.full((1, 3, 1), -2.0))


def test_cnn_is_two_convolutions_with_relu_and_a_linear_skip():
    cnn, x = SplineCNN(3, 4).double(), torch.randn(2, 6, 3, dtype=torch.float64)
    pseudo, adjacency = random_graphs(2, 6)
    hidden = conv_by_loop(cnn.conv1, x, pseudo, adjacency).clamp_min(0)
    hidden = conv_by_loop(cnn.conv2, hidden, pseudo, adjacency).clamp_min(0)
    torch.testing.assert_close(cnn(x, pseudo, adjacency), hidden + x @ cnn.skip.weight.T + cnn.skip.bias)


@pytest.mark.parametrize("elements", [1, 2 * 7 * 4, 2 * 7 * 4 * 3, 10**9])
def test_blocks_of_rows_equal_one_block(monkeypatch, elements):
    conv, x = SplineConv(3, 4).double(), torch.randn(2, 7, 3, dtype=torch.float64)
    pseudo, adjacency = random_graphs(2, 7)
    basis = spline_basis(pseudo, 5)
    expected = conv(x, basis, adjacency)
    monkeypatch.setattr(spline, "BLOCK_ELEMENTS", elements)
    torch.testing.assert_close(conv(x, basis, adjacency), expected)


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [] if func.is_view else tree_leaves(out)
        sizes = [leaf.numel() for leaf in made if isinstance(leaf, Tensor)]
        self.elements = max(self.elements, *sizes, 0)
        return out


def test_a_thousand_keypoints_fit_into_memory(monkeypatch):
    """No (N, N, 25, D) tensor is made, and with blocks no (N, N, D) tensor: the basis, (N, N, 25), is the largest."""
    n, dim = 1000, 40
    points = np.random.default_rng(0).uniform(0, 384, (n, 2)).astype(np.float32)
    adjacency = torch.from_numpy(delaunay(points))[None]
    pseudo = pseudo_coordinates(torch.from_numpy(points)[None], adjacency)
    conv, x = SplineConv(4, dim), torch.randn(1, n, 4)
    monkeypatch.setattr(spline, "BLOCK_ELEMENTS", 1 << 23)
    with torch.no_grad(), LargestTensor() as largest:
        out = conv(x, spline_basis(pseudo, 5), adjacency)
    assert out.shape == (1, n, dim)
    assert out.isfinite().all()
    assert n * n < largest.elements <= 25 * n * n < dim * n * n
    rows = torch.tensor([0, 500, 999])
    expected = [conv_by_loop_row(conv, x[0], pseudo[0], adjacency[0], int(i)) for i in rows]
    torch.testing.assert_close(out[0, rows], torch.stack(expected), atol=1e-4, rtol=1e-4)


def conv_by_loop_row(conv: SplineConv, x: Tensor, pseudo: Tensor, adjacency: Tensor, i: int) -> Tensor:
    near = adjacency[i].nonzero()[:, 0]
    messages = torch.stack([x[j] @ kernel_at(conv.weight, pseudo[i, j], conv.kernel) for j in near])
    return (conv.root.weight @ x[i] + conv.root.bias + messages.max(0).values).detach()


def test_block_size_bounds_the_messages_by_a_gibibyte():
    assert spline.BLOCK_ELEMENTS * torch.float32.itemsize <= 1 << 30


@FUZZ
@given(seeds, st.integers(1, 6), st.integers(0, 4))
def test_padding_and_order_mean_nothing(seed, n, more):
    torch.manual_seed(seed)
    cnn, x = SplineCNN(3, 4).double(), torch.randn(1, n, 3, dtype=torch.float64)
    pseudo, adjacency = random_graphs(1, n)
    expected = cnn(x, pseudo, adjacency)
    order = torch.randperm(n + more)
    garbage = torch.full((1, n + more, 3), 1e3, dtype=torch.float64)
    garbage[:, :n] = x
    padded = torch.nn.functional.pad(adjacency, (0, more, 0, more))
    places = torch.rand(1, n + more, n + more, 2, dtype=torch.float64)
    places[:, :n, :n] = pseudo
    out = cnn(garbage[:, order], places[:, order][:, :, order], padded[:, order][:, :, order])
    torch.testing.assert_close(out[:, order.argsort()][:, :n], expected)


def test_gradients():
    conv = SplineConv(2, 3).double()
    pseudo, adjacency = random_graphs(1, 4)
    x = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    parameters = dict(conv.named_parameters())

    def run(x: Tensor, pseudo: Tensor, *values: Tensor) -> Tensor:
        named = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(conv, named, (x, spline_basis(pseudo, 5), adjacency))

    assert torch.autograd.gradcheck(run, (x, pseudo.requires_grad_(), *parameters.values()))


def test_gradients_are_finite_where_a_node_is_isolated():
    cnn, x = SplineCNN(2, 3), torch.randn(1, 4, 2, requires_grad=True)
    pseudo = torch.rand(1, 4, 4, 2, requires_grad=True)
    cnn(x, pseudo, torch.zeros(1, 4, 4, dtype=torch.bool)).square().sum().backward()
    assert all(t.grad.isfinite().all() for t in (x, pseudo, *cnn.parameters()) if t.grad is not None)
    assert x.grad.abs().sum() > 0


# ------------------------------------------------------------------------------------------------------- lists of edges


@FUZZ
@given(seeds, st.integers(2, 6))
def test_four_knots_carry_the_whole_basis(seed, kernel):
    torch.manual_seed(seed)
    pseudo = torch.cat([torch.rand(6, 2), torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.5, 0.0]])]).double()
    knots, shares = nearest_knots(pseudo, kernel)
    dense = torch.zeros(len(pseudo), kernel * kernel, dtype=torch.float64).scatter_add(1, knots, shares)
    torch.testing.assert_close(dense, spline_basis(pseudo, kernel))


@FUZZ
@given(seeds, st.integers(1, 3), st.integers(1, 12))
def test_edges_are_those_of_the_adjacency(seed, batch, n):
    torch.manual_seed(seed)
    _, adjacency = random_graphs(batch, n, share=0.7)
    edges = edge_list(adjacency)
    if edges is None:
        assert adjacency.sum((1, 2)).max() > 6 * n
        return
    assert edges.shape == (batch, 6 * n, 2)
    for graph, pairs in zip(adjacency, edges.tolist(), strict=True):
        if graph.any():
            assert {tuple(pair) for pair in pairs} == {tuple(pair) for pair in graph.nonzero().tolist()}


@FUZZ
@given(seeds, st.integers(1, 3), st.integers(1, 7))
def test_edges_give_what_dense_matrices_give(seed, batch, n):
    torch.manual_seed(seed)
    cnn, x = SplineCNN(3, 4).double(), torch.randn(batch, n, 3, dtype=torch.float64)
    pseudo, adjacency = random_graphs(batch, n)
    adjacency[0] &= torch.rand(1) < 0.7  # now and then a graph without any edge
    expected = cnn(x, pseudo, adjacency)
    torch.testing.assert_close(cnn(x, pseudo, adjacency, edge_list(adjacency)), expected)


def test_gradients_along_edges_are_the_dense_ones():
    cnn = SplineCNN(3, 4).double()
    pseudo, adjacency = random_graphs(2, 6)
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    parameters = [x, *cnn.parameters()]
    dense = torch.autograd.grad(cnn(x, pseudo, adjacency).square().sum(), parameters)
    along = torch.autograd.grad(cnn(x, pseudo, adjacency, edge_list(adjacency)).square().sum(), parameters)
    for found, expected in zip(along, dense, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_thousand_points_make_no_large_tensor():
    """Along edges nothing grows with the square of the points but the pseudo-coordinates that are given."""
    n, dim = 1000, 8
    points = np.random.default_rng(0).uniform(0, 384, (n, 2)).astype(np.float32)
    adjacency = torch.from_numpy(delaunay(points))[None]
    pseudo = pseudo_coordinates(torch.from_numpy(points)[None], adjacency)
    with torch.no_grad(), LargestTensor() as largest:
        SplineCNN(4, dim)(torch.randn(1, n, 4), pseudo, adjacency)
    assert largest.elements <= max(25 * n * dim, 4 * 6 * n * dim)
