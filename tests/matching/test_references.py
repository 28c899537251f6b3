"""The one linear solve that reads landmarks from references."""

import numpy as np
import pytest

from normmatch.matching.references import Background, Cells, Looks, around, log_likelihood, make_cells, solve


def random_cells(seed: int, width: int = 20) -> Cells:
    maps = np.random.default_rng(seed).normal(size=(1, width, 6, 8))
    return make_cells(maps, 2)[0]


def test_each_blocks_vectors_have_the_same_length() -> None:
    cells = random_cells(0)
    parts = cells.features.reshape(48, 2, 10)
    np.testing.assert_allclose(np.linalg.norm(parts, axis=2), np.sqrt(0.5), rtol=1e-5)
    np.testing.assert_allclose(cells.grid[9], (1.5 / 8, 1.5 / 6))


def test_cells_around_points() -> None:
    cells = random_cells(0)
    weights = around(np.array([[1.5 / 8, 1.5 / 6], [np.nan, np.nan], [-3.0, 0.5]]), cells)
    assert weights[0].argmax() == 9
    np.testing.assert_allclose(weights.sum(1), (1, 0, 1), rtol=1e-5)


def test_a_landmark_answers_one_where_the_reference_has_it() -> None:
    cells = [random_cells(seed, 60) for seed in range(4)]
    looks = Looks.none(3, 60)
    places = cells[0].grid[[5, 20, 40]]
    looks.add(cells[0], places)
    filters = solve(looks, Background.of(cells))
    answers = filters.answer(cells[0])
    assert answers.argmax(1).tolist() == [5, 20, 40]
    assert answers.max() < 2
    logs = log_likelihood(answers, filters.known)
    np.testing.assert_allclose(np.exp(logs).sum(1), 1, rtol=1e-5)


def test_references_that_lack_a_landmark_say_nothing_of_it() -> None:
    cells = random_cells(0)
    looks = Looks.none(2, 20)
    looks.add(cells, np.array([[0.5, 0.5], [np.nan, np.nan]]))
    filters = solve(looks, Background.of([cells]))
    assert filters.known.tolist() == [True, False]
    logs = log_likelihood(filters.answer(cells), filters.known)
    assert np.ptp(logs[1]) == 0
    assert np.ptp(logs[0]) > 0


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_blank_picture_has_an_answer(value: float) -> None:
    (cells,) = make_cells(np.full((1, 20, 6, 8), value), 2)
    looks = Looks.none(1, 20)
    looks.add(cells, np.array([[0.5, 0.5]]))
    filters = solve(looks, Background.of([cells]))
    logs = log_likelihood(filters.answer(cells), filters.known)
    assert np.isfinite(logs).all()
    assert np.ptp(logs) < 1
