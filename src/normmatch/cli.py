"""The command line. Each command is a function: its signature is its options, its docstring their help."""

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Union

import tyro
from rich.console import Console
from tyro.conf import Positional, arg, subcommand

from normmatch import __version__
from normmatch.config import PRESETS, DatasetName, ProtocolName, TrainConfig
from normmatch.data.protocols import get_protocol
from normmatch.errors import DataError, NormMatchError

# Options that may be left out; without this their help reads "{None}|PATH ... (default: None)".
Folder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Number = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
FIGURE_SIZE = 192  # pixels, of the drawn figures
Root = Annotated[Path, arg(metavar="DIR")]


def data_download(
    name: Positional[DatasetName], root: Root, archives: Folder = None, count: int = 250, seed: int = 0
) -> None:
    """Download a dataset, check it and unpack it.

    A download that breaks off goes on where it stopped when the command is given again.

    Args:
        name: the dataset; synthetic is drawn, not downloaded
        root: the folder to put it into
        archives: a folder with archives that you already have; nothing is downloaded then
        count: synthetic only, how many training figures of each class are drawn
        seed: synthetic only, fixes the figures
    """
    if name == "folder":
        raise DataError(
            f"There is nothing to download for your own data: put the images and a CSV or JSON into {root}."
        )
    if name == "synthetic":
        from normmatch.data import synthetic

        synthetic.write(root, count, FIGURE_SIZE, seed)
        print(f"{name} is drawn in {root}")
        return
    from normmatch.data.download import install

    files = install(name, root, archives)
    print(f"{name} is in {root}, unpacked from {', '.join(file.name for file in files)}")


def data_prepare(
    name: Positional[DatasetName],
    root: Root,
    archives: Folder = None,
    protocol: ProtocolName = "nmt",
    size: Number = None,
    workers: Number = None,
) -> None:
    """Decode, crop and resize every object once, into a cache that training and evaluation read.

    The cache goes to ROOT/prepared. If the command is interrupted, the next one goes on where it stopped.

    Args:
        name: the dataset
        root: the folder that it lies in
        archives: unpack the dataset from the archives in this folder first
        protocol: the rules to read the annotations by
        size: side of the square images in pixels; the protocol's if not given
        workers: number of processes; one for each core if not given
    """
    from normmatch.data.cache import prepare
    from normmatch.data.catalog import open_dataset, prepared_folder

    _unpack_first(name, root, archives)
    dataset = open_dataset(name, root, protocol)
    size = get_protocol(protocol).size if size is None else size
    folder = prepared_folder(name, root, protocol, size)
    report = prepare(dataset, folder, size, workers, strict=name == "folder")
    print(f"{report.objects:,} objects are in {folder} ({len(report.skipped):,} skipped, {report.seconds:.0f} s)")


def data_check(
    name: Positional[DatasetName],
    root: Root,
    archives: Folder = None,
    protocol: ProtocolName = "nmt",
    out: File = None,
) -> None:
    """Count what a dataset holds, name what is missing, and draw a sheet of random crops with their keypoints.

    Args:
        name: the dataset
        root: the folder that it lies in
        archives: unpack the dataset from the archives in this folder first
        protocol: the rules to read the annotations by
        out: the PNG to draw; NAME-check.png in the current folder if not given
    """
    from normmatch.data.catalog import open_dataset
    from normmatch.data.check import print_summary, summarize
    from normmatch.data.contact_sheet import contact_sheet

    _unpack_first(name, root, archives)
    dataset = open_dataset(name, root, protocol)
    print_summary(summarize(dataset, get_protocol(protocol).fewest_shared))
    out = out or Path(f"{name}-check.png")
    contact_sheet(dataset, out)
    print(f"the contact sheet is {out}")


def _unpack_first(name: DatasetName, root: Path, archives: Path | None) -> None:
    if archives is not None:
        from normmatch.data.download import install

        install(name, root, archives)


def quickstart(out: Root = Path("demo"), steps: int = 550) -> None:
    """Train a tiny network on drawn figures for about a minute, and show what it has learned.

    Args:
        out: the folder for the trained network and a picture; an earlier quickstart in it is replaced
        steps: length of the training
    """
    from normmatch.quickstart import quickstart as run

    run(out, steps)


def bench_data(
    name: Positional[DatasetName],
    root: Root,
    protocol: ProtocolName = "nmt",
    size: Number = None,
    batch_size: int = 64,
    workers: int = 2,
    seconds: float = 10.0,
) -> None:
    """Measure how many augmented training pairs a second the loader delivers from a prepared dataset.

    Args:
        name: the dataset
        root: the folder that it lies in
        protocol: the rules that it was prepared by
        size: the size that it was prepared for; the protocol's if not given
        batch_size: pairs a batch
        workers: loader processes
        seconds: how long to measure
    """
    from normmatch.benchmark import bench_data as run
    from normmatch.config import AugmentConfig
    from normmatch.data.catalog import load_splits

    split = load_splits(name, root, protocol, size, needed=("train",))["train"]
    for with_images in (False, True):
        rate = run(split, batch_size, workers, seconds, AugmentConfig(), with_images=with_images)
        pixels = "in each batch" if with_images else "on the device"
        print(f"{rate:,.0f} pairs/s with {workers} workers, the pixels {pixels}")


def run_eval(
    weights: Positional[str],
    name: Positional[DatasetName],
    root: Root,
    protocol: ProtocolName = "nmt",
    split: str = "test",
    pairs: int = 1000,
    seed: int = 0,
    json: File = None,
) -> None:
    """Measure how many keypoints a trained network matches right, class by class.

    Args:
        weights: a folder or file that training wrote
        name: the dataset
        root: the folder that it lies in
        protocol: the rules to read the annotations and to score by
        split: train, val or test
        pairs: pairs a class; a dataset that comes with pairs uses those
        seed: fixes the pairs
        json: a file for the result
    """
    import torch

    from normmatch.data.catalog import load_splits
    from normmatch.evaluate import evaluate, print_accuracy
    from normmatch.io import write_json
    from normmatch.model.matcher import NormMatch

    model = NormMatch.from_pretrained(weights).to("cuda" if torch.cuda.is_available() else "cpu")
    splits = load_splits(name, root, protocol, model.config.image_size, needed=(split,))
    result = {
        "weights": weights,
        "split": split,
        **evaluate(model, splits[split], name, get_protocol(protocol), pairs, seed),
    }
    print_accuracy(result)
    if json is not None:
        write_json(json, result)


def run_training(config: TrainConfig) -> None:
    """Train; the dataset is prepared first where that has not been done."""
    from normmatch.data.catalog import load_splits
    from normmatch.train import train

    data = config.data
    train(config, load_splits(data.name, data.root, data.protocol, config.model.image_size))


DESCRIPTION = "Match semantic keypoints between photographs. `normmatch --version` tells the version."
DataCommand = (
    Annotated[Any, subcommand("download", constructor=data_download)]
    | Annotated[Any, subcommand("prepare", constructor=data_prepare)]
    | Annotated[Any, subcommand("check", constructor=data_check)]
)
BenchCommand = Annotated[Any, subcommand("data", constructor=bench_data)] | Annotated[None, tyro.conf.Suppress]
TrainCommand: Any = Union[  # noqa: UP007 - one command for each preset, with its values as the defaults
    tuple(
        Annotated[
            TrainConfig,
            subcommand(
                name,
                default=TrainConfig(out=tyro.MISSING, model=model),
                description=f"{model.backbone} at {model.image_size} px.",
            ),
        ]
        for name, model in PRESETS.items()
    )
]


def _group(name: str, commands: Any, description: str) -> Any:
    return Annotated[Any, subcommand(name, constructor_factory=lambda: commands, description=description)]


Command: Any = Union[  # noqa: UP007 - the parts are made by calls
    _group("data", DataCommand, "Get, prepare and look at datasets."),
    _group("train", TrainCommand, "Train a network, starting from one of the presets."),
    Annotated[Any, subcommand("eval", constructor=run_eval)],
    _group("bench", BenchCommand, "Measure speed."),
    Annotated[Any, subcommand("quickstart", constructor=quickstart)],
]


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; what a user can mend ends in one red line and exit code 2, never in a stack trace."""
    args = sys.argv[1:] if args is None else list(args)
    if args == ["--version"]:
        print(f"normmatch {__version__}")
        return
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: console.print(str(message), style="yellow")
            result = tyro.cli(Command, prog="normmatch", description=DESCRIPTION, args=args)
            if isinstance(result, TrainConfig):
                run_training(result)
        sys.stdout.flush()
    except NormMatchError as error:
        console.print(str(error), style="red")
        sys.exit(2)
    except ModuleNotFoundError as error:  # an extra that is not installed
        console.print(
            f"this command needs {error.name}; install it with: pip install 'normmatch[train,viz]'", style="red"
        )
        sys.exit(2)
    except KeyboardInterrupt:
        console.print("interrupted", style="red")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone: that is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
