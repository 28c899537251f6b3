"""Whatever is handed to the library ends in an answer or in one sentence: FUZZ_CASES calls, by FUZZ_SEED."""

import copy
import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normmatch import Matcher, NormMatch, NormMatchError, viz
from tests.fuzz import values
from tests.matching.scene import tiny_model

CASES = int(os.environ.get("FUZZ_CASES", "240"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
PARTS = 8  # so that several processes share them
LONGEST = 300  # characters of a sentence


@pytest.fixture(scope="module")
def model() -> NormMatch:
    return tiny_model()


@pytest.fixture(scope="module")
def matcher(model: NormMatch) -> Matcher:
    return Matcher(model, device="cpu", precision="float32")


def check_sentence(error: NormMatchError) -> None:
    """One line that a person can read: not empty, not long, not a list of somebody's insides."""
    text = str(error)
    assert text.strip()
    assert len(text) <= LONGEST, text
    assert "\n" not in text, text
    assert "Traceback" not in text


class Hunt:
    """Calls that must end in an answer or in one sentence; `done` tells of all that did not, not of the first alone."""

    def __init__(self) -> None:
        self.caught: list[str] = []

    def __call__(self, case: int, call: Callable[[], Any], check: Callable[[Any], None] = lambda _: None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                check(call())
            except NormMatchError as error:
                try:
                    check_sentence(error)
                except AssertionError as complaint:
                    self.caught.append(f"case {case}: {complaint}")
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)
                ours = [f"{Path(f.filename).name}:{f.lineno}" for f in where if "normmatch" in f.filename]
                self.caught.append(f"case {case}: {type(error).__name__}: {str(error)[:150]} at {' '.join(ours[-3:])}")

    def done(self) -> None:
        assert not self.caught, "\n".join([f"{len(self.caught)} foreign answers", *self.caught])


def one_match(rng: np.random.Generator, folder: Path) -> dict[str, Any]:
    """Arguments of `match`, most of them good, one or two odd."""
    arguments: dict[str, Any] = {}
    for i in "01":
        arguments |= {
            f"image{i}": values.good_image(rng),
            f"keypoints{i}": values.good_points(rng, int(rng.integers(1, 6))),
        }
    odd: dict[str, Callable[[], Any]] = {
        **{f"image{i}": lambda: values.odd_image(rng, folder) for i in "01"},
        **{f"keypoints{i}": lambda: values.odd_points(rng) for i in "01"},
        **{f"box{i}": lambda: values.odd_box(rng) for i in "01"},
        "one_to_one": lambda: values.odd_flag(rng),
        "mutual": lambda: values.odd_flag(rng),
        "min_score": lambda: values.odd_number(rng),
    }
    for name in rng.choice(list(odd), int(rng.integers(1, 3)), replace=False):
        arguments[name] = odd[name]()
    return arguments


def check_result(result: Any) -> None:
    m, n = result["similarity"].shape
    assert result["matches0"].shape == result["matching_scores0"].shape == (m,)
    assert result["matches1"].shape == result["matching_scores1"].shape == (n,)
    assert ((result["matches0"] >= -1) & (result["matches0"] < n)).all()
    assert np.isfinite(result["matching_scores0"]).all()


@pytest.mark.parametrize("part", range(PARTS))
def test_match(matcher: Matcher, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hunt = Hunt()
    for case in range(part, CASES, PARTS):
        rng = np.random.default_rng((SEED, 1, case))
        arguments = one_match(rng, tmp_path)
        kept = {
            key: copy.deepcopy(value)
            for key, value in arguments.items()
            if isinstance(value, np.ndarray) and value.nbytes < 1e6
        }
        hunt(case, lambda: matcher.match(**arguments), check_result)
        for key, value in kept.items():
            np.testing.assert_array_equal(arguments[key], value, err_msg=f"case {case} changed {key}")
    assert os.listdir(tmp_path) == []
    hunt.done()


@pytest.mark.parametrize("part", range(PARTS))
def test_many(matcher: Matcher, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hunt = Hunt()
    for case in range(part, CASES // 4, PARTS):
        rng = np.random.default_rng((SEED, 2, case))
        images = [values.odd_image(rng, tmp_path) if rng.random() < 0.3 else values.good_image(rng) for _ in range(3)]
        points = [values.odd_points(rng) if rng.random() < 0.3 else values.good_points(rng, 3) for _ in range(3)]
        odd = {"boxes": values.pick(rng, [None, [], [None] * 3, [values.odd_box(rng)] * 3, "abc", 5, {}])}
        call = values.pick(
            rng,
            [
                lambda: lambda: matcher.match_many(images, points, **odd),
                lambda: lambda: matcher.match_many(iter(images), iter(points)),
                lambda: lambda: matcher.match_batch([tuple(images[:2] + points[:2])[: int(rng.integers(0, 5))]]),
                lambda: (
                    lambda: matcher.match_batch(
                        values.pick(rng, [None, 5, "ab", [None], [5], [{}], [()], [("a", "b")], {}])
                    )
                ),
                lambda: (
                    lambda: matcher.match_many(
                        values.pick(rng, [None, 5, "ab", {}, []]), values.pick(rng, [None, [], "ab"])
                    )
                ),
            ],
        )
        hunt(case, call)
    hunt.done()


@pytest.mark.parametrize("part", range(PARTS))
def test_matchers_that_may_not_be(model: NormMatch, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    hunt = Hunt()
    for case in range(part, CASES // 4, PARTS):
        rng = np.random.default_rng((SEED, 3, case))
        odd = {
            "weights": lambda: values.pick(
                rng,
                [
                    None,
                    "",
                    ".",
                    "/",
                    5,
                    b"",
                    "a" * 300,
                    "\0",
                    [],
                    model,
                    "tiny",
                    "damaged.safetensors",
                    Path(),
                    object(),
                    {},
                ],
            ),
            "device": lambda: values.pick(
                rng, [None, "", "meta", "cuda:99", "cpu:0", "cpu", 5, "tpu", "auto ", object(), "xla", "vulkan"]
            ),
            "backend": lambda: values.pick(rng, [None, "", "torch", "onnx", "tf", 5, []]),
            "precision": lambda: values.pick(rng, [None, "", "float32", "float64", "int8", 16, [], "auto"]),
            "cache": lambda: values.odd_number(rng),
            "compile": lambda: values.pick(rng, [False, None, 0]),
        }
        arguments: dict[str, Any] = {"weights": model}
        for name in rng.choice(list(odd), int(rng.integers(1, 3)), replace=False):
            arguments[name] = odd[name]()
        before = {key: value.clone() for key, value in list(model.state_dict().items())[:3]}
        hunt(case, lambda: Matcher(**arguments))
        assert next(model.parameters()).device.type == "cpu"
        assert all((model.state_dict()[key] == value).all() for key, value in before.items())
    hunt.done()


@pytest.mark.parametrize("part", range(PARTS))
def test_pictures(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hunt = Hunt()
    for case in range(part, CASES // 6, PARTS):
        rng = np.random.default_rng((SEED, 4, case))

        def draw(rng: np.random.Generator = rng) -> None:
            images = [
                values.odd_image(rng, tmp_path) if rng.random() < 0.2 else values.good_image(rng) for _ in range(2)
            ]
            figure = viz.plot_images(images, titles=[values.odd_name(rng), values.odd_name(rng)])
            points = [values.odd_points(rng) if rng.random() < 0.3 else values.good_points(rng, 3) for _ in range(2)]
            names = [values.odd_name(rng) for _ in range(3)] if rng.random() < 0.7 else None
            matches = values.pick(
                rng, [np.array([0, 1, -1]), np.array([0, 9, 1]), [0, 1, 2], None, "abc", np.array([0.5, 1, 2])]
            )
            viz.plot_matches(
                figure, *points, matches, values.pick(rng, [None, [0.1, 0.5, 1], [2, 3, 4], "x"]), names=names
            )
            viz.save_plot(
                figure, values.pick(rng, ["a.png", "b.svg", "a", "", ".png", "x/y.pdf", "a\0.png", "c.jpg"]), dpi=30
            )

        hunt(case, draw)
    hunt.done()
