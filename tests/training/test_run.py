"""Where runs start: from trained weights, after a kill, and where they may not."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from normmatch.config import PRESETS, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError, DataError, WeightsError
from normmatch.io import locked
from normmatch.model.network import NormMatch
from normmatch.outputs import write_json
from normmatch.training import checkpoint
from normmatch.training.checkpoint import as_json
from normmatch.training.run import CONFIG, LOCK, check_same, find_start, make_model, train

MODEL = replace(PRESETS["tiny"], image_size=64, dim=16)


@pytest.fixture(scope="module")
def splits() -> dict[str, PreparedSplit]:
    return {name: drawn.make(4, 64, seed=0, split=name) for name in ("train", "val")}


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        out=tmp_path / "run", model=MODEL, data=DataConfig(names=("synthetic",), workers=0), steps=2, batch_size=2,
        warmup=0, precision="32-true", compile=False, accelerator="cpu", validation_pairs=2, tensorboard=False,
    )  # fmt: skip


def test_a_run_from_trained_weights(config: TrainConfig, tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    torch.manual_seed(5)
    trained = NormMatch(replace(MODEL, min_score=0.3))
    file = trained.save_pretrained(tmp_path / "trained")
    tuned = replace(config, init=str(tmp_path / "trained"), lr=0.0, backbone_lr=0.0)  # stays where it starts
    model = train(replace(tuned, minutes=1e-9), splits)
    for (key, a), b in zip(model.state_dict().items(), trained.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5, msg=key)  # put on the sphere once more
    file.unlink()  # a resumed run does not need it any more
    resumed = train(replace(tuned, resume=True), splits)
    assert NormMatch.from_pretrained(config.out).config.min_score == resumed.config.min_score == 0.3


def test_weights_that_do_not_fit(config: TrainConfig, tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    NormMatch(replace(MODEL, num_heads=2)).save_pretrained(tmp_path / "two")
    with pytest.raises(WeightsError, match=r"two are of a network with model\.num_heads 2, not 4"):
        train(replace(config, init=str(tmp_path / "two")), splits)
    with pytest.raises(WeightsError, match="weights nothing not found"):
        train(replace(config, init="nothing"), splits)
    assert not config.out.exists()
    other = replace(config, init=str(tmp_path / "two"), model=replace(MODEL, num_heads=2, image_size=96, drop_path=0.1))
    make_model(other, None)  # these may differ


def test_a_run_killed_before_its_first_checkpoint_starts_again(config: TrainConfig) -> None:
    config.out.mkdir()
    with pytest.raises(ConfigError, match="holds no checkpoint to resume from"):
        find_start(replace(config, resume=True))
    (config.out / CONFIG).write_text("{}")  # of somebody else
    with pytest.raises(ConfigError, match="holds something else"):
        find_start(config)
    write_json(config.out / CONFIG, {**as_json(config), "lr": 0.5})
    with pytest.raises(ConfigError, match=r"was started with lr 0\.5"):
        find_start(replace(config, resume=True))
    (config.out / ".step-0000001.77.safetensors").write_bytes(b"half")
    assert find_start(config) is None
    (config.out / CONFIG).write_text('{"lr": ')
    with pytest.raises(ConfigError, match=r"config\.json is damaged"):
        find_start(replace(config, resume=True))


def test_settings_that_are_newer_than_a_run(config: TrainConfig) -> None:
    old = {key: value for key, value in as_json(config).items() if key not in ("keep", "schedule", "clip")}
    check_same(config, old)
    with pytest.raises(ConfigError, match="clip 5.0, not 3.0"):
        check_same(replace(config, clip=3.0), old)


def test_a_setting_that_had_another_name(config: TrainConfig) -> None:
    settings = replace(config, backbone_lr=0.0, frozen_copies=2)
    old = {("views" if key == "frozen_copies" else key): value for key, value in as_json(settings).items()}
    check_same(settings, old)
    with pytest.raises(ConfigError, match="frozen_copies 2, not 3"):
        check_same(replace(settings, frozen_copies=3), old)
    whole = replace(config, data=replace(config.data, validation_split=False))
    old = as_json(whole)
    old["data"]["hold_out"] = old["data"].pop("validation_split")
    check_same(whole, old)
    with pytest.raises(ConfigError, match=r"data\.validation_split False, not True"):
        check_same(config, old)


def test_a_checkpoint_is_loaded_once(
    config: TrainConfig, splits: dict[str, PreparedSplit], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(replace(config, minutes=1e-9), splits)
    loaded = []
    inner = checkpoint.load
    monkeypatch.setattr(checkpoint, "load", lambda path: loaded.append(path.name) or inner(path))
    resumed = replace(config, resume=True)
    assert find_start(resumed) == config.out / "step-0000001.safetensors"
    train(resumed, splits)
    assert loaded == ["step-0000001.safetensors"]


@pytest.mark.parametrize("validation_split", [True, False])
def test_weights_say_where_nothing_was_held_out(
    validation_split: bool, config: TrainConfig, splits: dict[str, PreparedSplit]
) -> None:
    train(replace(config, data=replace(config.data, validation_split=validation_split)), splits)
    with safe_open(config.out / "model.safetensors", "pt") as file:
        assert file.metadata().get("held_out") == (None if validation_split else "false")


def test_two_runs_in_one_folder(config: TrainConfig, splits: dict[str, PreparedSplit]) -> None:
    with locked(config.out / LOCK), pytest.raises(ConfigError, match="another process is training in"):
        train(config, splits)


def test_a_small_dataset_and_a_class_of_one(config: TrainConfig, splits: dict[str, PreparedSplit]) -> None:
    objects = splits["train"].objects
    labels = [item.label for item in objects]
    few = [labels.index("person"), labels.index("beetle"), labels.index("beetle") + 1]
    small = PreparedSplit(splits["train"].images[few], [objects[i] for i in few])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        train(replace(config, batch_size=4, steps=1), {"train": small, "val": small})
    said = {str(w.message) for w in warned}
    assert {"class person gives no pair", "class person gives no pair for validation"} <= said
    assert any(message.startswith("the training split gives 1 pairs, fewer than a batch of 4,") for message in said)


def test_nothing_to_train_on_leaves_nothing_behind(config: TrainConfig, splits: dict[str, PreparedSplit]) -> None:
    lonely = PreparedSplit(splits["train"].images[:1], list(splits["train"].objects[:1]))
    with pytest.raises(DataError, match="nothing to train on"):
        train(config, {**splits, "train": lonely})
    assert not config.out.exists()
