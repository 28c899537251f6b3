"""The same landmarks set twice: distances, bias apart from scatter, repeats, joins, and what cannot be joined."""

from dataclasses import replace

import numpy as np
import pytest

from normmatch.annotations import Annotation
from normmatch.annotations.comparison import compare, rows_of
from normmatch.errors import InputError

NAMES = ("a", "b", "c", "d")
SHAPE = np.array([[0.0, 0.0], [100.0, 0.0], [100.0, 50.0], [0.0, 50.0]])


def person(
    move: tuple[float, float] = (0, 0), spread: float = 0.0, seed: int = 0, folder: str = ""
) -> list[Annotation]:
    """Twenty photographs; landmark c is moved by the same, all by chance."""
    rng = np.random.default_rng(seed)
    places = [
        SHAPE + 7 * k + rng.normal(0, spread, SHAPE.shape) + np.array(move) * [[0], [0], [1], [0]] for k in range(20)
    ]
    return [Annotation(f"{folder}{k}.jpg", NAMES, xy, scale=0.5) for k, xy in enumerate(places)]


def test_bias_apart_from_scatter() -> None:
    found = compare([person(), person((3, 4), 0.5, 1, "elsewhere/")])["others"]
    assert found.shares.shape == (20, 4)
    np.testing.assert_allclose(found.bias[2] * 100, (3, 4), atol=0.5)
    np.testing.assert_allclose(found.bias[[0, 1, 3]] * 100, 0, atol=0.5)
    np.testing.assert_allclose(found.scatter * 100, 0.5 * np.sqrt(2), rtol=0.5)
    rows = {row["landmark"]: row for row in rows_of(found)}
    assert rows["c"]["pixels"] == pytest.approx(5, abs=0.3)
    assert rows["c"]["share"] == pytest.approx(0.05, abs=0.003)
    assert rows["c"]["mm"] == pytest.approx(2.5, abs=0.15)
    assert rows["all"]["pairs"] == 80
    assert "mm" not in next(rows_of(compare([[replace(i, scale=None) for i in person()]] * 2)["others"]))


def test_badly_defined_landmarks() -> None:
    second = person(spread=0.5, seed=1)
    rng = np.random.default_rng(2)
    second = [replace(i, keypoints=np.add(i.keypoints, [[0, 0], rng.normal(0, 5, 2), [0, 0], [0, 0]])) for i in second]
    assert compare([person(), second])["others"].badly_defined == ("b",)


def test_people_against_themselves_and_each_other() -> None:
    repeated = [replace(item, image="x.jpg") for item in person(spread=0.5)[:1] * 3]
    other = [replace(person()[0], image="X.png", keypoints=np.add(SHAPE, (0, 1)))]
    found = compare([repeated, other])
    assert found["themselves"].shares.shape == (3, 4)
    assert found["others"].shares.shape == (1, 4)
    assert set(compare([repeated])) == {"themselves"}


def test_join_by_order() -> None:
    numbered = [replace(item, names=("1", "2", "3", "4")) for item in person((3, 4))]
    with pytest.raises(InputError, match="no landmark of the same name; expected some, or --join order"):
        compare([person(), numbered])
    assert compare([person(), numbered], "order")["others"].pixels[:, 2] == pytest.approx([5] * 20)


def test_mistakes() -> None:
    with pytest.raises(InputError, match="no photograph in common, such as 0.jpg and other0.jpg"):
        compare([person(), [replace(person()[0], image="other0.jpg")]])
    with pytest.raises(InputError, match="count y from different ends"):
        compare([person(), [replace(item, y_up=True) for item in person()]])
