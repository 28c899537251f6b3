"""The keypoint graph: Delaunay where there is one, complete elsewhere, whatever the order of the points."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from normmatch.geometry import delaunay
from normmatch.model.network import delaunay_batch
from normmatch.model.spline import pseudo_coordinates

FUZZ = settings(deadline=None, max_examples=80, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def complete(n: int) -> np.ndarray:
    return ~np.eye(n, dtype=bool)


def assert_a_graph(adjacency: np.ndarray, n: int) -> None:
    assert adjacency.shape == (n, n)
    assert adjacency.dtype == bool
    assert (adjacency == adjacency.T).all()
    assert not adjacency.diagonal().any()
    if n > 0:
        assert connected_components(adjacency)[0] == 1


def empty_circles(points: np.ndarray) -> np.ndarray:
    """Edges of all triangles whose circumcircle holds no other point: Delaunay's definition, by brute force."""
    adjacency = np.zeros((len(points), len(points)), dtype=bool)
    for triangle in combinations(range(len(points)), 3):
        a, b, c = points[list(triangle)]
        centre = np.linalg.solve(2 * np.stack([b - a, c - a]), [b @ b - a @ a, c @ c - a @ a])
        others = np.delete(points, triangle, axis=0)
        if (np.linalg.norm(others - centre, axis=1) > np.linalg.norm(a - centre)).all():
            for i, j in combinations(triangle, 2):
                adjacency[i, j] = adjacency[j, i] = True
    return adjacency


def on_a_line(points: np.ndarray) -> bool:
    """Whether whole-numbered points are exactly collinear."""
    edges = (points - points[0]).astype(np.int64)
    return not np.subtract(np.outer(edges[:, 0], edges[:, 1]), np.outer(edges[:, 1], edges[:, 0])).any()


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_up_to_three_points_are_all_connected(n):
    points = np.random.default_rng(n).uniform(0, 100, (n, 2))
    assert (delaunay(points) == complete(n)).all()


@pytest.mark.parametrize("seed", range(12))
def test_edges_are_those_of_the_empty_circumcircles(seed):
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 384, (rng.integers(4, 14), 2))
    assert (delaunay(points) == empty_circles(points)).all()


def test_a_thousand_points_have_a_planar_graph():
    points = np.random.default_rng(0).uniform(0, 384, (1000, 2)).astype(np.float32)
    adjacency = delaunay(points)
    assert_a_graph(adjacency, 1000)
    assert adjacency.sum() / 2 <= 3 * 1000 - 6


@pytest.mark.parametrize("step", [(1, 0), (0, 1), (1, 1), (2, -3), (7, 13)])
def test_collinear_points_are_all_connected(step):
    points = np.outer([0, 5, 1, 9, 4, 30], step).astype(np.float32) + 50
    assert (delaunay(points) == complete(6)).all()


@pytest.mark.parametrize("n", [4, 5, 12])
def test_a_duplicate_point_gives_the_complete_graph(n):
    points = np.random.default_rng(n).uniform(0, 100, (n, 2))
    points[-1] = points[1]
    assert (delaunay(points) == complete(n)).all()


def test_all_points_in_one_place():
    assert (delaunay(np.full((6, 2), 3.5)) == complete(6)).all()


@FUZZ
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_lattice_points_with_duplicates_and_lines(points):
    points = np.array(points, dtype=np.float32).reshape(-1, 2)
    n = len(points)
    adjacency = delaunay(points)
    assert_a_graph(adjacency, n)
    if n < 3 or len(np.unique(points, axis=0)) < n or on_a_line(points):
        assert (adjacency == complete(n)).all()


@FUZZ
@given(st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2), max_size=10))
def test_any_finite_coordinates(points):
    points = np.array(points, dtype=np.float64).reshape(-1, 2)
    assert_a_graph(delaunay(points), len(points))


@FUZZ
@given(seeds, st.integers(4, 12), st.integers(-40, 40), st.integers(-18, 0), st.sampled_from(["f4", "f8"]))
def test_nearly_collinear_and_nearly_coinciding_points(seed, n, scale, noise, dtype):
    rng = np.random.default_rng(seed)
    line = np.outer(rng.choice([0.0, 0.3, 1.0, 1.7], n), rng.normal(size=2))  # four places on a line, so many meet
    points = (10.0**scale * (line + 10.0**noise * rng.normal(size=(n, 2)))).astype(dtype)
    if np.isfinite(points).all():
        assert_a_graph(delaunay(points), n)


@FUZZ
@given(seeds, st.integers(3, 8), st.integers(-7, -2))
def test_rounding_makes_no_long_edges_along_the_border_of_a_grid(seed, side, noise):
    """A grid's border is straight. Were it not, by a rounding error, Delaunay would join its corners."""
    rng = np.random.default_rng(seed)
    grid = 40.0 * np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)
    points = (grid + 10.0**noise * rng.normal(size=grid.shape)).astype(np.float32)
    adjacency = delaunay(points)
    assert_a_graph(adjacency, len(points))
    i, j = np.nonzero(adjacency)
    assert np.abs(points[i] - points[j]).max() < 41  # a neighbour, straight or across
    assert adjacency.sum(1).min() >= 2


@FUZZ
@given(seeds, st.integers(2, 5), st.integers(2, 5))
def test_order_means_nothing_even_on_a_grid(seed, rows, columns):
    """On a grid four points share a circle and either diagonal is Delaunay: the choice must not follow the order."""
    rng = np.random.default_rng(seed)
    points = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(-1, 2).astype(np.float32)
    order = rng.permutation(len(points))
    assert (delaunay(points[order]) == delaunay(points)[np.ix_(order, order)]).all()


@FUZZ
@given(seeds, st.integers(1, 4), st.integers(0, 9))
def test_a_batch_connects_valid_points_alone(seed, batch, n):
    rng = np.random.default_rng(seed)
    mask = rng.random((batch, n)) < 0.6
    keypoints = rng.uniform(0, 100, (batch, n, 2)).astype(np.float32)
    keypoints[~mask] = rng.choice([0.0, np.nan, np.inf], (np.count_nonzero(~mask), 2))  # padding may hold anything
    adjacency = delaunay_batch(torch.from_numpy(keypoints), torch.from_numpy(mask)).numpy()
    assert adjacency.shape == (batch, n, n)
    for graph, points, valid in zip(adjacency, keypoints, mask, strict=True):
        assert not graph[~valid].any()
        assert not graph[:, ~valid].any()
        assert (graph[np.ix_(valid, valid)] == delaunay(points[valid])).all()


def scene(seed: int, batch: int = 2, n: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Random keypoints and their graphs; the last point of each image is padding."""
    keypoints = torch.from_numpy(np.random.default_rng(seed).uniform(0, 300, (batch, n, 2)))
    mask = torch.ones(batch, n, dtype=torch.bool)
    mask[:, -1] = False
    return keypoints, delaunay_batch(keypoints, mask)


def test_pseudo_coordinates_by_their_formula():
    keypoints, adjacency = scene(0)
    pseudo = pseudo_coordinates(keypoints, adjacency)
    for points, graph, u in zip(keypoints.numpy(), adjacency.numpy(), pseudo.numpy(), strict=True):
        edges = np.argwhere(graph)
        largest = max(np.abs(points[j] - points[i]).max() for i, j in edges)
        for i, j in edges:
            np.testing.assert_allclose(u[i, j], 0.5 + (points[j] - points[i]) / (2 * largest), atol=1e-12)
        assert np.abs(u[graph] - 0.5).max() == pytest.approx(0.5)  # the whole kernel is used


def test_pseudo_coordinates_point_from_a_point_to_its_neighbour():
    keypoints = torch.tensor([[[10.0, 10.0], [30.0, 10.0], [10.0, 20.0]]])
    pseudo = pseudo_coordinates(keypoints, torch.from_numpy(complete(3))[None])
    torch.testing.assert_close(pseudo[0, 0, 1], torch.tensor([1.0, 0.5]))  # to the right of point 0
    torch.testing.assert_close(pseudo[0, 1, 0], torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(pseudo[0, 0, 2], torch.tensor([0.5, 0.75]))  # below point 0, half as far


@FUZZ
@given(seeds, st.floats(-1000, 1000), st.floats(0.01, 100))
def test_pseudo_coordinates_do_not_know_place_and_size(seed, shift, scale):
    keypoints, adjacency = scene(seed)
    pseudo = pseudo_coordinates(keypoints, adjacency)
    assert (pseudo >= 0).all()
    assert (pseudo <= 1).all()
    moved = keypoints * scale + torch.tensor([shift, -2 * shift])
    torch.testing.assert_close(pseudo_coordinates(moved, adjacency), pseudo, atol=1e-8, rtol=0)


def test_pseudo_coordinates_do_not_know_padding():
    keypoints, adjacency = scene(1)
    pseudo = pseudo_coordinates(keypoints, adjacency)
    keypoints[:, -1] = 1e9
    assert torch.equal(pseudo_coordinates(keypoints, adjacency), pseudo)


def test_pseudo_coordinates_without_edges_are_here():
    pseudo = pseudo_coordinates(torch.rand(1, 3, 2), torch.zeros(1, 3, 3, dtype=torch.bool))
    assert (pseudo == 0.5).all()


def test_pseudo_coordinates_of_coinciding_points_are_here():
    pseudo = pseudo_coordinates(torch.full((1, 4, 2), 7.0), torch.from_numpy(complete(4))[None])
    assert (pseudo == 0.5).all()
