"""Weights files: exact round trips from wherever, the config inside, no half-written file, and what is refused."""

import json
import logging
import os
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import timm
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from normmatch import PRESETS, ModelConfig, NormMatch, weights
from normmatch.errors import NormMatchError, WeightsError
from normmatch.weights import (
    BUNDLED,
    FILE_NAME,
    SCALE,
    find_weights,
    read_config,
    read_held_out,
    read_tensors,
    round_tensors,
    save_weights,
    set_calibration,
)

TINY = replace(PRESETS["tiny"], image_size=64, sinkhorn_epsilon=0.05)  # no defaults, so that the config matters


@pytest.fixture(scope="module")
def model() -> NormMatch:
    torch.manual_seed(1)
    return NormMatch(TINY).eval()


def answer(model: NormMatch) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    image0, image1 = torch.rand(2, 1, 3, 64, 64, generator=rng)
    keypoints0, keypoints1 = (torch.rand(1, n, 2, generator=rng) * 64 for n in (5, 6))
    with torch.no_grad():
        return model({"image0": image0, "image1": image1, "keypoints0": keypoints0, "keypoints1": keypoints1})


def as_arrays(model: NormMatch) -> dict[str, np.ndarray]:
    return {key: value.numpy() for key, value in model.state_dict().items()}


def assert_equal(loaded: NormMatch, model: NormMatch) -> None:
    """The same to the last bit: every tensor, the config, and the answer."""
    assert loaded.config == model.config
    state, expected = loaded.state_dict(), model.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], expected[key]) and state[key].dtype == expected[key].dtype for key in state)
    output, wanted = answer(loaded), answer(model)
    assert all(torch.equal(output[key], wanted[key]) for key in wanted)
    assert not loaded.training


# ---------------------------------------------------------------------------------------------------------- round trips


def test_folder(model: NormMatch, tmp_path: Path) -> None:
    file = model.save_pretrained(tmp_path / "new" / "folder")
    assert file == tmp_path / "new" / "folder" / "model.safetensors"
    assert_equal(NormMatch.from_pretrained(tmp_path / "new" / "folder"), model)
    assert_equal(NormMatch.from_pretrained(str(tmp_path / "new" / "folder")), model)


def test_file(model: NormMatch, tmp_path: Path) -> None:
    file = model.save_pretrained(tmp_path / "cats.safetensors")
    assert file == tmp_path / "cats.safetensors"
    assert [p.name for p in tmp_path.iterdir()] == ["cats.safetensors"]
    assert_equal(NormMatch.from_pretrained(file), model)


def test_bundled_name(model: NormMatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "BUNDLED", tmp_path)
    model.save_pretrained(tmp_path / "normmatch-tiny.safetensors")
    assert_equal(NormMatch.from_pretrained("normmatch-tiny"), model)
    with pytest.raises(WeightsError, match=r"weights normmatch-tinny not found; .*\(normmatch-tiny\)"):
        NormMatch.from_pretrained("normmatch-tinny")


@pytest.mark.parametrize("name", ["somebody/animals", "somebody/animals-v1.5"])
def test_name_on_a_hub(model: NormMatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    model.save_pretrained(tmp_path)
    asked: list[tuple[str, str]] = []

    def download(repo_id: str, filename: str) -> str:
        asked.append((repo_id, filename))
        return str(tmp_path / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert_equal(NormMatch.from_pretrained(name), model)
    assert asked == [(name, "model.safetensors")]


@pytest.mark.parametrize(
    "config", [replace(TINY, shared_streams=False), replace(TINY, transformer="vanilla", num_layers=1, drop_path=0.1)]
)
def test_every_kind_of_model(config: ModelConfig, tmp_path: Path) -> None:
    model = NormMatch(config).eval()
    model.save_pretrained(tmp_path)
    assert_equal(NormMatch.from_pretrained(tmp_path), model)


def test_a_model_on_the_way_can_be_trained_on(model: NormMatch, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    loaded = NormMatch.from_pretrained(tmp_path).train()
    assert all(parameter.requires_grad for parameter in loaded.parameters())


# ------------------------------------------------------------------------------------------------------- what is inside


def test_the_config_is_in_the_file(model: NormMatch, tmp_path: Path) -> None:
    file = model.save_pretrained(tmp_path)
    with safe_open(file, "pt") as opened:
        values = json.loads(opened.metadata()["config"])
    assert values == json.loads(json.dumps(asdict(TINY)))
    assert read_config(file) == TINY


def test_a_model_on_its_own_needs_neither_hub_nor_backbone_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "home-of-somebody"
    folder.mkdir()
    file = folder / "backbone.safetensors"
    save_file(timm.create_model(TINY.backbone, num_classes=0).state_dict(), file)
    model = NormMatch(replace(TINY, backbone_weights=str(file)))
    saved = model.save_pretrained(tmp_path / "saved")
    assert b"home-of-somebody" not in saved.read_bytes()
    assert b"backbone.safetensors" in saved.read_bytes()
    file.unlink()
    loaded = NormMatch.from_pretrained(saved)
    assert loaded.config == replace(TINY, backbone_weights="backbone.safetensors")
    assert all(torch.equal(v, loaded.state_dict()[k]) for k, v in model.state_dict().items())


def test_the_hub_is_not_asked_for_a_backbone_that_is_in_the_file(model: NormMatch, tmp_path: Path) -> None:
    config = replace(TINY, backbone_weights="hub")
    save_weights(tmp_path / "a.safetensors", as_arrays(model), config, None)
    assert NormMatch.from_pretrained(tmp_path / "a.safetensors").config.backbone_weights == "hub"


def test_half_is_half_the_size(model: NormMatch, tmp_path: Path) -> None:
    full, half = model.save_pretrained(tmp_path / "full"), model.save_pretrained(tmp_path / "half", bits=16)
    assert half.stat().st_size / full.stat().st_size == pytest.approx(0.5, abs=0.02)
    assert all(v.dtype != torch.float32 for v in load_file(half).values())
    loaded = NormMatch.from_pretrained(half)
    assert all(p.dtype == torch.float32 for p in loaded.parameters())
    assert all(torch.equal(v, model.state_dict()[k].half().float()) for k, v in loaded.state_dict().items())
    torch.testing.assert_close(answer(loaded)["similarity"], answer(model)["similarity"], atol=5e-3, rtol=0)


def test_eight_bits_are_a_quarter_and_round_each_row_by_itself(model: NormMatch, tmp_path: Path) -> None:
    with torch.no_grad():
        model.head.spline.skip.weight[3] *= 1e-3  # a faint row keeps its digits
        model.head.spline.skip.weight[4] = 0
    full, small = model.save_pretrained(tmp_path / "full"), model.save_pretrained(tmp_path / "small", bits=8)
    assert small.stat().st_size / full.stat().st_size < 0.32  # tiny has many vectors, which stay in half precision
    loaded = NormMatch.from_pretrained(small)
    for key, value in model.state_dict().items():
        if value.ndim in (2, 4):
            rows, close = value.flatten(1), loaded.state_dict()[key].flatten(1)
            assert ((rows - close).abs() <= rows.abs().amax(1, keepdim=True) / 254 * 1.001 + 1e-12).all(), key
    torch.testing.assert_close(answer(loaded)["similarity"], answer(model)["similarity"], atol=0.05, rtol=0)


def test_scales_without_their_matrix_are_noticed(model: NormMatch, tmp_path: Path) -> None:
    state = round_tensors(as_arrays(model), 8)
    matrix = next(key for key in state if key.endswith(SCALE)).removesuffix(SCALE)
    del state[matrix + SCALE]
    save_weights(tmp_path / "a.safetensors", state, TINY, None)
    with pytest.raises(WeightsError, match="has integers for"):
        NormMatch.from_pretrained(tmp_path / "a.safetensors")


@pytest.mark.parametrize("bits", [16, 8])
def test_whole_numbers_stay_whole(bits: int) -> None:
    state = {"steps": np.array(70001), "weight": np.random.default_rng(0).random(3, np.float32)}
    assert round_tensors(state, bits)["steps"].dtype == np.int64
    assert round_tensors(state, bits)["weight"].dtype == np.float16


@pytest.mark.parametrize("held_out", [None, True, False])
def test_a_file_tells_whether_objects_were_held_out(model: NormMatch, tmp_path: Path, held_out: bool | None) -> None:
    file = model.save_pretrained(tmp_path, bits=8, held_out=held_out)
    assert read_held_out(file) is held_out
    before = read_tensors(file)
    set_calibration(file, 0.25, (0.0, 1.0, 0.0, 0.9))
    assert read_held_out(file) is held_out
    assert read_config(file) == replace(TINY, min_score=0.25, calibration=(0.0, 1.0, 0.0, 0.9))
    assert all(np.array_equal(value, before[key]) for key, value in read_tensors(file).items())


def test_bfloat16_is_read_exactly(tmp_path: Path) -> None:
    """Numpy has no such type; backbone files may."""
    tensors = {"a": torch.randn(3, 4).bfloat16(), "b": torch.randn(5), "c": torch.tensor(1.5).bfloat16()}
    save_file(tensors, tmp_path / "a.safetensors")
    found = read_tensors(tmp_path / "a.safetensors")
    assert found.keys() == tensors.keys()
    for key, value in tensors.items():
        assert torch.equal(torch.from_numpy(found[key]), value.float())


def test_saving_changes_nothing(model: NormMatch, tmp_path: Path) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.save_pretrained(tmp_path, bits=16)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert model.config == TINY


# -------------------------------------------------------------------------------------------------- whole or not at all


@pytest.mark.parametrize("step", ["save_file", "replace"])
def test_a_save_that_fails_leaves_the_old_file(
    model: NormMatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = model.save_pretrained(tmp_path)
    before = file.read_bytes()

    def full_disk(first: Any, second: Any, **_: Any) -> None:
        if step == "save_file":
            Path(second).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((weights, "save_file") if step == "save_file" else (os, "replace")), full_disk)
    with pytest.raises(WeightsError, match=r"model\.safetensors cannot be written: .*No space left"):
        NormMatch(replace(TINY, num_layers=1)).save_pretrained(tmp_path)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_save_that_is_interrupted_leaves_the_old_file(
    model: NormMatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = model.save_pretrained(tmp_path)
    before = file.read_bytes()

    def interrupted(_: Any, partial: Path, **__: Any) -> None:
        partial.write_bytes(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(weights, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.save_pretrained(tmp_path)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written_to(model: NormMatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here is a file already")
    with pytest.raises(WeightsError, match="cannot be written"):
        model.save_pretrained(tmp_path / "file")
    with pytest.raises(WeightsError, match="cannot be written"):
        model.save_pretrained(tmp_path / "file" / "deeper.safetensors")
    assert (tmp_path / "file").read_text() == "here is a file already"


# ------------------------------------------------------------------------------------------------------ what is refused


def test_files_that_do_not_fit(model: NormMatch, tmp_path: Path) -> None:
    state, config = model.state_dict(), json.dumps(asdict(TINY))
    lacking = {key: value for key, value in state.items() if key != "head.global_token.bias"}
    unknown = json.dumps({**asdict(TINY), "colour": "blue"})
    cases: dict[str, tuple[dict, dict[str, str] | None, str]] = {
        "no config": (state, None, "carries no config"),
        "no JSON": (state, {"config": "{"}, "a config that cannot be"),
        "a list": (state, {"config": "[1, 2]"}, "a config that cannot be"),
        "unknown setting": (state, {"config": unknown}, "unknown setting colour"),
        "bad setting": (state, {"config": json.dumps({**asdict(TINY), "num_heads": 5})}, "model.num_heads is 5"),
        "wrong type": (state, {"config": json.dumps({**asdict(TINY), "dim": "wide"})}, "model.dim is 'wide'"),
        "other width": (state, {"config": json.dumps({**asdict(TINY), "dim": 24})}, "another shape for"),
        "more layers": (state, {"config": json.dumps({**asdict(TINY), "num_layers": 3})}, "lacks head.transformer"),
        "fewer layers": (state, {"config": json.dumps({**asdict(TINY), "num_layers": 1})}, "has the unknown tensor"),
        "lacking": (lacking, {"config": config}, "lacks head.global_token.bias"),
    }
    for name, (tensors, metadata, words) in cases.items():
        file = tmp_path / f"{name}.safetensors"
        save_file(tensors, file, metadata)
        with pytest.raises(WeightsError) as caught:
            NormMatch.from_pretrained(file)
        assert words in str(caught.value), name
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_files_that_are_no_weights(model: NormMatch, tmp_path: Path) -> None:
    whole = model.save_pretrained(tmp_path / "whole.safetensors").read_bytes()
    torch.save(model.state_dict(), tmp_path / "pickle.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    for name in ("pickle", "text", "empty", "cut"):
        with pytest.raises(WeightsError, match=f"{name}.safetensors is not a readable safetensors file"):
            NormMatch.from_pretrained(tmp_path / f"{name}.safetensors")


def test_places_without_weights(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="holds no model.safetensors"):
        NormMatch.from_pretrained(tmp_path)
    for name in (tmp_path / "no" / "such.safetensors", "no/such.safetensors", "nothing-of-that-name", "a/b/c"):
        with pytest.raises(WeightsError, match=f"weights {name} not found; expected a file, a folder"):
            NormMatch.from_pretrained(name)


def test_a_run_that_is_not_there_is_not_looked_for_on_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_: pytest.fail("the hub was asked"))
    Path("runs").mkdir()
    with pytest.raises(WeightsError, match="weights runs/mine not found"):
        NormMatch.from_pretrained("runs/mine")


@pytest.mark.parametrize(
    "error",
    [
        LocalEntryNotFoundError("no connection\nsecond line"),
        ConnectionError("refused"),
        RuntimeError("httpx: timed out"),
    ],
)
def test_a_hub_that_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[logging.LogRecord] = []
    hub = logging.getLogger("huggingface_hub")
    monkeypatch.setattr(hub, "handlers", [SimpleNamespace(level=0, handle=records.append)])

    def download(*_: Any) -> str:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 8s [Retry 5/5].")
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(WeightsError, match=r"weights somebody/animals could not be had from the hub \(") as caught:
        NormMatch.from_pretrained("somebody/animals")
    assert "\n" not in str(caught.value)
    assert records == []  # one sentence, not a page about retries
    hub.warning("heard again")
    assert len(records) == 1


def test_a_folder_does_not_shadow_a_bundled_name(
    model: NormMatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model.save_pretrained(tmp_path / "small")
    assert find_weights("small") == BUNDLED / "small.safetensors"
    for name in ("./small", tmp_path / "small", Path("small")):
        assert find_weights(name).resolve() == tmp_path / "small" / FILE_NAME
    assert find_weights(BUNDLED / "small.safetensors") == BUNDLED / "small.safetensors"


@pytest.mark.parametrize("bits", [64, 0, 4, -8])
def test_bits_that_there_are_not(model: NormMatch, tmp_path: Path, bits: int) -> None:
    with pytest.raises(NormMatchError, match=f"bits is {bits}; expected 32, 16 or 8"):
        model.save_pretrained(tmp_path, bits=bits)  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())


def test_a_giant_backbone_is_refused_before_it_takes_memory(model: NormMatch, tmp_path: Path) -> None:
    giant = replace(TINY, backbone="vit_giant_patch14_dinov2", backbone_layers=(38, 39), image_size=70)
    tensors = {"head.x": np.zeros(4_000_000, np.float32)}  # enough for what comes after the backbone
    save_weights(tmp_path / "a.safetensors", tensors, giant, None)
    with pytest.raises(NormMatchError, match="bytes, too few for the 1,1.* parameters of vit_giant_patch14_dinov2"):
        NormMatch.from_pretrained(tmp_path / "a.safetensors")
