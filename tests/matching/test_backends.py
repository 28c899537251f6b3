"""Torch and onnxruntime give the same answers, and both keep the promises that matching makes.

The bundled network is asked about some pairs of the samples and of drawn figures; PAIRS=200 asks about so many.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch import Matcher
from normmatch.datasets.drawn import LABELS, draw_figure
from normmatch.io import read_image
from normmatch.matching.samples import find_samples
from tests.matching.scene import photograph, points

Make = Callable[..., Matcher]
PAIRS = int(os.environ.get("PAIRS", "3"))
KINDS: Any = [("torch", "float32"), ("onnx", "float32"), ("onnx", "int8")]


@pytest.fixture(params=KINDS, ids="-".join)
def matcher(request: pytest.FixtureRequest, exported_folder: Path) -> Matcher:
    backend, precision = request.param
    return Matcher(exported_folder, device="cpu", backend=backend, precision=precision, cache=0)


def test_the_bundled_network_answers_alike() -> None:
    """A similarity differs by less than 1e-3, and no match does."""
    samples = [(read_image(s.path), s.points.keypoints) for s in find_samples()]
    seeds = range(next(n for n in range(100) if (len(samples) + n) * (len(samples) + n - 1) // 2 >= PAIRS))
    figures = [draw_figure(seed, LABELS[seed % len(LABELS)], 378) for seed in seeds]
    images, keypoints = zip(*samples, *((image, xy) for image, _, xy in figures), strict=True)
    found, expected = (
        Matcher(device="cpu", backend=backend, precision="float32").match_many(images, keypoints)
        for backend in ("onnx", "torch")
    )
    assert found.keys() == expected.keys()
    assert len(found) >= PAIRS
    for pair, result in found.items():
        np.testing.assert_allclose(result["similarity"], expected[pair]["similarity"], atol=1e-3)
        np.testing.assert_array_equal(result["matches0"], expected[pair]["matches0"])


def test_a_pair_alone_and_among_others(matcher: Matcher) -> None:
    pairs = [(photograph(i), photograph(i + 1), points(i, 3 + i), points(i + 9, 9 - i)) for i in range(4)]
    for result, pair in zip(matcher.match_batch(pairs), pairs, strict=True):
        alone = matcher.match(*pair)
        np.testing.assert_allclose(result["similarity"], alone["similarity"], atol=1e-5)
        np.testing.assert_array_equal(result["matches0"], alone["matches0"])


def test_the_order_of_points(matcher: Matcher) -> None:
    xy0, xy1 = points(0, 9), points(1, 7)
    order0, order1 = np.random.default_rng(1).permutation(9), np.random.default_rng(2).permutation(7)
    straight = matcher.match(photograph(0), photograph(1), xy0, xy1)
    shuffled = matcher.match(photograph(0), photograph(1), xy0[order0], xy1[order1])
    np.testing.assert_allclose(shuffled["similarity"], straight["similarity"][order0][:, order1], atol=1e-5)
    np.testing.assert_array_equal(order1[shuffled["matches0"]], straight["matches0"][order0])


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_which_image_comes_first(precision: str) -> None:
    """The streams of the bundled network share their weights."""
    matcher = Matcher(device="cpu", backend="onnx", precision=precision)
    first, second, *_ = find_samples()
    there = matcher.match(first.path, second.path, first.points.keypoints, second.points.keypoints)
    back = matcher.match(second.path, first.path, second.points.keypoints, first.points.keypoints)
    np.testing.assert_allclose(back["similarity"].T, there["similarity"], atol=1e-5)
    np.testing.assert_array_equal(back["matches0"], there["matches1"])
    assert (there["matches0"][:6] == np.arange(6)).all()


def test_each_photograph_is_seen_once(exported_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher(exported_folder, backend="onnx")
    seen: dict[str, int] = {"encode": 0, "embed": 0}
    for name in seen:
        call = getattr(matcher.backend, name)

        def counted(items: Any, *rest: Any, name: str = name, call: Any = call) -> Any:
            seen[name] += len(items)
            return call(items, *rest)

        monkeypatch.setattr(matcher.backend, name, counted)
    assert len(matcher.match_many([photograph(i) for i in range(5)], [points(i, 4) for i in range(5)])) == 10
    assert seen == {"encode": 5, "embed": 5}
