"""`normmatch eval`: predict, or read predictions; score them; write the tables and print them."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

from normmatch.config import DatasetName
from normmatch.datasets.catalog import load_splits
from normmatch.datasets.pairs import objects_hash
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError, DataError
from normmatch.evaluation.calibration import calibrate, file_to_calibrate
from normmatch.evaluation.config import EvalConfig
from normmatch.evaluation.failures import draw_worst, swapped_share
from normmatch.evaluation.predict_all import predict_all
from normmatch.evaluation.predictions import Predictions, load_predictions, save_predictions
from normmatch.evaluation.score import Result, make_report
from normmatch.evaluation.tables import make_tables, percent, print_table, write_markdown
from normmatch.outputs import check_outputs, words_apart, write_json, writing
from normmatch.weights import FILE_NAME, find_weights, set_calibration

DEFAULT_WEIGHTS = "small"


def evaluate(what: Sequence[str], config: EvalConfig) -> dict[str, Any]:
    """Evaluate the weights on the dataset that `what` names, as the config says; returns the report."""
    weights, name = split_arguments(what, config)
    predictions = load_all(config.predictions, name)
    calibrations: list[Result] = []
    inputs = config.predictions or tuple(find_weights(item) for item in weights)
    check_place([item.meta["weights"] for item in predictions] or weights, inputs, config)
    with words_apart(config.json, config.markdown):
        if not predictions:
            predictions, calibrations = run_networks(weights, cast(DatasetName, name), config)
        report = make_report(predictions, calibrations)
        tables = make_tables(report)
        if config.json:
            with writing(config.json):
                write_json(config.json, report, indent=1)
        if config.markdown:
            with writing(config.markdown):
                write_markdown(config.markdown, tables)
        for table in tables:
            print_table(table)
        if config.worst:  # the numbers are safe by now
            analyse_failures(predictions, config)
    return report


def split_arguments(what: Sequence[str], config: EvalConfig) -> tuple[tuple[str, ...], str | None]:
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


def check_place(weights: Sequence[str], inputs: Sequence[Path], config: EvalConfig) -> None:
    """Refuse what cannot be written, or would destroy something: better now than after an hour of work."""
    folder, files = config.out or Path(), set()
    for stem in map(weights_name, weights):
        if config.out and not config.predictions:
            files |= {folder / f"{stem}-.safetensors", *folder.glob(f"{glob.escape(stem)}-*.safetensors")}
        if config.worst:
            files |= {folder / f"worst-{stem}-.png", *folder.glob(f"worst-{glob.escape(stem)}-*/*")}
    outputs = {"--json": config.json, "--markdown": config.markdown, "--out": sorted(files)}
    check_outputs(outputs, (config.root, *inputs), config.overwrite)


def load_all(files: Sequence[Path], name: str | None) -> list[Predictions]:
    """Read files of predictions, all of the same dataset."""
    loaded = [load_predictions(file) for file in files]
    for file, predictions in zip(files, loaded, strict=True):
        expected = name or loaded[0].meta["dataset"]
        if predictions.meta["dataset"] != expected:
            raise DataError(f"the predictions {file} are for {predictions.meta['dataset']}, expected {expected}.")
    return loaded


def run_networks(
    weights: Sequence[str], name: DatasetName, config: EvalConfig
) -> tuple[list[Predictions], list[Result]]:
    """The predictions for the split and what calibrations found; predictions and thresholds are written."""
    files = [file_to_calibrate(item) for item in weights] if config.calibrate else []
    shown: list[Predictions] = []
    calibrations = []
    for number, predictions in enumerate(predict_all(weights, name, config)):
        wanted = (config.split, config.sampling)
        shown += [p for p in predictions if (p.meta["split"], p.meta["sampling"]) == wanted]
        for item in predictions if config.out else ():
            save_predictions(item, cast(Path, config.out) / file_name(item, number if len(weights) > 1 else None))
        if config.calibrate:
            calibrations.append(calibrate(predictions, config.split))
            set_calibration(files[number], calibrations[-1]["threshold"], calibrations[-1]["probabilities"])
    return shown, calibrations


def weights_name(weights: str) -> str:
    """What files that are about weights are called by."""
    path = Path(weights)
    return path.parent.name if path.name == FILE_NAME else path.stem


def file_name(predictions: Predictions, number: int | None) -> str:
    """A name for a file of predictions that tells what they are; `number` keeps several weights apart."""
    meta = predictions.meta
    parts = [weights_name(meta["weights"])]
    parts += [] if number is None else [str(number)]
    parts += [meta["dataset"], meta["split"], meta["protocol"]]
    parts += [] if meta["sampling"] == "intersection" else [meta["sampling"]]
    parts += [f"jitter{meta['jitter']:g}"] if meta["jitter"] else []
    parts += ["gray"] if meta.get("gray") else []
    return "-".join(part for part in parts if part) + ".safetensors"


def analyse_failures(predictions: Sequence[Predictions], config: EvalConfig) -> None:
    """Draw the worst pairs of each set of predictions without noise."""
    plain = [p for p in predictions if not p.meta["jitter"]]
    several = len({p.meta["weights"] for p in plain}) > 1
    for number, item in enumerate(plain):
        folder = (config.out or Path()) / f"worst-{Path(file_name(item, number if several else None)).stem}"
        draw_worst(item, load_split(item, config.root), config.worst, folder)
        print(f"the worst pairs are in {folder}; {percent(swapped_share(item))} % of wrong matches swap left and right")


def load_split(predictions: Predictions, root: Path) -> PreparedSplit:
    """The split that predictions were made on."""
    meta = predictions.meta
    name, needed = meta["dataset"], meta["split"]
    split = load_splits(name, root, meta["protocol"], meta["image_size"], (needed,))[needed]
    if objects_hash(split) != meta["objects"]:
        raise DataError(f"the {needed} objects of {name} in {root} are not those of the predictions.")
    return split
