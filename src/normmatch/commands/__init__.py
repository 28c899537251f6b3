"""The command line. Each command is a function: its signature is its options, its docstring their help."""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Annotated, Any, Union

import tyro
from rich.console import Console
from tyro.conf import subcommand

from normmatch import __version__
from normmatch.commands import (
    ablate,
    bench,
    check,
    compare,
    convert,
    data,
    demo,
    export,
    forecast,
    label,
    locate,
    match,
    propagate,
    quickstart,
    train,
)
from normmatch.commands.eval import evaluate
from normmatch.commands.options import OPTIONAL_VALUES
from normmatch.config import TrainConfig
from normmatch.errors import NormMatchError, readable
from normmatch.extras import missing

DESCRIPTION = "Match semantic keypoints between photographs. `normmatch --version` tells the version."
RENAMED = {  # options as the README of version 0.1 spells them: for one version more
    "--views": "--frozen-copies",
    "--data.name": "--data.names",
    "--data.no-hold-out": "--data.no-validation-split",
    "--data.hold-out": "--data.validation-split",
}


def _command(name: str, function: Callable[..., None]) -> Any:
    """A subcommand whose parsing gives the call to make, so that nothing runs before all of it is parsed."""

    @wraps(function)
    def bound(*args: Any, **options: Any) -> Callable[[], None]:
        return partial(function, *args, **options)

    return Annotated[Any, subcommand(name, constructor=bound)]


def _group(name: str, commands: Any, description: str) -> Any:
    return Annotated[Any, subcommand(name, constructor_factory=lambda: commands, description=description)]


DATA: Any = Union[  # noqa: UP007 - the parts are made by calls, here and below
    _command("download", data.download), _command("prepare", data.prepare), _command("check", data.check)
]
BENCH: Any = Union[  # noqa: UP007
    _command("model", bench.model), _command("train", bench.train), _command("data", bench.data),
    _command("peers", bench.peers),
]  # fmt: skip
COMMANDS: Any = Union[  # noqa: UP007
    _command("match", match.match),
    _command("locate", locate.locate),
    _command("label", label.label),
    _command("propagate", propagate.propagate),
    _command("convert", convert.convert),
    _command("check", check.check),
    _command("compare", compare.compare),
    _command("forecast", forecast.forecast),
    _group("data", DATA, "Get, prepare and look at datasets."),
    _group("train", train.PRESET_COMMANDS, "Train a network, starting from one of the presets."),
    _command("eval", evaluate),
    _command("ablate", ablate.ablate),
    _group("bench", BENCH, "Measure speed, and what other methods have."),
    _command("samples", demo.samples),
    _command("demo", demo.demo),
    _command("export", export.export),
    _command("quickstart", quickstart.quickstart),
]


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; what a user can mend ends in one red line and exit code 2, never in a stack trace."""
    args = sys.argv[1:] if args is None else list(args)
    _make_printable()
    if args == ["--version"]:
        print(f"normmatch {__version__}")
        return
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: console.print(str(message), style="yellow")
            parse(today(args))()
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
        _drop_output()
        sys.exit(1)
    except OSError as error:  # of a disk that is full, perhaps the one that standard output goes to
        _drop_output()
        sentence = f"{error.filename or 'a file'} cannot be read or written: {error.strerror or error}"
        console.print(readable(sentence), style="red")
        sys.exit(2)


def _drop_output() -> None:
    """Let what is left of the output go nowhere."""
    with contextlib.suppress(OSError, ValueError):  # it is no file, in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_printable() -> None:
    """Let everything be printed: to a stream that is closed it goes nowhere, and to one without the letters escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def today(args: Sequence[str]) -> list[str]:
    """The arguments as they are spelled today; a line of warning for each that is spelled as in the last version."""
    spelled = []
    for word in args:
        name, equals, value = word.partition("=")
        new = RENAMED.get(name.replace("_", "-"), name)  # an option may have either
        if new != name:
            warnings.warn(f"{name} is called {new} now; the next version will not know it.", stacklevel=2)
        spelled.append(new + equals + value)
    return spelled


def parse(args: Sequence[str]) -> Callable[[], None]:
    """The call that the arguments ask for. What our settings refuse is said in our sentence, all else in tyro's."""
    said = io.StringIO()
    try:
        with OPTIONAL_VALUES, contextlib.redirect_stderr(said):
            call = tyro.cli(COMMANDS, prog="normmatch", description=DESCRIPTION, args=args)
    except SystemExit as stop:
        cause: BaseException | None = stop
        while cause is not None:
            if isinstance(cause, NormMatchError):
                raise cause from None
            cause = cause.__context__
        sys.stderr.write(said.getvalue())
        raise
    return partial(train.train, call) if isinstance(call, TrainConfig) else call
