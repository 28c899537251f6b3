"""Names stand where they can be read."""

import numpy as np

from normmatch.labels import fineness, overlap, place


def test_names_do_not_cover_each_other() -> None:
    points = np.random.default_rng(0).uniform(100, 580, (12, 2))
    boxes = place(points, [150.0] * 12, 30, np.array([680, 680]))  # (12, 4)
    shared = overlap(boxes, boxes)
    np.fill_diagonal(shared, 0)
    assert shared.max() < 0.1 * 150 * 30
    assert boxes.min() >= 0
    assert boxes.max() <= 680
    np.testing.assert_allclose(boxes[:, 2:] - boxes[:, :2], [[150, 30]] * 12)


def test_a_lonely_name_stands_beside_its_point() -> None:
    ((x0, y0, x1, y1),) = place(np.array([[50.0, 50.0]]), [20.0], 10, np.array([100, 100]))
    assert y0 < 50 < y1
    assert 50 < x0 < 60 < x1 < 85


def test_overlap_is_the_area_that_boxes_share() -> None:
    boxes = np.array([[0, 0, 4, 4], [2, 3, 6, 9], [4, 0, 5, 1]])
    np.testing.assert_array_equal(overlap(boxes[:1], boxes), [[16, 2, 0]])


def test_many_points_are_finer() -> None:
    assert [fineness(count) for count in (0, 10, 40, 10_000)] == [1.0, 1.0, 0.5, 0.3]


def test_no_points() -> None:
    assert place(np.zeros((0, 2)), [], 10, np.array([100, 100])).shape == (0, 4)
