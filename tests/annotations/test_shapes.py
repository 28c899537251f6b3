"""Shape statistics: slips are found and their places known, in any frame, with gaps, with few things and with many."""

import numpy as np
import pytest

from normmatch.annotations.procrustes import align
from normmatch.annotations.shapes import Shapes, given_others, without


def things(number: int, landmarks: int = 10, seed: int = 0, vary: float = 0.01) -> np.ndarray:
    """(R, K, 2): one shape, bent a little, turned, of any size, anywhere."""
    rng = np.random.default_rng(seed)
    shape = rng.uniform(0, 1, (landmarks, 2))
    bend = rng.normal(0, 0.05, (2, landmarks, 2))
    laid = shape + np.einsum("rm,mkd->rkd", rng.normal(0, 1, (number, 2)), bend)
    laid = laid + rng.normal(0, vary, laid.shape)
    angle, size = rng.uniform(-0.5, 0.5, number), rng.uniform(50, 500, number)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
    return np.einsum("rij,rkj->rki", turn, laid) * size[:, None, None] + rng.uniform(0, 1000, (number, 1, 2))


def slip(points: np.ndarray, where: list[tuple[int, int]], by: float = 0.2) -> np.ndarray:
    moved = points.copy()
    for thing, landmark in where:
        moved[thing, landmark, 0] += by * np.ptp(points[thing], axis=0).max()
    return moved


@pytest.mark.parametrize("number", [12, 40, 500])
def test_slips_are_found_and_where_they_should_be(number: int) -> None:
    points, where = things(number), [(1, 2), (4, 7), (5, 2), (5, 9)]
    shapes = Shapes(slip(points, where))
    worst = np.argsort(-shapes.doubt, axis=None)[: len(where)]
    assert {(int(k) // 10, int(k) % 10) for k in worst} == set(where)
    off = np.linalg.norm(shapes.expected - points, axis=2) / shapes.sizes[:, None]
    assert max(off[place] for place in where) < (0.15 if number < 20 else 0.06)
    assert {(int(r), int(k)) for r, k in np.argwhere(shapes.off)} >= {(5, 2)}
    assert shapes.off.sum() < 0.02 * number * 10 + 5


def test_frames_and_order_change_nothing() -> None:
    points = slip(things(30), [(3, 4)])
    shapes, order = Shapes(points), np.random.default_rng(1).permutation(10)
    again = Shapes(points[:, order] * 3 + 7)
    np.testing.assert_allclose(again.doubt, shapes.doubt[:, order], atol=1e-5)
    np.testing.assert_allclose(again.expected, shapes.expected[:, order] * 3 + 7, rtol=1e-5)


def test_gaps_stay_gaps_and_are_foretold() -> None:
    points = things(60, vary=0.002)
    gaps = points.copy()
    gaps[::3, 1] = gaps[0, 2] = np.nan
    shapes = Shapes(gaps)
    assert np.isneginf(shapes.doubt[::3, 1]).all()
    assert np.isfinite(shapes.doubt[1]).all()
    off = np.linalg.norm(shapes.expected - points, axis=2) / shapes.sizes[:, None]
    assert np.median(off[::3, 1]) < 0.04
    assert (shapes.spread > 0).all()


def test_few_landmarks_and_few_things() -> None:
    for number, landmarks in ((1, 3), (2, 4), (3, 2), (5, 1)):
        shapes = Shapes(things(number, landmarks))
        assert np.isfinite(shapes.doubt).all()
        assert not shapes.off.any()
    assert np.isfinite(align(np.full((3, 4, 2), 5.0))[1]).all()  # all landmarks in one place


def test_leaving_a_landmark_out_is_the_inverse_of_the_rest() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 8, 8))
    cov, worst = root @ root.transpose(0, 2, 1) + np.eye(8), np.array([0, 2, 3])
    rest = without(np.linalg.inv(cov), worst)
    place = rng.normal(size=(3, 4, 2))
    for thing, landmark in enumerate(worst):
        kept = [i for i in range(8) if i % 4 != landmark]
        np.testing.assert_allclose(rest[thing][np.ix_(kept, kept)], np.linalg.inv(cov[thing][np.ix_(kept, kept)]))
    _, residual, spread = given_others(np.linalg.inv(cov), place)
    flat, others = place.transpose(0, 2, 1).reshape(3, -1), [0, 1, 3, 4, 5, 7]
    gain = cov[1][np.ix_([2, 6], others)] @ np.linalg.inv(cov[1][np.ix_(others, others)])
    np.testing.assert_allclose(residual[1, 2], place[1, 2] - gain @ flat[1, others])
    np.testing.assert_allclose(spread[1, 2], cov[1][np.ix_([2, 6], [2, 6])] - gain @ cov[1][np.ix_(others, [2, 6])])
