"""The one coordinate convention: x right, y down, pixel centres at +0.5, so that resizing by s maps x to s * x."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms import v2

from normmatch.model.sampling import node_features, sample

FUZZ = settings(deadline=None, max_examples=40, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def ramps(h: int, w: int, size: tuple[int, int]) -> Tensor:
    """A map (1, 2, h, w) over an image of `size` (H, W) whose cells hold the x and y of their centres, in pixels."""
    y = (torch.arange(h, dtype=torch.float64) + 0.5) * size[0] / h
    x = (torch.arange(w, dtype=torch.float64) + 0.5) * size[1] / w
    return torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1])[None]


def inner_points(h: int, w: int, size: tuple[int, int], n: int = 9) -> Tensor:
    """Random points (1, n, 2) between the outermost cell centres of a map, where nothing is repeated."""
    low = torch.tensor([size[1] / w / 2, size[0] / h / 2], dtype=torch.float64)
    high = torch.tensor([size[1], size[0]], dtype=torch.float64) - low
    return low + (high - low) * torch.rand(1, n, 2, dtype=torch.float64)


@FUZZ
@given(seeds, st.integers(1, 12), st.integers(1, 12), st.integers(8, 400), st.integers(8, 400))
def test_reading_a_map_of_coordinates_returns_the_coordinates(seed, h, w, height, width):
    torch.manual_seed(seed)
    points = inner_points(h, w, (height, width))
    torch.testing.assert_close(sample(ramps(h, w, (height, width)), points, (height, width)), points)


def test_a_pixel_is_read_at_its_centre():
    image = torch.rand(1, 3, 4, 6)
    points = torch.tensor([[[0.5, 0.5], [5.5, 0.5], [2.5, 3.5]]])  # x before y
    expected = torch.stack([image[0, :, 0, 0], image[0, :, 0, 5], image[0, :, 3, 2]])
    torch.testing.assert_close(sample(image, points, (4, 6))[0], expected)


def test_halfway_between_two_pixels_is_their_mean():
    image = torch.rand(1, 3, 4, 6)
    read = sample(image, torch.tensor([[[2.0, 0.5], [2.5, 1.0]]]), (4, 6))[0]
    torch.testing.assert_close(read[0], (image[0, :, 0, 1] + image[0, :, 0, 2]) / 2)
    torch.testing.assert_close(read[1], (image[0, :, 0, 2] + image[0, :, 1, 2]) / 2)


def test_outside_the_border_is_repeated():
    image = torch.rand(1, 3, 4, 6)
    outside = torch.tensor([[[-3.0, 0.5], [0.1, 0.1], [9.0, 2.5], [6.0, 4.0], [2.5, 50.0]]])
    nearest = torch.tensor([[[0.5, 0.5], [0.5, 0.5], [5.5, 2.5], [5.5, 3.5], [2.5, 3.5]]])
    torch.testing.assert_close(sample(image, outside, (4, 6)), sample(image, nearest, (4, 6)))


def test_resizing_by_s_maps_x_to_s_x():
    size, larger = (24, 36), (60, 90)
    image = ramps(*size, size)
    resized = F.interpolate(image, larger, mode="bilinear", align_corners=False)
    points = inner_points(12, 18, size)  # a pixel away from the border, where resizing repeats
    torch.testing.assert_close(sample(resized, 2.5 * points, larger), points)


def test_torchvision_resizes_by_the_same_convention():
    image = ramps(24, 36, (24, 36)).float()
    resized = v2.functional.resize(image, [72, 108], antialias=True)
    points = inner_points(12, 18, (24, 36)).float()
    torch.testing.assert_close(sample(resized, 3 * points, (72, 108)), points, atol=1e-3, rtol=0)


def test_a_map_of_any_stride_means_the_same_place():
    """Average pooling moves no centre: the coarse map reads the same coordinates as the fine one."""
    size = (48, 72)
    pooled = F.avg_pool2d(ramps(*size, size), 4)
    points = inner_points(12, 18, size)
    torch.testing.assert_close(sample(pooled, points, size), points)


def test_mirroring_maps_x_to_width_minus_x():
    image, points = torch.rand(1, 3, 5, 7, dtype=torch.float64), inner_points(5, 7, (5, 7))
    mirrored = torch.stack([7 - points[..., 0], points[..., 1]], -1)
    torch.testing.assert_close(sample(image.flip(3), mirrored, (5, 7)), sample(image, points, (5, 7)))


def test_cropping_subtracts_the_corner():
    image = torch.rand(1, 3, 9, 12, dtype=torch.float64)
    points = inner_points(6, 8, (6, 8))
    corner = torch.tensor([4, 3])
    torch.testing.assert_close(sample(image[:, :, 3:, 4:], points, (6, 8)), sample(image, points + corner, (9, 12)))


def test_affine_grids_agree():
    """affine_grid(align_corners=False) asks, for each output pixel, where it comes from: there, the ramps return it."""
    size = (20, 30)
    theta = torch.tensor([[[0.8, 0.1, 0.02], [-0.1, 0.7, -0.03]]], dtype=torch.float64)
    grid = F.affine_grid(theta, [1, 2, *size], align_corners=False)  # (1, H, W, 2) in [-1, 1]
    places = (grid + 1) / 2 * torch.tensor([size[1], size[0]])
    warped = F.grid_sample(ramps(*size, size), grid, padding_mode="border", align_corners=False)
    inside = ((places > 0.5) & (places < torch.tensor([size[1], size[0]]) - 0.5)).all(-1)[0]
    torch.testing.assert_close(warped[0].permute(1, 2, 0)[inside], places[0][inside])
    read = sample(warped, torch.tensor([[[10.5, 7.5], [20.5, 12.5]]], dtype=torch.float64), size)
    torch.testing.assert_close(read[0], torch.stack([places[0, 7, 10], places[0, 12, 20]]))


@FUZZ
@given(seeds, st.integers(1, 3), st.integers(1, 6), st.integers(0, 7))
def test_shapes_and_each_image_its_own_map(seed, batch, channels, n):
    torch.manual_seed(seed)
    maps, points = torch.rand(batch, channels, 5, 4), torch.rand(batch, n, 2) * 50
    together = sample(maps, points, (50, 50))
    assert together.shape == (batch, n, channels)
    for b in range(batch):
        torch.testing.assert_close(sample(maps[b : b + 1], points[b : b + 1], (50, 50))[0], together[b])


def test_places_are_not_rounded_when_the_map_is_bfloat16():
    """bf16 has 8 bits: rounded to it, a place near the right border of a 378 px image moves by up to 0.4 px."""
    step = torch.zeros(1, 1, 1, 378)
    step[..., 350:] = 1  # an edge at x = 350
    points = torch.stack([torch.linspace(345.0, 355.0, 101), torch.full((101,), 0.5)], -1)[None]
    read = sample(step.bfloat16(), points, (1, 378))
    assert read.dtype == torch.bfloat16
    torch.testing.assert_close(read.float(), sample(step, points, (1, 378)), atol=5e-3, rtol=0)


def test_node_features_are_unit_vectors_per_location_and_map():
    """Each location is normalized before it is read, so between two locations the vector is their shortened mean."""
    maps = (torch.randn(1, 5, 4, 6), 100 * torch.randn(1, 3, 2, 3))
    points = torch.tensor([[[5.0, 3.0], [3.0, 2.0]]])  # the centre of a cell of the fine map; between two coarse cells
    features = node_features(maps, points, (8, 12))
    assert features.shape == (1, 2, 8)
    torch.testing.assert_close(features[0, 0, :5], F.normalize(maps[0][0, :, 1, 2], dim=0))
    torch.testing.assert_close(features[0, 0, :5].norm(), torch.tensor(1.0))
    coarse = F.normalize(maps[1][0], dim=0)  # (3, 2, 3)
    torch.testing.assert_close(features[0, 1, 5:], 0.75 * coarse[:, 0, 0] + 0.25 * coarse[:, 0, 1])
    assert features[0, 1, 5:].norm() < 1


def test_node_features_do_not_depend_on_the_scale_of_a_map():
    maps = (torch.randn(2, 5, 4, 6), torch.randn(2, 3, 2, 3))
    points = torch.rand(2, 4, 2) * 10
    expected = node_features(maps, points, (8, 12))
    torch.testing.assert_close(node_features((maps[0] * 50, maps[1] / 9), points, (8, 12)), expected)


@pytest.mark.parametrize("function", [sample, lambda m, p, s: node_features((m, m**2 + 1), p, s)])
def test_gradients(function):
    feature_map = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    points = inner_points(3, 4, (6, 8), 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, p: function(m, p, (6, 8)), (feature_map, points))
