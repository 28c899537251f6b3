"""`normmatch eval`: ask networks, or read what they said; score it; print the tables and write them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

from normmatch.config import DatasetName
from normmatch.datasets.catalog import Reading, load_splits
from normmatch.datasets.pairs import objects_hash
from normmatch.errors import ConfigError, DataError
from normmatch.evaluation.calibration import calibrate, find_own_file
from normmatch.evaluation.config import EvalConfig
from normmatch.evaluation.failures import draw_worst
from normmatch.evaluation.predict_all import ask_networks
from normmatch.evaluation.predictions import Predictions, load_predictions, save_predictions
from normmatch.evaluation.report import make_report, make_sheets
from normmatch.evaluation.tables import Sheet, print_sheet, to_markdown
from normmatch.io import write_json, write_text, writing
from normmatch.weights import FILE_NAME, find_weights, set_min_score

DEFAULT_WEIGHTS = "small"


def evaluate(what: Sequence[str], config: EvalConfig) -> dict[str, Any]:
    """Evaluate the weights on the dataset that `what` names, as the config says; returns the report."""
    weights, name = targets(what, config)
    for path in (config.json, config.markdown, config.out and config.out / "predictions"):
        if path:
            check_place(path)
    calibrations: list[dict[str, Any]] = []
    if config.predictions:
        said = load_all(config.predictions, name)
    else:
        said, calibrations = ask_all(weights, cast(DatasetName, name), config)
    report = make_report(said, calibrations)
    sheets = make_sheets(report)
    for sheet in sheets:
        print_sheet(sheet)
    if config.json:
        with writing(config.json):
            write_json(config.json, report, indent=1)
    if config.markdown:
        with writing(config.markdown):
            write_text(config.markdown, to_markdown(sheets))
    for sheet in analyse_failures(said, config) if config.worst else []:  # the numbers are safe by now
        print_sheet(sheet)
    return report


def targets(what: Sequence[str], config: EvalConfig) -> tuple[tuple[str, ...], str | None]:
    """The weights and the dataset that a command names: weights first, the dataset last."""
    weights, name = tuple(what[:-1]), what[-1] if what else None
    if name not in get_args(DatasetName) and not (config.predictions and name is None):
        known = ", ".join(get_args(DatasetName))
        raise ConfigError(f"the dataset is {name or 'missing'}, expected one of {known} after the weights.")
    if config.predictions and weights:
        raise ConfigError(f"both predictions and the weights {weights[0]} are given, expected one of them.")
    if len(set(weights)) < len(weights):
        raise ConfigError(f"the weights are {' '.join(weights)}, expected each once.")
    return weights or (DEFAULT_WEIGHTS,), name


def ask_all(
    weights: Sequence[str], name: DatasetName, config: EvalConfig
) -> tuple[list[Predictions], list[dict[str, Any]]]:
    """What the networks say about the split, and what their calibrations found; the thresholds are written."""
    files = [find_own_file(item) if config.calibrate else find_weights(item) for item in weights]
    said: list[Predictions] = []
    calibrations = []
    for number, (answers, file) in enumerate(zip(ask_networks(weights, name, config), files, strict=True)):
        wanted = (config.split, config.sampling)
        said += [p for p in answers if (p.meta["split"], p.meta["sampling"]) == wanted]
        if config.out:
            for predictions in answers:
                save_predictions(predictions, config.out / file_name(predictions, number if len(weights) > 1 else None))
        if config.calibrate:
            calibrations.append(calibrate(answers, config.split))
            set_min_score(file, calibrations[-1]["threshold"])
    return said, calibrations


def analyse_failures(said: Sequence[Predictions], config: EvalConfig) -> list[Sheet]:
    """Pictures and summary of the worst pairs of each set of predictions without noise."""
    sheets = []
    plain = [p for p in said if not p.meta["jitter"]]
    several = len({p.meta["weights"] for p in plain}) > 1
    for number, predictions in enumerate(plain):
        meta = predictions.meta
        grid, magnitude, only = meta["reading"]
        reading = Reading(grid, tuple(magnitude) if magnitude else None, tuple(only))
        needed = (meta["split"],)
        splits = load_splits(meta["dataset"], config.root, meta["protocol"], meta["image_size"], needed, reading)
        split = splits[meta["split"]]
        if objects_hash(split) != meta["objects"]:
            raise DataError(
                f"the {meta['split']} objects of {meta['dataset']} in {config.root} are not those of the predictions."
            )
        name = file_name(predictions, number if several else None)
        folder = (config.out or Path()) / f"worst-{Path(name).stem}"
        sheets += draw_worst(predictions, split, config.worst, folder)
        sheets[-1].notes.append(f"pictures and summary are in {folder}")
    return sheets


def load_all(files: Sequence[Path], name: str | None) -> list[Predictions]:
    """Read files of predictions, all of the same dataset."""
    loaded = [load_predictions(file) for file in files]
    for file, predictions in zip(files, loaded, strict=True):
        expected = name or loaded[0].meta["dataset"]
        if predictions.meta["dataset"] != expected:
            raise DataError(f"the predictions {file} are for {predictions.meta['dataset']}, expected {expected}.")
    return loaded


def file_name(predictions: Predictions, number: int | None) -> str:
    """A name for a file of predictions that tells what they are; `number` keeps several weights apart."""
    meta = predictions.meta
    path = Path(meta["weights"])
    parts = [path.parent.name if path.name == FILE_NAME else path.stem]
    parts += [] if number is None else [str(number)]
    parts += [meta["dataset"], meta["split"], meta["protocol"]]
    parts += [] if meta["sampling"] == "intersection" else [meta["sampling"]]
    parts += [f"jitter{meta['jitter']:g}"] if meta["jitter"] else []
    parts += ["gray"] if meta.get("gray") else []
    return "-".join(part for part in parts if part) + ".safetensors"


def check_place(path: Path) -> None:
    """Make the folder of a file that will be written: better now than after an hour of work."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise DataError(f"{path} cannot be written: {'it is a folder' if path.is_dir() else 'permission denied'}.")
