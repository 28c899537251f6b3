"""Photographs matched by onnxruntime: the same answers as torch's, without torch."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import Matcher
from normmatch.errors import ConfigError, InputError, NormMatchError, WeightsError
from normmatch.matching.backends import onnx
from tests.matching.scene import photograph, points


@pytest.fixture(scope="module")
def matcher(exported_folder: Path) -> Matcher:
    return Matcher(exported_folder, backend="onnx")


def make_pairs(*counts: tuple[int, int]) -> list[tuple[Any, ...]]:
    return [(photograph(i), photograph(i + 1), points(i, m), points(i + 50, n)) for i, (m, n) in enumerate(counts)]


def assert_same(result: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert result.keys() == expected.keys()
    for key, value in expected.items():
        assert result[key].dtype == value.dtype
        np.testing.assert_allclose(result[key], value, atol=2e-3 if key == "log_assignment" else 1e-4, err_msg=key)


@pytest.mark.parametrize("options", [{}, {"one_to_one": True}, {"mutual": True}, {"min_score": 0}], ids=str)
def test_the_same_answers_as_torch(matcher: Matcher, exported_folder: Path, options: dict[str, Any]) -> None:
    pairs = make_pairs((7, 12), (1, 1), (20, 3), (0, 4), (2, 9))
    expected = Matcher(exported_folder, device="cpu", precision="float32").match_batch(pairs, **options)
    for result, other in zip(matcher.match_batch(pairs, **options), expected, strict=True):
        assert_same(result, other)


def test_every_pair_of_a_set(matcher: Matcher, exported_folder: Path) -> None:
    images, keypoints = [photograph(i) for i in range(3)], [points(i, 4 + i) for i in range(3)]
    boxes = [None, (2, 3, 116, 76), None]
    expected = Matcher(exported_folder, device="cpu", precision="float32").match_many(images, keypoints, boxes)
    results = matcher.match_many(images, keypoints, boxes)
    assert results.keys() == expected.keys()
    for key, result in results.items():
        assert_same(result, expected[key])


def test_many_points_are_matched_few_pairs_at_a_time(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = make_pairs((5, 6), (8, 8), (3, 7))
    expected = matcher.match_batch(pairs)
    monkeypatch.setattr(onnx, "MAX_ELEMENTS", 1)
    for result, other in zip(matcher.match_batch(pairs), expected, strict=True):
        assert_same(result, other)
    monkeypatch.setattr(onnx, "MAX_POINTS", 7)
    with pytest.raises(InputError, match="^An image has more than 7 keypoints; the backend onnx matches no more.$"):
        matcher.match_batch(pairs)


WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("torch", "torchvision", "timm"):
            raise ImportError(f"{name} was asked for")
sys.meta_path.insert(0, NoTorch())
from normmatch import Matcher, match_pair
result = Matcher(sys.argv[1], backend="onnx").match("a.png", "b.png", [[10, 20], [30, 40], [50, 9]], [[60, 20]])
again = match_pair("a.png", "b.png", [[10, 20], [30, 40], [50, 9]], [[60, 20]], weights=sys.argv[1], backend="onnx")
assert "torch" not in sys.modules
print(result["matches1"].tolist(), (result["similarity"] == again["similarity"]).all())
"""


def test_torch_is_not_imported(exported_folder: Path, tmp_path: Path) -> None:
    for i, name in enumerate(("a.png", "b.png")):
        Image.fromarray(photograph(i)).save(tmp_path / name)
    command = [sys.executable, "-c", WITHOUT_TORCH, str(exported_folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    matches, same = done.stdout.rsplit(maxsplit=1)
    assert matches in ("[0]", "[1]", "[2]", "[-1]")
    assert same == "True"


def test_the_threshold_and_the_size_come_with_the_files(matcher: Matcher) -> None:
    assert (matcher.backend.image_size, matcher.backend.min_score) == (96, 0.01)


def refused(error: type[NormMatchError], weights: Any, **options: Any) -> str:
    with pytest.raises(error) as caught:
        Matcher(weights, backend="onnx", **options)
    return str(caught.value)


def test_weights_that_were_not_exported(tmp_path: Path) -> None:
    for weights in ("small", tmp_path):
        sentence = refused(WeightsError, weights)
        assert f"`normmatch export {weights} --out DIR`" in sentence
        assert "\n" not in sentence


def test_files_that_are_damaged_or_of_two_networks(exported_folder: Path, tmp_path: Path) -> None:
    shutil.copy(exported_folder / "encoder.onnx", tmp_path)
    (tmp_path / "head.onnx").write_bytes(b"hello")
    head = tmp_path / "head.onnx"
    assert refused(WeightsError, tmp_path) == f"{head} is not an ONNX file that onnxruntime can run; export it anew."
    start = b'{"min_score": 0, "dim": 32, "num_heads": 4, "image_size": '
    for config, message in (
        (start + b"64}", "are not of the same network; export it anew."),
        (b'{"image_size": 64}', "it lacks the setting dim"),
        (b"[]", "'list' object has no attribute 'items'"),
        (start + b"Infinity}", "image_size is inf, expected a int such as 378"),
        *((start + size + b"}", "expected 1 to 4,096") for size in (b"0", b"-5", b"1000000000", b"9" * 400)),
    ):
        head.write_bytes(with_config(exported_folder / "head.onnx", config.decode()))
        assert refused(WeightsError, tmp_path).endswith(message)


def with_config(file: Path, config: str) -> bytes:
    import onnx

    model = onnx.load(file)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {"config": config})
    return model.SerializeToString()


def test_options_that_are_torch_s(exported_folder: Path) -> None:
    assert refused(ConfigError, exported_folder, compile=True).startswith("compile is True, but the backend onnx")
    assert refused(ConfigError, exported_folder, precision="bfloat16").startswith("precision is 'bfloat16', but")
    assert refused(ConfigError, exported_folder, device="mps").startswith("the device 'mps' cannot be used by")
    assert refused(ConfigError, 7).startswith("the backend onnx got a int; expected a folder")
