"""Whatever is handed to the library ends in an answer or in one sentence: FUZZ_CASES calls, by FUZZ_SEED."""

import copy
import fractions
import io
import math
import os
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from normmatch import Matcher, NormMatch, NormMatchError, viz
from normmatch.checks import shown
from normmatch.model.backbone import Features
from tests.fuzz import values
from tests.matching.locating_scene import FakeEncoder
from tests.matching.scene import tiny_model

CASES = int(os.environ.get("FUZZ_CASES", "75"))
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
        self.calls = self.answers = 0  # hunters that are always refused find nothing

    def __call__(
        self,
        case: int,
        call: Callable[[], Any],
        check: Callable[[Any], None] = lambda _: None,
        refused: bool = False,
        about: str = "",
    ) -> None:
        """`check` looks at the answer; with `refused` there must be none."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.calls += 1
            try:
                check(call())
                self.answers += 1
                if refused:
                    self.caught.append(f"case {case}: nonsense was taken for an answer{about}")
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
        assert self.answers or self.calls < 500, f"no answer to {self.calls} calls"
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


def nonsense(arguments: dict[str, Any]) -> bool:
    """Whether something in the arguments of `match` must be refused."""
    checks = {
        "keypoints": values.no_points,
        "box": values.no_box,
        "one_to_one": values.no_flag,
        "mutual": values.no_flag,
    }
    return any(
        {**checks, "min_score": values.no_score}.get(name.rstrip("01"), lambda _: False)(value)
        for name, value in arguments.items()
    )


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
        hunt(
            case,
            lambda: matcher.match(**arguments),
            check_result,
            refused=nonsense(arguments),
            about=f": {shown({k: v for k, v in arguments.items() if k[:5] != 'image'})}",
        )
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
            "backend": lambda: values.pick(rng, [None, "", "auto", "torch", "onnx", "tf", 5, []]),
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
                values.odd_image(rng, tmp_path) if rng.random() < 0.1 else values.good_image(rng) for _ in range(2)
            ]
            figure = viz.plot_images(images, titles=[values.odd_name(rng), values.odd_name(rng)])
            points = [values.odd_points(rng) if rng.random() < 0.15 else values.good_points(rng, 3) for _ in range(2)]
            names = [values.odd_name(rng) for _ in range(3)] if rng.random() < 0.7 else None
            matches = values.pick(
                rng, [*[np.array([0, 1, -1])] * 4, np.array([0, 9, 1]), [0, 1, 2], None, "abc", np.array([0.5, 1, 2])]
            )
            viz.plot_matches(
                figure,
                *points,
                matches,
                values.pick(rng, [None, None, [0.1, 0.5, 1], [0, 0, 1], [2, 3, 4], "x"]),
                names=names,
            )
            viz.save_plot(
                figure,
                values.pick(rng, ["a.png", "a.png", "a.webp", "b.svg", "a", "", ".png", "x/y.pdf", "a\0.png", "c.jpg"]),
                dpi=30,
            )

        hunt(case, draw)
    hunt.done()


@pytest.mark.parametrize("part", range(PARTS))
def test_networks(model: NormMatch, part: int, tmp_path: Path) -> None:
    """`NormMatch` itself: tensors of odd kinds, features of another network, files in odd places."""
    other = NormMatch(replace(model.config, backbone_layers=(1, 2))).eval()
    hunt = Hunt()
    for case in range(part, CASES // 4, PARTS):
        rng = np.random.default_rng((SEED, 11, case))
        image, points = torch.rand(1, 3, 64, 64), 64 * torch.rand(1, 4, 2)

        def tensor(good: torch.Tensor, rng: np.random.Generator = rng) -> Any:
            kinds = [
                lambda: good.to(str(rng.choice(["meta", "cpu"]))), lambda: good.to_sparse(), lambda: good.bfloat16(), lambda: good.double(),
                lambda: good.half(), lambda: good.int(), lambda: good > 0.5, lambda: good.to(torch.complex64), lambda: good[:0], lambda: good[0],
                lambda: good[:, :1], lambda: good * math.nan, lambda: good.numpy(), lambda: good.repeat(2, *[1] * (good.ndim - 1)),
                lambda: good.clone().requires_grad_(), lambda: torch.quantize_per_tensor(good, 0.1, 0, torch.quint8), lambda: None, lambda: "x",
                lambda: torch.nested.nested_tensor([good[0], good[0][:, :1]]), lambda: good.mT, lambda: good[..., :1],
            ]  # fmt: skip
            return values.pick(rng, kinds)

        data: dict[str, Any] = {"image0": image, "image1": image, "keypoints0": points, "keypoints1": points}
        odd = {
            **{key: lambda key=key: tensor(data[key]) for key in data},  # type: ignore[misc]
            "mask0": lambda: tensor(torch.rand(1, 4) > 0.3),
            "adjacency1": lambda: tensor(torch.rand(1, 4, 4) > 0.3),
            "features0": lambda: values.pick(
                rng,
                [
                    lambda: other.encode(image),
                    lambda: model.encode(image),
                    None,
                    5,
                    lambda: Features((image, image), image, (3, 3)),
                    lambda: Features((1, 2), 3, 4),  # type: ignore[arg-type]
                    lambda: Features((image[:, :0], image), image[0], (64, 64)),
                    lambda: model.encode(image)._replace(size=(0, -1)),
                    lambda: model.encode(image)._replace(size=None),
                ],
            ),
        }
        for name in rng.choice(list(odd), int(rng.integers(1, 3)), replace=False):
            try:
                data[name] = odd[name]()
            except (RuntimeError, IndexError):  # torch has no such tensor
                continue
        place = values.pick(rng, [".", "", "\0", "a" * 300, None, 5, "new.safetensors"])
        calls = [
            lambda: model(data),
            lambda: model(data),
            lambda: model(data),
            lambda: model(values.pick(rng, [None, [], 5, {}, "data"])),
            lambda: model.encode(values.pick(rng, [None, 5, "x", lambda: data["image0"]])),
            lambda: model.save_pretrained(
                tmp_path / place if isinstance(place, str) else place,
                bits=values.pick(rng, [32, 16, 8, 64, 0, "8", None]),
            ),
            lambda: NormMatch(values.pick(rng, [None, 5, "small", {}])),
        ]
        hunt(case, calls[int(rng.integers(len(calls)))])
    hunt.done()


def test_the_same_answer_for_the_same_picture(matcher: Matcher, tmp_path: Path) -> None:
    """An image and points of any kind that is taken are what they are as arrays."""
    rng = np.random.default_rng((SEED, 12))
    pixels, points = values.good_image(rng), values.good_points(rng, 6)
    points = points.astype(np.float32).astype(np.float64)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    file = tmp_path / "a.png"
    file.write_bytes(buffer.getvalue())
    buffer.seek(0)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    expected = matcher.match(pixels, pixels, points, points)
    with file.open("rb") as opened:
        images = [
            file, str(file), buffer, opened, Image.fromarray(pixels), Image.open(file), tensor, tensor.contiguous(), tensor / 255, pixels / 255,
            (tensor / 255).requires_grad_(), (tensor / 255).to_sparse(), np.asfortranarray(pixels), pixels[::-1][::-1],
        ]  # fmt: skip
        for image in [*images, buffer, opened]:  # an open file is left where it was: it can be read again
            found = matcher.match(image, image, points, points)
            np.testing.assert_array_equal(found["similarity"], expected["similarity"], err_msg=str(type(image)))
        assert (buffer.tell(), opened.tell(), buffer.closed, opened.closed) == (0, 0, False, False)
    exact = [[fractions.Fraction(value) for value in point] for point in points.tolist()]
    for given in (points.tolist(), torch.from_numpy(points), points.astype(np.float32), points.astype(object), exact):
        found = matcher.match(pixels, pixels, given, given)
        np.testing.assert_array_equal(found["similarity"], expected["similarity"])


def check_located(found: Any) -> None:
    for one in found if isinstance(found, list) else [found]:
        assert one.keypoints.shape == (len(one.scores), 2)
        assert np.isfinite(one.keypoints).all()
        assert ((one.scores >= 0) & (one.scores <= 1)).all()


@pytest.mark.parametrize("part", range(PARTS))
def test_locate(model: NormMatch, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matcher = Matcher(model, device="cpu", precision="float32")
    matcher.backend = FakeEncoder()  # type: ignore[assignment]
    hunt = Hunt()
    for case in range(part, CASES // 4, PARTS):
        rng = np.random.default_rng((SEED, 14, case))
        image = lambda: values.good_image(rng) if rng.random() < 0.8 else values.odd_image(rng, tmp_path)
        some = lambda: values.good_points(rng, 5) if rng.random() < 0.8 else values.odd_points(rng)
        box = lambda: None if rng.random() < 0.7 else values.odd_box(rng)
        reference = (image(), some(), box())
        references = values.pick(
            rng,
            [
                [reference],
                [reference],
                [reference] * 3,
                None,
                [],
                "ab",
                [5],
                [reference[:1]],
                [reference * 2],
                {},
                [None],
            ],
        )
        images = values.pick(
            rng, [[image()], [image()] * 4, iter([image()] * 2), None, "abc", 5, {}, np.zeros((3, 9, 9, 3), np.uint8)]
        )
        boxes = values.pick(rng, [None, None, [box()], [box()] * 4, "abc", 5, {}, iter([None])])
        odd = {
            "looks": lambda: values.pick(rng, [1, 2, 0, 3, True, "2", np.array([1, 2]), None]),
            "learn": lambda: values.odd_flag(rng),
            "turned": lambda: values.odd_flag(rng),
            "mirrored": lambda: values.odd_flag(rng),
            "flip": lambda: values.pick(
                rng, [None, [1, 0, 2, 3, 4], [0], "ab", 5, [0.5] * 5, [[1, 0]], [0, 1, 2, 3, 10**400], {}]
            ),
        }
        options = {name: odd[name]() for name in rng.choice(list(odd), int(rng.integers(0, 3)), replace=False)}
        calls = [
            lambda: list(matcher.locate_many(references, images, boxes, **options)),
            lambda: matcher.locate(image(), image(), some(), box0=box(), box1=box(), looks=1),
        ]
        nonsense = any(values.no_flag(options.get(name, True)) for name in ("learn", "turned", "mirrored"))
        chosen = int(rng.integers(len(calls)))
        hunt(case, calls[chosen], check_located, refused=nonsense and chosen == 0)
    hunt.done()
