"""Distances, angles and ratios: values, units apart, errors as simulated, and definitions that cannot be read."""

import numpy as np
import pytest

from normmatch.annotations import Annotation
from normmatch.annotations.measures import columns
from normmatch.errors import InputError

XY = np.array([[0.0, 0.0], [30.0, 40.0], [30.0, 0.0], [0.0, 100.0]])
NAMES = ("nose", "neck", "left ear", "tail")
LINES = (
    "head length = nose to neck",
    "body = nose to tail",
    "bend = angle neck nose tail",
    "share = head length / body",
)


def one(scale: float | None = None, xy: np.ndarray = XY) -> Annotation:
    return Annotation("a.jpg", NAMES, xy, scale=scale)


def test_values_and_units() -> None:
    found = columns([one(), Annotation("b.jpg", ("nose",), XY[:1])], LINES)
    assert list(found) == ["head length (px)", "body (px)", "bend (degrees)", "share"]
    assert [values[0] for values in found.values()] == pytest.approx([50, 100, 36.8699, 0.5])
    assert np.isnan([values[1] for values in found.values()]).all()
    mm = columns([one(0.1), one()], LINES)
    assert list(mm)[:2] == ["head length (mm)", "body (mm)"]
    assert mm["head length (mm)"][0] == pytest.approx(5)
    assert np.isnan(mm["head length (mm)"][1])  # no scale: pixels do not go among millimetres
    assert mm["bend (degrees)"][1] == pytest.approx(36.8699)


def test_errors_are_those_of_repeated_setting() -> None:
    rng = np.random.default_rng(0)
    told = columns([one()], LINES, 0.01)
    repeated = columns([one(xy=XY + rng.normal(0, 1.0, XY.shape)) for _ in range(4000)], LINES)
    for name, unit in (("head length", " (px)"), ("body", " (px)"), ("bend", " (degrees)")):
        assert np.std(repeated[name + unit]) == pytest.approx(
            told[f"{name} error{unit}"][0], rel=0.1 if name == "bend" else 0.45
        )
    assert told["share error"][0] > 0


@pytest.mark.parametrize(
    "text",
    ["nose to neck", "a = nose", "a = nose to mouth", "a = angle nose neck", "a = head / body", "= nose to neck"],
)
def test_mistakes(text: str) -> None:
    with pytest.raises(InputError, match="The measure .* expected such as"):
        columns([one()], [text])
