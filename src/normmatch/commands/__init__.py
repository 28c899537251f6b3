"""The command line. Each command is a function: its signature is its options, its docstring their help."""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro
from rich.console import Console
from tyro.conf import subcommand

from normmatch import __version__
from normmatch.commands import ablate, bench, data, demo, export, match, propagate, quickstart, train
from normmatch.commands.eval import evaluate
from normmatch.commands.options import REGISTRY
from normmatch.config import TrainConfig
from normmatch.errors import NormMatchError
from normmatch.extras import missing

DESCRIPTION = "Match semantic keypoints between photographs. `normmatch --version` tells the version."
DataCommand = (
    Annotated[Any, subcommand("download", constructor=data.download)]
    | Annotated[Any, subcommand("prepare", constructor=data.prepare)]
    | Annotated[Any, subcommand("check", constructor=data.check)]
)
BenchCommand = (
    Annotated[Any, subcommand("model", constructor=bench.model)]
    | Annotated[Any, subcommand("train", constructor=bench.train)]
    | Annotated[Any, subcommand("data", constructor=bench.data)]
)


def _group(name: str, commands: Any, description: str) -> Any:
    return Annotated[Any, subcommand(name, constructor_factory=lambda: commands, description=description)]


Command: Any = Union[  # noqa: UP007 - the parts are made by calls
    Annotated[Any, subcommand("match", constructor=match.match)],
    Annotated[Any, subcommand("propagate", constructor=propagate.propagate)],
    _group("data", DataCommand, "Get, prepare and look at datasets."),
    _group("train", train.PRESET_COMMANDS, "Train a network, starting from one of the presets."),
    Annotated[Any, subcommand("eval", constructor=evaluate)],
    Annotated[Any, subcommand("ablate", constructor=ablate.ablate)],
    _group("bench", BenchCommand, "Measure speed."),
    Annotated[Any, subcommand("samples", constructor=demo.samples)],
    Annotated[Any, subcommand("demo", constructor=demo.demo)],
    Annotated[Any, subcommand("export", constructor=export.export)],
    Annotated[Any, subcommand("quickstart", constructor=quickstart.quickstart)],
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
            if args[:1] in (["train"], ["ablate"]):
                args = train.renamed(args)
            if args[:1] == ["train"]:
                _check_training(args[1:])
            with REGISTRY:
                result = tyro.cli(Command, prog="normmatch", description=DESCRIPTION, args=args)
            if isinstance(result, TrainConfig):
                train.train(result)
        sys.stdout.flush()
    except NormMatchError as error:
        console.print(str(error), style="red")
        sys.exit(2)
    except ModuleNotFoundError as error:  # an extra that is not installed
        console.print(str(missing(error.name or "")), style="red")
        sys.exit(2)
    except KeyboardInterrupt:
        console.print("interrupted", style="red")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone: that is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _check_training(args: Sequence[str]) -> None:
    """Raise our own sentence about settings that cannot be: tyro would put it into words about its own parts."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            tyro.cli(train.PRESET_COMMANDS, args=args, console_outputs=False)
    except SystemExit as exit:  # all other complaints, and --help, are tyro's to print
        cause: BaseException | None = exit
        while cause is not None:
            if isinstance(cause, NormMatchError):
                raise cause from None
            cause = cause.__context__
