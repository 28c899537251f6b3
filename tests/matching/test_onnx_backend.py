"""Photographs matched by onnxruntime: the same answers as torch's, without torch."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from normmatch import PRESETS, Matcher, NormMatch
from normmatch.errors import ConfigError, InputError, NormMatchError, WeightsError
from normmatch.matching import backends
from normmatch.matching.backends import onnx
from normmatch.matching.backends.torch import TorchBackend
from normmatch.weights import FILE_NAME, read_config, read_tensors, save_weights
from normmatch.weights.graphs import INDEX
from tests.matching.scene import photograph, points

SIZE = PRESETS["tiny"].image_size


@pytest.fixture(scope="module")
def matcher(exported_folder: Path) -> Matcher:
    return Matcher(exported_folder, backend="onnx", precision="float32")


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
    expected = Matcher(exported_folder, backend="torch", device="cpu", precision="float32").match_batch(
        pairs, **options
    )
    for result, other in zip(matcher.match_batch(pairs, **options), expected, strict=True):
        assert_same(result, other)


def test_every_pair_of_a_set(matcher: Matcher, exported_folder: Path) -> None:
    images, keypoints = [photograph(i) for i in range(3)], [points(i, 4 + i) for i in range(3)]
    boxes = [None, (2, 3, 116, 76), None]
    expected = Matcher(exported_folder, backend="torch", device="cpu", precision="float32").match_many(
        images, keypoints, boxes
    )
    results = matcher.match_many(images, keypoints, boxes)
    assert results.keys() == expected.keys()
    for key, result in results.items():
        assert_same(result, expected[key])


def test_too_many_points(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "MAX_POINTS", 7)
    with pytest.raises(InputError, match="^An image has more than 7 keypoints; the backend onnx matches no more.$"):
        matcher.match_batch(make_pairs((5, 6), (8, 8), (3, 7)))


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


def test_weights_without_graphs(tmp_path: Path) -> None:
    file = NormMatch(PRESETS["tiny"]).save_pretrained(tmp_path)
    sentence = refused(WeightsError, tmp_path)
    assert sentence.startswith(f"there are no graphs beside {file}, which the backend onnx runs; write them with")
    assert "\n" not in sentence
    assert isinstance(Matcher(tmp_path, device="cpu").backend, TorchBackend)  # auto takes what can be done


def test_files_that_are_damaged_or_of_another_network(exported_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported_folder, tmp_path / "copy")
    (folder / "match.onnx").write_bytes(b"hello")
    with pytest.raises(WeightsError, match="match.onnx cannot be run by onnxruntime .*; write it anew with `normmatch"):
        Matcher(folder, backend="onnx").match(*make_pairs((3, 4))[0])
    text = (folder / INDEX).read_text()
    for damaged in ("", "[]", "{}", text[:99], text.replace('"step": ', '"step": "a", "was": ')):
        (folder / INDEX).write_text(damaged)
        assert refused(WeightsError, folder) == f"{folder / INDEX} is damaged; write it anew with `normmatch export`"
    for size in ("Infinity", "0", "-5", "9" * 400):
        (folder / INDEX).write_text(text.replace(f'"image_size": {SIZE}', f'"image_size": {size}'))
        assert "carries a config that cannot be" in refused(WeightsError, folder)
    (folder / INDEX).write_text(text.replace(f'"image_size": {SIZE}', '"image_size": 128'))
    assert refused(WeightsError, folder).startswith("there are no graphs beside")


def test_weights_that_do_not_fit_their_graphs(exported_folder: Path, tmp_path: Path) -> None:
    """The same complaints as torch's, but for tensors that nothing asks for."""
    folder = shutil.copytree(exported_folder, tmp_path / "copy")
    config, tensors = read_config(folder / FILE_NAME), read_tensors(folder / FILE_NAME)
    key = "head.global_token.weight"
    changes = {
        f"it lacks {key} (of 1)": None,
        f"it has another shape for {key} (of 1)": tensors[key][:-1],
        f"it has integers for {key} (of 1)": tensors[key].astype(np.int8),
        f"it has NaN or infinite values in {key} (of 1)": tensors[key] * np.float32("nan"),
    }
    for complaint, value in changes.items():
        changed = {k: v for k, v in tensors.items() if k != key} | ({} if value is None else {key: value})
        save_weights(folder / FILE_NAME, changed, config, None)
        with pytest.raises(WeightsError) as caught:
            Matcher(folder, backend="onnx").match(*make_pairs((3, 4))[0])
        assert str(caught.value) == f"weights file {folder / FILE_NAME} does not fit the model: {complaint}"


def test_options_that_are_torch_s(exported_folder: Path) -> None:
    assert refused(ConfigError, exported_folder, compile=True).startswith("compile is True, but the backend onnx")
    assert refused(ConfigError, exported_folder, precision="bfloat16") == (
        "precision is 'bfloat16'; expected auto, int8 or float32."
    )
    assert refused(ConfigError, exported_folder, device="mps").startswith("the device 'mps' cannot be used by")
    assert refused(WeightsError, 7).startswith("weights is 7; expected a path")


# ------------------------------------------------------------------------------------------- what auto stands for


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, "onnx"), ({"device": "cpu"}, "onnx"), ({"device": "cuda"}, "torch"), ({"compile": True}, "torch"),
     ({"precision": "float16"}, "torch"), ({"precision": "int8"}, "onnx")],
    ids=str,
)  # fmt: skip
def test_auto(options: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "DRIVERS", ())
    usual = {"weights": "small", "device": "auto", "compile": False, "precision": "auto"}
    assert backends.choose(**usual | options) == expected
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    assert backends.choose(**usual | options) == "onnx"


def test_auto_with_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "DRIVERS", (tmp_path,))
    for there, expected in ((True, "torch"), (False, "onnx")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert backends.choose("small", "auto", False, "auto") == expected
