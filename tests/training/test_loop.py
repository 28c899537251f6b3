"""The training loop: it learns, stops, resumes exactly, and refuses what cannot be."""

import json
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch.utils._python_dispatch import TorchDispatchMode

from normmatch.config import PRESETS, AugmentConfig, DataConfig, LossConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.datasets.types import PreparedSplit, join
from normmatch.errors import ConfigError, DataError, DeviceError
from normmatch.evaluation.predict import predict
from normmatch.model.network import NormMatch
from normmatch.model.transformer import UnitLinear
from normmatch.training import validation as validation_module
from normmatch.training.distributed import make_fabric
from normmatch.training.loader import Shares, TrainData
from normmatch.training.loop import NetworkWithLosses, State, step
from normmatch.training.losses import MatchingLoss
from normmatch.training.optimizer import averaged
from normmatch.training.run import compile_parts, set_up, train
from normmatch.training.validation import Validation

SIZE = 64


@pytest.fixture(scope="module")
def splits() -> dict[str, PreparedSplit]:
    return {
        "train": drawn.make(6, SIZE, seed=0, split="train"),
        "val": drawn.make(4, SIZE, seed=0, split="val"),
    }


LOCATES = replace(PRESETS["tiny"], image_size=SIZE, dim=16, drop_path=0.2, locate_dim=8)
MIXED = AugmentConfig(flip=0.5, mirror=0.5, self_pairs=0.25, strays=0.3, sizes=(64, 64, 96), noise=1.0)


def config(out: Path, **changes: object) -> TrainConfig:
    base = TrainConfig(
        out=out,
        model=replace(PRESETS["tiny"], image_size=SIZE, dim=16, drop_path=0.2),
        data=DataConfig(names=("synthetic",), workers=0),
        augment=AugmentConfig(flip=0.5, cutmix=0.3, erase=0.3),
        steps=6,
        batch_size=4,
        warmup=2,
        precision="32-true",
        compile=False,
        accelerator="cpu",
        validate_every=100,
        validation_pairs=3,
        save_every=100,
        tensorboard=False,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def start(settings: TrainConfig, splits: dict[str, PreparedSplit]) -> tuple[State, TrainData, Validation | None]:
    return set_up(settings, make_fabric(settings), splits, None)


def same(a: NormMatch, b: NormMatch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("changes", [{}, {"model": LOCATES, "augment": MIXED}], ids=["matches", "locates"])
def test_a_resumed_run_ends_like_one_that_never_stopped(
    tmp_path: Path, splits: dict[str, PreparedSplit], changes: dict[str, Any]
) -> None:
    whole = train(config(tmp_path / "whole", **changes), splits)
    stopped = config(tmp_path / "parts", minutes=1e-9, **changes)  # stops after every step
    for _ in range(5):
        train(stopped, splits)
        stopped = replace(stopped, resume=True)
    resumed = train(replace(stopped, minutes=0.0), splits)
    assert same(whole, resumed)


def test_locating_is_learned(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    settings = config(tmp_path / "a", model=LOCATES, steps=30, lr=3e-3, log_every=1)
    train(settings, splits)
    losses = [json.loads(line).get("locate") for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    learned = [loss for loss in losses if loss is not None]
    assert sum(learned[-5:]) < 0.9 * sum(learned[:5])


def test_validation_changes_nothing(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    assert same(train(config(tmp_path / "a"), splits), train(config(tmp_path / "b", validate_every=2), splits))


def test_nothing_held_out(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    """All objects are trained on, none is validated on; and a resumed run must hold out what it held out."""
    settings = config(
        tmp_path / "a", data=DataConfig(names=("synthetic",), workers=0, validation_split=False), validate_every=2
    )
    train(replace(settings, minutes=1e-9), splits)  # stops after a step
    with pytest.raises(ConfigError, match=r"data\.validation_split False, not True"):
        train(config(tmp_path / "a", resume=True), splits)
    found = train(replace(settings, resume=True), splits)
    everything = {"train": join(splits["train"], splits["val"])}
    assert len(everything["train"].objects) == len(splits["train"].objects) + len(splits["val"].objects)
    assert same(found, train(replace(settings, out=tmp_path / "b"), everything))
    assert not same(found, train(config(tmp_path / "c"), splits))
    assert "val_accuracy" not in (tmp_path / "a" / "log.jsonl").read_text()


def test_validation_images_that_vanish(
    tmp_path: Path, splits: dict[str, PreparedSplit], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory", "images.npy")

    monkeypatch.setattr(validation_module, "FeatureCache", gone)
    message = r"cannot be read or written: No such file or directory \(images\.npy\)"
    with pytest.raises(DataError, match=message):
        train(config(tmp_path, validate_every=2, save_every=1), splits)
    assert (tmp_path / "step-0000002.safetensors").is_file()


def test_too_little_memory(tmp_path: Path, splits: dict[str, PreparedSplit], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(NetworkWithLosses, "forward", full)
    with pytest.raises(DeviceError, match="too little memory for 4 pairs a step; expected a smaller --batch-size"):
        train(config(tmp_path), splits)


def test_seeds_matter(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    first = train(config(tmp_path / "a", steps=2), splits)
    assert same(first, train(config(tmp_path / "b", steps=2), splits))
    assert not same(first, train(config(tmp_path / "c", steps=2, seed=1), splits))


def test_matrices_are_on_the_sphere_after_every_step(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    state, data, _ = start(config(tmp_path, lr=0.1), splits)
    for number in range(6):
        step(state, Shares(data.batches, 0, 1, data.images)[number])
        state.step += 1
        for model in (state.model, averaged(state.average)):
            units = [m for m in model.modules() if isinstance(m, UnitLinear)]
            assert units
            for unit in units:
                length = unit.weight.norm(dim=unit.unit_dim)
                torch.testing.assert_close(length, torch.ones_like(length), atol=1e-5, rtol=0)


def test_the_run_leaves_a_log_and_a_model(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    trained = train(config(tmp_path / "run"), splits)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 6
    assert set(lines[-1]["val_by_class"]) == set(drawn.LABELS)
    assert same(trained, NormMatch.from_pretrained(tmp_path / "run"))


def test_another_run_is_not_overwritten(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    train(config(tmp_path, steps=1), splits)
    with pytest.raises(ConfigError, match="holds another run"):
        train(config(tmp_path, steps=1), splits)
    with pytest.raises(ConfigError, match=r"started with lr 0\.0007, not 0\.5"):
        train(config(tmp_path, steps=1, lr=0.5, resume=True), splits)


@pytest.mark.parametrize("log_every", [1, 100])
def test_a_loss_that_is_not_finite_ends_the_run(
    log_every: int, tmp_path: Path, splits: dict[str, PreparedSplit]
) -> None:
    run = config(tmp_path, lr=1e30, save_every=3, log_every=log_every)
    with pytest.raises(ConfigError, match="the loss is nan at step 1; expected finite ones") as stopped:
        train(run, splits)
    assert "\n" not in str(stopped.value)
    assert not list(tmp_path.glob("step-*"))  # nothing of it is saved
    train(config(tmp_path, steps=1), splits)  # and the folder is still free


class Reads(TorchDispatchMode):
    """Where the values of tensors are read: each waits for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            files = [frame.filename for frame in traceback.extract_stack()]
            if not any("/torch/optim/" in file for file in files):  # its counters are on the CPU, or it is fused
                self.places.append(files[-2])
        return func(*args, **(kwargs or {}))


def test_a_step_does_not_wait_for_the_device(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    state, data, _ = start(config(tmp_path), splits)
    batch = Shares(data.batches, 0, 1, data.images)[0]
    with Reads() as reads:
        logs = step(state, batch)
        assert reads.places == []
        float(logs["loss"])
    assert len(reads.places) == 1


def test_what_does_not_change_the_weights_may_change(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    train(config(tmp_path, minutes=1e-9), splits)
    moved = config(tmp_path, resume=True, data=DataConfig(names=("synthetic",), workers=1, root=Path("elsewhere")))
    train(moved, splits)
    with pytest.raises(ConfigError, match="warmup"):
        train(replace(moved, warmup=3), splits)


def test_other_folders_are_left_alone(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    with pytest.raises(ConfigError, match="no checkpoint to resume"):
        train(config(tmp_path, resume=True), splits)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds something else"):
        train(config(tmp_path), splits)
    with pytest.raises(DataError, match="cannot be read or written"):
        train(config(tmp_path / "notes.txt"), splits)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("accelerator", ["cuda", "mps"])
def test_a_device_that_is_not_there(
    accelerator: str, tmp_path: Path, splits: dict[str, PreparedSplit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"of kind {accelerator} this machine has 0"):
        train(config(tmp_path / "run", accelerator=accelerator), splits)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("backbone", "layers", "pieces"), [("test_resnet", (2, 3), 1), ("test_vit", (2, 3), 3), ("vgg16", (20, 25), 1)]
)
def test_compilation_reaches_the_backbone(
    backbone: str, layers: tuple[int, int], pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a whole; of a ViT standardising, patches, and blocks."""
    counter = torch._dynamo.testing.CompileCounter()
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **options: compile_(f, **options | {"backend": counter}))
    model = NormMatch(replace(PRESETS["tiny"], backbone=backbone, backbone_layers=layers, dim=16))
    compile_parts(NetworkWithLosses(model, MatchingLoss(LossConfig())))
    model.encode(torch.rand(1, 3, 96, 96))
    assert counter.frame_count == pieces


def test_a_frozen_backbone_keeps_its_statistics(tmp_path: Path, splits: dict[str, PreparedSplit]) -> None:
    frozen = config(tmp_path, backbone_lr=0.0)
    torch.manual_seed(frozen.seed)
    before = NormMatch(frozen.model).backbone.state_dict()
    after = train(frozen, splits).backbone.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(("backbone_lr", "times"), [(0.0, 1), (1e-5, 3)])
def test_a_frozen_backbone_sees_the_validation_images_once(
    backbone_lr: float, times: int, tmp_path: Path, splits: dict[str, PreparedSplit], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    inner = validation_module.FeatureCache
    monkeypatch.setattr(validation_module, "FeatureCache", lambda *a, **k: made.append(a) or inner(*a, **k))
    model = train(config(tmp_path, backbone_lr=backbone_lr, validate_every=2), splits)
    assert len(made) == times
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    fresh = start(config(tmp_path / "b", backbone_lr=backbone_lr), splits)[2]
    assert fresh is not None
    by_class = predict(model, splits["val"], fresh.pairs, progress=False).accuracy()
    assert lines[-1]["val_by_class"] == by_class


@pytest.mark.parametrize(
    "changes",
    [{"steps": 0}, {"batch_size": 0}, {"lr": -1.0}, {"average": 1.0}, {"betas": (0.9, 1.0)}, {"betas": (-0.1, 0.9)}],
)
def test_a_run_that_cannot_be(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        TrainConfig(out=Path(), **changes)  # type: ignore[arg-type]


def test_frozen_copies_cannot_teach_locating() -> None:
    with pytest.raises(ConfigError, match=r"model\.locate_dim is 8, but frozen copies keep no maps"):
        TrainConfig(out=Path(), model=LOCATES, backbone_lr=0.0, frozen_copies=2)
