"""Seeded generators of what a hostile or careless caller hands over: images, points, boxes, options, bytes, names."""

import fractions
import inspect
import io
import math
import numbers
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

Rng = np.random.Generator
HUGE = 10**400


def pick(rng: Rng, values: list[Any]) -> Any:
    """One of the values; functions among them are called."""
    value = values[int(rng.integers(len(values)))]
    return value() if inspect.isfunction(value) else value


def good_image(rng: Rng) -> np.ndarray:
    height, width = rng.integers(8, 60, 2)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


class Ragged:
    """Something that looks like an array until it is asked."""

    shape = (3, 8, 8)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RuntimeError("no array after all")


def odd_image(rng: Rng, folder: Path) -> Any:
    """An image of a kind that may or may not be one."""
    good = good_image(rng)
    tensor = torch.from_numpy(good).permute(2, 0, 1)

    def encoded(format: str, cut: int = 0) -> io.BytesIO:
        file = io.BytesIO()
        Image.fromarray(good).save(file, format)
        return io.BytesIO(file.getvalue()[: len(file.getvalue()) - cut])

    return pick(
        rng,
        [
            None, "", ".", "..", "/", "no such file.png", "a" * 300, "\0", "x\0y", "\udcff.png", "http://a.b/c.png", b"bytes", 7, 1.5, HUGE,
            True, [], [[1, 2], [3]], {}, set(), object(), type, np.nan, "$\\bad{$.png", Path(), Path("/dev/zero"), str(folder),
            lambda: good.astype(np.float32), lambda: good / 255, lambda: good / 255 + np.nan, lambda: good[:, :, 0], lambda: good[:, :, :2],
            lambda: np.dstack([good, good[:, :, :1]]), lambda: good.astype(np.int64), lambda: good.astype(complex), lambda: good[:0],
            lambda: good[:1, :1], lambda: good.astype(object), lambda: good[None], lambda: good.astype(bool), lambda: np.array("text"),
            lambda: np.empty((0, 0, 3), np.uint8), lambda: np.lib.stride_tricks.as_strided(np.zeros(3, np.uint8), (10**6, 10**6, 3), (0, 0, 1)),
            lambda: np.ma.masked_array(good, good > 9), lambda: good[::-1, ::-1], lambda: np.asfortranarray(good),
            lambda: tensor, lambda: tensor.float() / 255, lambda: (tensor.float() / 255).bfloat16(), lambda: (tensor.float() / 255).half(),
            lambda: tensor.float().to_sparse(), lambda: tensor.float().to("meta"), lambda: tensor.float().requires_grad_(), lambda: tensor[0],
            lambda: tensor[None].float(), lambda: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.quint8), lambda: tensor.to(torch.complex64),
            lambda: torch.nested.nested_tensor([tensor.float(), tensor.float()[:, :4]]), Ragged, Ragged(),
            lambda: Image.fromarray(good), lambda: Image.fromarray(good).convert("P"), lambda: Image.fromarray(good).convert("CMYK"),
            lambda: Image.fromarray(good).convert("LA"), lambda: Image.new("1", (9, 9)), lambda: Image.new("RGB", (0, 0)), lambda: Image.new("F", (9, 9)),
            lambda: Image.new("I;16", (9, 9)), lambda: Image.open(encoded("PNG")), lambda: Image.open(encoded("JPEG", 60)),
            lambda: encoded("PNG"), lambda: encoded("JPEG", 90), lambda: io.BytesIO(), lambda: io.StringIO("text"), lambda: io.BytesIO(b"x" * 99),
        ],
    )  # fmt: skip


def good_points(rng: Rng, count: int) -> np.ndarray:
    return rng.uniform(0, 8, (count, 2))


def odd_points(rng: Rng) -> Any:
    """Keypoints of a kind that may or may not be some."""
    points = good_points(rng, int(rng.integers(0, 9)))
    return pick(
        rng,
        [
            None, [], [[]], [[1, 2]], [(1, 2), (3, 4)], [[1, 2], [3]], "points", b"", 3, HUGE, [[HUGE, 1]], [[1e308, -1e308]], [[math.nan, 1]],
            [[math.inf, 1]], [["1", "2"]], [["a", "b"]], [["1_0", "2"]], [[None, None]], [[True, False]], [[1 + 2j, 3]], {"a": 1}, {(1, 2)}, object(),
            fractions.Fraction(1, 2), [[fractions.Fraction(1, 2), 3]], range(4), iter([[1, 2]]), lambda: np.zeros((5, 0)), lambda: np.zeros((0, 2)),
            lambda: np.zeros((2, 5)), lambda: np.zeros((3, 3)), lambda: np.zeros((2, 2, 2)), lambda: np.zeros((4, 2), complex), lambda: points,
            lambda: points.astype(np.float16), lambda: points.astype(int), lambda: points.astype(object), lambda: points.tolist(),
            lambda: torch.from_numpy(points), lambda: torch.from_numpy(points).bfloat16(), lambda: torch.from_numpy(points).to("meta"),
            lambda: torch.from_numpy(points).to_sparse(), lambda: np.zeros((3000, 2)), lambda: np.full((6, 2), 4.0), lambda: points * 1e6,
            lambda: np.ma.masked_array(points, points > 4), lambda: np.datetime64("2020") + np.zeros((2, 2), int), lambda: np.array([["a", "b"]]),
        ],
    )  # fmt: skip


def odd_box(rng: Rng) -> Any:
    return pick(
        rng,
        [
            None, (0, 0, 8, 8), [0, 0, 8, 8], (0, 0, 0, 0), (5, 5, -3, 4), (math.nan,) * 4, (math.inf,) * 4, (1, 2, 3), (1, 2, 3, 4, 5), "0 0 8 8",
            (HUGE, 0, 1, 1), (-1e9, -1e9, 2e9, 2e9), (1 + 1j, 0, 8, 8), {"x": 1}, 5, [[0, 0, 8, 8]], (True, True, True, True), ("0", "0", "8", "8"),
            object(), np.zeros((4, 4)), torch.tensor([0.0, 0, 9, 9]), b"1234", (None, 0, 1, 1), (0, 0, 1e-9, 1e-9),
        ],
    )  # fmt: skip


def no_points(value: Any) -> bool:
    """Whether keypoints are surely none, told without the library: they must be refused."""
    if isinstance(value, torch.Tensor):
        if value.is_meta or value.is_complex():
            return True
        value = value.to_dense().double().numpy() if value.layout != torch.strided else value.double().numpy()
    if isinstance(value, np.ndarray):
        if (
            value.dtype.kind not in "fiuO"
            or value.ndim != 2 - (value.shape == (0,))
            or value.shape[-1:] not in ((2,), (0,))
        ):
            return True
        if value.shape[0] and value.shape[1] == 0:
            return True
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return True
    number = lambda v: isinstance(v, int | float | fractions.Fraction) and not isinstance(v, bool) and abs(v) < 1e300
    return not all(isinstance(p, list | tuple) and len(p) == 2 and all(map(number, p)) for p in value)


def no_box(value: Any) -> bool:
    if isinstance(value, torch.Tensor | np.ndarray):
        value = value.tolist()
    return value is not None and (not isinstance(value, list | tuple) or no_points([value[:2], value[2:]]))


def no_flag(value: Any) -> bool:
    return not isinstance(value, bool | np.bool_)


def no_score(value: Any) -> bool:
    if isinstance(value, bool | torch.Tensor | np.ndarray | complex) or not isinstance(value, numbers.Real | None):
        return True
    return value is not None and not 0 <= value <= 1


def odd_flag(rng: Rng) -> Any:
    return pick(rng, [True, False, None, 0, 1, "abc", "", [], object(), math.nan, np.bool_(True), 2, torch.tensor(1)])


def odd_number(rng: Rng) -> Any:
    return pick(
        rng,
        [
            None, 0, 1, 0.5, -1, 2, 10**5000, math.nan, math.inf, -math.inf, HUGE, -HUGE, "0.5", "abc", "", [], [0.5], {}, object(), 1j, True, b"1",
            np.float32(0.3), np.array(0.2), np.array([0.1, 0.2]), torch.tensor(0.4), fractions.Fraction(1, 3), 1e-320,
        ],
    )  # fmt: skip


def odd_name(rng: Rng) -> str:
    """A name of a keypoint, a class or a file."""
    return pick(
        rng,
        [
            "eye", "", " ", ".", "..", "/", "a/b", "$\\bad{$", "$x^2$", "_", "-dash", "--json", "=1+1", "@cmd", "+1", "a\nb", "a\0b", "\u202eright", "\udcff",
            "x" * 300, "é", "日本", "👁", "%s", "{0}", "[red]x[/red]", "NaN", "None", "0", "con", "a.b.c", "\x1b[31m", "'; --", "<b>", "\ufeff",
        ],
    )  # fmt: skip


def damaged(rng: Rng, content: bytes) -> bytes:
    """The bytes, cut off, flipped, repeated or replaced."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        kind = int(rng.integers(6))
        place = int(rng.integers(len(data) + 1)) if data else 0
        if kind == 0:
            del data[place:]
        elif kind == 1 and data:
            data[place % len(data)] = int(rng.integers(256))
        elif kind == 2:
            data[place:place] = bytes(rng.integers(0, 256, int(rng.integers(1, 9)), dtype=np.uint8))
        elif kind == 3:
            data[place : place + 20] = b""
        elif kind == 4:
            data[place:place] = pick(
                rng,
                [
                    b"[" * 5000,
                    b"{" * 999,
                    b"Infinity",
                    b"NaN",
                    b"1e999",
                    b"-",
                    b"\0",
                    b"\xff\xfe",
                    b'"',
                    b",,,",
                    b"9" * 5000,
                ],
            )
        else:
            data = bytearray(
                pick(
                    rng,
                    [
                        b"",
                        b"null",
                        b"[]",
                        b"{}",
                        b"0",
                        b"\n",
                        b"\xef\xbb\xbf",
                        b"PK\x03\x04",
                        b"\x89PNG\r\n\x1a\n",
                        b"a,b\n1,2\n",
                    ],
                )
            )
    return bytes(data)


def deep(depth: int) -> list[Any]:
    """Lists in lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value
