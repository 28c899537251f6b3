"""A run from start to end: in an empty folder or at its last checkpoint, from a fresh network or trained weights.

find_start -> make_fabric -> open_splits -> claimed folder -> set_up -> fit -> weights
"""

import copy
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from timm.layers import convert_sync_batchnorm
from torch import Tensor

from normmatch.config import ModelConfig, TrainConfig
from normmatch.datasets.catalog import load_training, training_folder
from normmatch.datasets.prepared import load_prepared
from normmatch.datasets.types import PreparedSplit, join
from normmatch.errors import ConfigError, DataError, DeviceError, WeightsError, first_line
from normmatch.io import locked
from normmatch.model.backbone import compiled_parts, load_weights
from normmatch.model.network import NormMatch
from normmatch.outputs import made_by_us, write_json
from normmatch.training import checkpoint
from normmatch.training.batches import KeypointTable, TrainBatches
from normmatch.training.distributed import CHECKED, LATE, is_first, make_fabric, on_first, without_compiler
from normmatch.training.frozen import FrozenFeatures, make_frozen_features
from normmatch.training.loader import TrainData, make_data
from normmatch.training.log import CURVES, LOG
from normmatch.training.loop import NetworkWithLosses, State, fit
from normmatch.training.losses import MatchingLoss
from normmatch.training.optimizer import averaged, make_optimizer
from normmatch.training.validation import Validation, make_validation
from normmatch.weights import find_weights, read_config

CONFIG, LOCK = "config.json", ".lock"  # in the folder of a run
HALF = (".step-", ".model.", ".config.", ".log.")  # how the names of half-written files begin
MAY_CHANGE = {  # between a run and its resumption; anything else would end with other weights
    "out", "resume", "minutes", "keep", "save_every", "validate_every", "validation_pairs", "log_every", "tensorboard",
    "compile", "accelerator", "devices", "data.root", "data.workers",
}  # fmt: skip
RENAMED = {"views": "frozen_copies", "data.hold_out": "data.validation_split"}  # settings of older runs
MAY_DIFFER = {"backbone_weights", "image_size", "drop_path", "sinkhorn_epsilon", "sinkhorn_rounds", "min_score"}


def train(config: TrainConfig, splits: dict[str, PreparedSplit] | None = None) -> NormMatch:
    """Train, leave everything in `config.out`, and return the averaged network.

    SIGTERM or Ctrl-C saves a checkpoint and exits with 143 or 130.

    Args:
        splits: `train`, and `val` to validate on; where nothing is held out, both are trained on. Without them
            the dataset of `config.data` is opened, and prepared first where that has not been done.
    """
    start = find_start(config)
    config = without_compiler(config)
    with one_sentence(config):
        fabric = make_fabric(config)
        splits = open_splits(config, fabric) if splits is None else splits
        if not config.data.validation_split:
            splits = {"train": join(splits["train"], splits["val"]) if "val" in splits else splits["train"]}
        with claimed(config.out):
            state, data, validation = set_up(config, fabric, splits, start)
            on_first(fabric, lambda: begin(config, resumed=start is not None))
            reason = fit(state, data, validation)
            if reason > LATE:
                raise SystemExit(128 + reason)
            model = averaged(state.average)
            if not reason:
                held_out = None if config.data.validation_split else False  # no word of what is usual
                on_first(fabric, lambda: model.save_pretrained(config.out, held_out=held_out))
            return model


@contextmanager
def one_sentence(config: TrainConfig) -> Iterator[None]:
    """Make a sentence of what a disk, a device or a loader's process says."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error).strip().splitlines()[-1]  # a loader's process tells all of its way there
        file = f" ({error.filename})" if error.filename else ""
        where = f"the run in {config.out}, or its dataset,"
        raise DataError(f"{where} cannot be read or written: {reason}{file}") from error
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"the device has too little memory for {config.batch_size} pairs a step; expected a smaller --batch-size"
        ) from error
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DataError(
            f"a process that prepares batches has died: {first_line(error)} "
            "Memory may be short, or the dataset's cache may have vanished"
        ) from error


def find_start(config: TrainConfig) -> Path | None:
    """The checkpoint to resume from, or None for a start from nothing. What must not be overwritten is an error.

    No tensor is read here: it may be asked early, before a dataset is prepared, and again.
    """
    out = config.out
    saved = bool(checkpoint.all_in(out))
    if saved and not config.resume:
        raise ConfigError(f"{out} holds another run; give --resume to continue it, or another --out")
    if not saved and out.is_dir():
        ours = {CONFIG, LOG, CURVES, LOCK} if config.resume or made_by_us(out / CONFIG) else {LOCK}
        foreign = {path.name for path in out.iterdir()} - ours
        if any(not name.startswith(HALF) for name in foreign):
            raise ConfigError(f"{out} holds something else; expected a new or empty folder for a run")
    if not config.resume:
        return None
    if not saved and not (out / CONFIG).is_file():
        raise ConfigError(f"{out} holds no checkpoint to resume from; start it without --resume")
    start = checkpoint.find_newest(out)  # none where a run was killed before its first one: it starts again
    check_same(config, checkpoint.read_values(start)["config"] if start else read_json(out / CONFIG))
    return start


def open_splits(config: TrainConfig, fabric: Fabric) -> dict[str, PreparedSplit]:
    """The splits of the dataset; the first process of each machine prepares and checks them, the others wait for it."""
    data = config.data
    folder = training_folder(data, config.crop_size)
    if CHECKED in os.environ:  # by the process that has started this one
        return load_prepared(folder)
    splits = on_first(fabric, lambda: load_training(data, config.crop_size), each_machine=True)
    return load_prepared(folder) if splits is None else splits


def set_up(
    config: TrainConfig, fabric: Fabric, splits: dict[str, PreparedSplit], start: Path | None
) -> tuple[State, TrainData, Validation | None]:
    """The network at its first step or at its last checkpoint, and what it is trained and validated on."""
    train, saved = splits["train"], checkpoint.load(start) if start else None
    torch.manual_seed(config.seed)
    classes = torch.from_numpy(KeypointTable(train).classes)
    state = make_state(config, fabric, make_model(config, saved), classes)
    if saved:
        state.load_state_dict(saved)
    validation = make_validation(config, splits["val"]) if config.data.validation_split else None
    frozen = frozen_features(state, train) if config.frozen_copies else None
    data = make_data(config, train, frozen, fabric)
    warn_about(data.batches, config.batch_size)
    if validation:
        warn_about_validation(validation.split, validation.pairs.pairs)
    return state, data, validation


def make_state(config: TrainConfig, fabric: Fabric, model: NormMatch, classes: Tensor | None = None) -> State:
    """A network with its losses, optimiser and average, on the device it is trained on.

    Args:
        classes: (T,) the class of each keypoint name, for the name loss.
    """
    module = NetworkWithLosses(model, MatchingLoss(config.loss, classes, model.config.dim))
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        module = cast(NetworkWithLosses, convert_sync_batchnorm(module))  # statistics of the whole batch
    model = module.model
    optimizer = make_optimizer(model, module.loss, config, fabric.device)
    if config.compile:
        compile_parts(module)
    wrapped, optimizer = fabric.setup(module, optimizer)
    wrapped.train()
    if not config.backbone_lr:
        model.backbone.eval()  # a frozen batch norm keeps its statistics too
    average = copy.deepcopy(model).requires_grad_(False)
    return State(config, fabric, wrapped, model, average, optimizer)


def compile_parts(module: NetworkWithLosses) -> None:
    """Compile part by part; a ViT's blocks share their code, and so do the transformer's layers."""
    for part in [*compiled_parts(module.model.backbone), *module.model.compiled_heads(), module.loss]:
        part.compile(dynamic=False)


def frozen_features(state: State, split: PreparedSplit) -> FrozenFeatures:
    """What the frozen backbone sees; the first process encodes, the others read what it has kept."""
    backbone, fabric = state.model.backbone, state.fabric
    made = on_first(fabric, lambda: make_frozen_features(backbone, split, state.config))
    return made or make_frozen_features(backbone, split, state.config, progress=False)


def check_same(config: TrainConfig, saved: dict[str, Any]) -> None:
    """Refuse to go on with other settings; a setting that is newer than the run had its default value."""
    flat, ours = (_flat(checkpoint.as_json(c)) for c in (TrainConfig(out=config.out), config))
    flat |= {RENAMED.get(key, key): value for key, value in _flat(saved).items()}
    if "data.name" in flat:  # of older runs
        flat["data.names"] = [flat["data.name"]]
    for key in sorted(ours.keys() - MAY_CHANGE):
        if flat[key] != ours[key]:
            was = f"{key} {flat[key]}, not {ours[key]}"
            raise ConfigError(
                f"the run in {config.out} was started with {was}; resume it as it was, or give another --out"
            )


def begin(config: TrainConfig, resumed: bool) -> None:
    """Write down the settings of a new run; delete what one that was killed had half written."""
    for path in config.out.iterdir():
        if path.name.startswith(HALF):
            path.unlink()
    if not resumed:
        write_json(config.out / CONFIG, checkpoint.as_json(config), indent=2)


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}); start the run anew without --resume") from error
    return content


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their names on the command line, such as model.dim."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def make_model(config: TrainConfig, state: dict[str, Any] | None) -> NormMatch:
    """The network as the run begins; one that is resumed gets its weights later, with the rest of the state."""
    if not (config.init or state):
        return NormMatch(config.model)
    model = NormMatch(replace(config.model, backbone_weights="random"))  # no backbone is asked for twice
    min_score = (state or {}).get("min_score", config.model.min_score)
    if config.init and not state:
        file = find_weights(config.init)
        trained = read_config(file)
        check_fits(config.init, trained, config.model)
        load_weights(model, file)
        min_score = trained.min_score  # near enough until the network is calibrated again
    model.config = replace(config.model, min_score=min_score)
    return model


def check_fits(name: str, trained: ModelConfig, model: ModelConfig) -> None:
    """Refuse weights of another network by the setting that differs."""
    for key, value in vars(trained).items():
        if key not in MAY_DIFFER and getattr(model, key) != value:
            raise WeightsError(
                f"weights {name} are of a network with model.{key} {value}, not {getattr(model, key)}; "
                "expected the same network"
            )


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder of a run: nobody else trains in it, and if nothing comes to be in it, it is not left behind."""
    if not is_first():  # the first process holds it for all
        yield
        return
    try:
        with locked(folder / LOCK):
            yield
    except BlockingIOError as error:
        raise ConfigError(f"another process is training in {folder}; give another --out") from error
    finally:
        with suppress(OSError):
            folder.rmdir()


def warn_about_validation(split: PreparedSplit, pairs: np.ndarray) -> None:
    """Say which classes of a split no pair (P, 2) of the validation shows."""
    shown = {split.objects[i].label for i in pairs[:, 0]}
    for label in sorted({item.label for item in split.objects} - shown):
        warnings.warn(f"class {label} gives no pair for validation", stacklevel=2)


def warn_about(batches: TrainBatches, batch_size: int) -> None:
    """Say what of the dataset is of no use, and that a small one repeats itself."""
    for reason, count in batches.skipped.items():
        warnings.warn(reason if count == 1 else f"{reason} ({count:,} times)", stacklevel=2)
    pairs = sum(len(source) for source in batches.sources)
    if pairs < batch_size:
        warnings.warn(
            f"the training split gives {pairs:,} pairs, fewer than a batch of {batch_size:,}, which repeats them; "
            f"--batch-size {pairs} makes steps that cost less",
            stacklevel=2,
        )
