"""The paper's ablation table: the same training with one thing changed in each row, beside what that cost the paper.

    OUT/<row>/            the run of each row, as `normmatch train` leaves it
    OUT/ablation.json     all rows;  OUT/ablation.md  the table

A command that is stopped goes on where it was when it is given again: rows that are trained are only evaluated.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normmatch.config import PRESETS, AugmentConfig, DatasetName, TrainConfig
from normmatch.datasets.catalog import load_training
from normmatch.errors import ConfigError, WeightsError
from normmatch.evaluation.config import EvalConfig
from normmatch.evaluation.predict_all import predict_all
from normmatch.evaluation.score import Result, score
from normmatch.evaluation.tables import Table, percent, print_table, write_markdown
from normmatch.outputs import check_outputs, write_json
from normmatch.training.checkpoint import as_json
from normmatch.training.distributed import under_torchrun
from normmatch.training.run import CONFIG, check_same, read_json, train
from normmatch.weights import FILE_NAME

REPORT, TABLE = "ablation.json", "ablation.md"
FULL = "full"
PAPER_FULL = 88.7  # accuracy of the paper's full model on PascalVOC
NO_AUGMENT = AugmentConfig(affine=0.0, photometric=0.0, flip=0.0, mixup=0.0, cutmix=0.0, erase=0.0)


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    title: str
    change: Callable[[TrainConfig], TrainConfig]
    paper: float | None = None  # points of accuracy that the change cost the paper


def _loss(**changes: Any) -> Callable[[TrainConfig], TrainConfig]:
    return lambda config: replace(config, loss=replace(config.loss, **changes))


def _without_augmentation(config: TrainConfig) -> TrainConfig:
    return replace(config, augment=NO_AUGMENT, frozen_copies=min(config.frozen_copies, 1))


def _vanilla(config: TrainConfig) -> TrainConfig:
    return replace(config, model=replace(config.model, transformer="vanilla"))


def _without_locating(config: TrainConfig) -> TrainConfig:
    return replace(config, model=replace(config.model, locate_dim=0), augment=replace(config.augment, self_pairs=0.0))


def _without_dataset(name: DatasetName) -> Callable[[TrainConfig], TrainConfig]:
    """The others of a mixture alone, still without the photographs that this one tests."""

    def change(config: TrainConfig) -> TrainConfig:
        data = config.data
        if name not in data.names or len(data.names) == 1:
            return config
        kept = [i for i, other in enumerate(data.names) if other != name]
        names, shares = tuple(data.names[i] for i in kept), tuple(data.shares[i] for i in kept if data.shares)
        return replace(config, data=replace(data, names=names, shares=shares, exclude=(*data.exclude, name)))

    return change


def _vgg16(config: TrainConfig) -> TrainConfig:
    """The other backbone, at the size of images that it is used with; its weights are set by `ablate`."""
    names = ("backbone", "backbone_layers", "image_size")
    changes = {name: getattr(PRESETS["vgg16"], name) for name in names}
    return replace(config, model=replace(config.model, **changes), layer_decay=1.0)


ROWS = {
    FULL: Row("full", lambda config: config, 0.0),
    "augmentation": Row("without augmentation", _without_augmentation, 1.2),
    "layer-loss": Row("without layer loss", _loss(layer_loss=False), 0.8),
    "vanilla": Row("vanilla transformer", _vanilla, 2.6),
    "cross-entropy": Row("cross-entropy instead of the losses", _loss(contrastive=False), 15.1),
    "vgg16": Row("VGG16 backbone", _vgg16, 4.9),
    "name-loss": Row("without name loss (ours)", _loss(names=0.0)),
    "layer-match": Row("without layer match (ours)", _loss(layer_match=0.0)),
    "paper-losses": Row("the paper's losses only", _loss(names=0.0, layer_match=0.0)),
    "locating": Row("without locating (ours)", _without_locating),
    "pascal-voc": Row("without PascalVOC (ours)", _without_dataset("pascal-voc")),
    "spair-71k": Row("without SPair-71k (ours)", _without_dataset("spair-71k")),
}


def ablate(
    config: TrainConfig, rows: Sequence[str], vgg16_weights: str, split: str, pairs: int, overwrite: bool = False
) -> list[dict[str, Any]]:
    """Train and evaluate the rows, print the table; returns the rows that are done, the paper's drops beside ours."""
    check(config, rows, vgg16_weights)
    runs = {name: row_config(config, name, vgg16_weights) for name in ROWS if name in rows}
    check_outputs({"--out": [config.out / REPORT, config.out / TABLE]}, (config.data.root, vgg16_weights), overwrite)
    data = config.data
    measure = EvalConfig(
        root=data.root,
        protocol=(data.protocol,),
        split=split,
        pairs=pairs,
        sampling=data.sampling,
        device=config.accelerator,
    )
    for size in {run.model.image_size for run in runs.values()}:  # better found missing now than after the first row
        load_training(data, size, (split,))
    until = time.monotonic() + 60 * config.minutes if config.minutes else None
    done: dict[str, Result] = {}
    for name, run in runs.items():
        if not finish(run, until):
            print(f"time is up in the row {name}; the same command goes on from here")
            break
        ((predictions,),) = predict_all([str(run.out)], data.names[0], measure)
        done[name] = {"train": as_json(run), **score(predictions)}
        write_json(config.out / REPORT, {"rows": make_rows(done), "results": done}, indent=1)
        write_markdown(config.out / TABLE, [make_table(done)])
    if done:
        print_table(make_table(done))
    return make_rows(done)


def check(config: TrainConfig, rows: Sequence[str], vgg16_weights: str) -> None:
    """Refuse what cannot be, before the first row is trained."""
    if unknown := set(rows) - set(ROWS):
        raise ConfigError(f"there is no row {min(unknown)!r} in the ablation table; expected {', '.join(ROWS)}")
    for name in rows:
        if name != FULL and row_config(config, name, vgg16_weights) == replace(config, out=config.out / name):
            raise ConfigError(
                f"the row {name!r} would be the full one again: the training has nothing of it to leave out"
            )
    if config.devices > 1 or under_torchrun():
        raise ConfigError("the ablation table is trained on one device; start rows on several with normmatch train")
    if config.resume or config.init:
        raise ConfigError(
            "the rows of the ablation table start alike and go on by themselves; leave out --init, --resume"
        )
    if "vgg16" in rows and vgg16_weights not in ("hub", "random") and not Path(vgg16_weights).is_file():
        raise WeightsError(f"weights file {vgg16_weights} does not exist; expected one of VGG16 as --vgg16-weights")


def row_config(config: TrainConfig, name: str, vgg16_weights: str) -> TrainConfig:
    """The training of a row, in a folder of its own."""
    changed = ROWS[name].change(replace(config, out=config.out / name))
    if name == "vgg16":
        return replace(changed, model=replace(changed.model, backbone_weights=vgg16_weights))
    return changed


def finish(run: TrainConfig, until: float | None) -> bool:
    """Train a row as far as that is not done; False if time is up before its end."""
    begun = (run.out / CONFIG).is_file()
    if begun:
        check_same(run, read_json(run.out / CONFIG))
    if not (run.out / FILE_NAME).is_file():
        left = max(1e-9, (until - time.monotonic()) / 60) if until else 0.0
        train(replace(run, resume=begun, minutes=left), load_training(run.data, run.crop_size))
    return (run.out / FILE_NAME).is_file()


def make_rows(done: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Accuracy of each row and how far it is below the full one, beside the paper's drop; in points of per cent."""
    full = done.get(FULL)
    return [
        {
            "row": name,
            "title": ROWS[name].title,
            "accuracy": 100 * result["mean"],
            "drop": 100 * (full["mean"] - result["mean"]) if full else None,
            "paper_drop": ROWS[name].paper,
        }
        for name, result in done.items()
    ]


def make_table(done: Mapping[str, Result]) -> Table:
    """The table. The paper's numbers are PascalVOC's, so they stand beside that dataset's alone."""
    first = next(iter(done.values()))
    beside = first["dataset"] == "pascal-voc"
    rows = []
    for row in make_rows(done):
        drop = "" if row["drop"] is None or row["row"] == FULL else f"{row['drop']:.2f}"
        paper = "" if row["paper_drop"] is None else f"{row['paper_drop']:.1f}"
        paper = f"({PAPER_FULL})" if row["row"] == FULL else paper
        rows.append((row["title"], percent(row["accuracy"] / 100, 2), drop, *([paper] if beside else [])))
    rules = f"{first['dataset']} {first['split']}, protocol {first['protocol']}, {first['pairs']:,} pairs"
    steps, batch = first["train"]["steps"], first["train"]["batch_size"]
    note = f"{steps:,} steps of {batch} pairs each; a drop is what a row loses against the full one"
    columns = ("", "accuracy", "drop", *(("the paper's drop",) if beside else ()))
    return Table(f"ablations, accuracy in %: {rules}", columns, rows, [note])
