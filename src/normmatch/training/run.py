"""Where a run starts: in an empty folder or at its last checkpoint; from a fresh network or from trained weights."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from normmatch.config import ModelConfig, TrainConfig
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError, WeightsError
from normmatch.io import locked, whole_file
from normmatch.model.backbone import load_weights
from normmatch.model.network import NormMatch
from normmatch.training import checkpoint
from normmatch.training.batches import TrainBatches
from normmatch.training.distributed import is_first
from normmatch.training.log import CURVES, LOG
from normmatch.weights import find_weights, read_config

CONFIG, LOCK = "config.json", ".lock"  # in the folder of a run
HALF = (".step-", ".model.", ".config.", ".log.", ".bad-batch-")  # how the names of half-written files begin
LEFTOVERS = (*HALF, "bad-batch-")  # of runs that ended before their first checkpoint
MAY_CHANGE = {  # between a run and its resumption; anything else would end with other weights
    "out", "resume", "minutes", "keep", "save_every", "validate_every", "validation_pairs", "log_every", "tensorboard",
    "compile", "accelerator", "devices", "data.root", "data.workers",
}  # fmt: skip
MAY_DIFFER = {"backbone_weights", "image_size", "drop_path", "sinkhorn_epsilon", "sinkhorn_rounds", "min_score"}


def find_start(config: TrainConfig) -> dict[str, Any] | None:
    """The state to resume from, or None for a start from nothing. What must not be overwritten is an error."""
    out = config.out
    saved = checkpoint.newest(out) is not None
    if saved and not config.resume:
        raise ConfigError(f"{out} holds another run; give --resume to continue it, or another --out")
    if not saved and out.is_dir():
        foreign = {path.name for path in out.iterdir()} - {CONFIG, LOG, CURVES, LOCK}
        if any(not name.startswith(LEFTOVERS) for name in foreign):
            raise ConfigError(f"{out} holds something else; expected a new or empty folder for a run")
    if not config.resume:
        return None
    if not saved and not (out / CONFIG).is_file():
        raise ConfigError(f"{out} holds no checkpoint to resume from; start it without --resume")
    state = checkpoint.load_newest(out)  # none where a run was killed before its first one: it starts again
    check_same(config, state["config"] if state else read_json(out / CONFIG))
    return state


def check_same(config: TrainConfig, saved: dict[str, Any]) -> None:
    """Refuse to go on with other settings; a setting that is newer than the run had its default value."""
    flat, ours = (_flat(as_json(c)) for c in (TrainConfig(out=config.out), config))
    flat |= _flat(saved)
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
        with whole_file(config.out / CONFIG) as file:
            file.write_text(json.dumps(as_json(config), indent=2), encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error}); start the run anew without --resume") from error
    return content


def as_json(config: TrainConfig) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(config), default=str))


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
