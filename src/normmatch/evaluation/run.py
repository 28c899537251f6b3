"""`normmatch eval`: predict, or read predictions; score them; write the tables and print them."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

from normmatch.config import DatasetName
from normmatch.datasets.catalog import Reading, load_splits
from normmatch.datasets.pairs import objects_hash
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError, DataError
from normmatch.evaluation.calibration import calibrate, file_to_calibrate
from normmatch.evaluation.config import EvalConfig
from normmatch.evaluation.failures import draw_worst
from normmatch.evaluation.predict_all import predict_all
from normmatch.evaluation.predictions import Predictions, load_predictions, save_predictions
from normmatch.evaluation.score import make_report
from normmatch.evaluation.tables import Table, make_tables, print_table, write_markdown
from normmatch.outputs import check_outputs, words_apart, write_json, writing
from normmatch.weights import FILE_NAME, find_weights, set_min_score

DEFAULT_WEIGHTS = "small"


def evaluate(what: Sequence[str], config: EvalConfig) -> dict[str, Any]:
    """Evaluate the weights on the dataset that `what` names, as the config says; returns the report."""
    weights, name = split_arguments(what, config)
    calibrations: list[dict[str, Any]] = []
    with words_apart(config.json, config.markdown):
        if config.predictions:
            predictions = load_all(config.predictions, name)
            check_place([item.meta["weights"] for item in predictions], config.predictions, config)
        else:
            check_place(weights, [find_weights(item) for item in weights], config)
            predictions, calibrations = run_networks(weights, cast(DatasetName, name), config)
        report = make_report(predictions, calibrations)
        tables = make_tables(report)
        if config.json:
            with writing(config.json):
                write_json(config.json, report, indent=1)
        if config.markdown:
            with writing(config.markdown):
                write_markdown(config.markdown, tables)
        folders = {}
        if config.worst:  # the numbers are safe by now
            folders = analyse_failures(predictions, config)
        for table in (*tables, *(table for some in folders.values() for table in some)):
            print_table(table)
        for folder in folders:
            print(f"pictures and summary are in {folder}")
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
    folder, files = config.out or Path(), []
    for stem in {weights_name(item) for item in weights}:
        if config.out and not config.predictions:
            files += [config.out / f"{stem}-.safetensors", *config.out.glob(f"{glob.escape(stem)}-*.safetensors")]
        if config.worst:
            old = folder.glob(f"worst-{glob.escape(stem)}-*/*")
            files += [folder / f"worst-{stem}-.md", *(path for path in old if path.suffix in (".png", ".md", ".json"))]
    outputs = {"--json": config.json, "--markdown": config.markdown, "--out": sorted(set(files))}
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
) -> tuple[list[Predictions], list[dict[str, Any]]]:
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
            set_min_score(files[number], calibrations[-1]["threshold"])
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


def analyse_failures(predictions: Sequence[Predictions], config: EvalConfig) -> dict[Path, list[Table]]:
    """Draw the worst pairs of each set of predictions without noise; by folder, what they have in common."""
    plain = [p for p in predictions if not p.meta["jitter"]]
    several = len({p.meta["weights"] for p in plain}) > 1
    found = {}
    for number, item in enumerate(plain):
        name = file_name(item, number if several else None)
        folder = (config.out or Path()) / f"worst-{Path(name).stem}"
        found[folder] = draw_worst(item, load_split(item, config.root), config.worst, folder)
    return found


def load_split(predictions: Predictions, root: Path) -> PreparedSplit:
    """The split that predictions were made on."""
    meta = predictions.meta
    grid, magnitude, only = meta["reading"]
    reading = Reading(grid, tuple(magnitude) if magnitude else None, tuple(only))
    needed = (meta["split"],)
    split = load_splits(meta["dataset"], root, meta["protocol"], meta["image_size"], needed, reading)[meta["split"]]
    if objects_hash(split) != meta["objects"]:
        raise DataError(f"the {meta['split']} objects of {meta['dataset']} in {root} are not those of the predictions.")
    return split
