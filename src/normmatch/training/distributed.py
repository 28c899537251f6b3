"""Devices and processes: one process a device, started by torchrun, joined by Lightning Fabric (DDP).

    normmatch train small --devices 4 ...                         four devices of this machine
    torchrun --nnodes 2 --nproc-per-node 8 ... -m normmatch train small ...      eight devices of each of two machines

The processes share every batch: each computes the gradient of its pairs, and the sum is that of the whole batch.
"""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any, Self, TypeVar, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy
from torch import Tensor

from normmatch.config import TrainConfig
from normmatch.errors import ConfigError, DataError
from normmatch.model.device import can_compile, find_device

Result = TypeVar("Result")
LATE = 1  # a reason to stop; no signal that is handled here has this number
REASONS = {LATE: "time is up", signal.SIGINT: "interrupted", signal.SIGTERM: "told to stop (SIGTERM)"}
CHECKED = "NORMMATCH_DATA_CHECKED"  # in the environment of processes whose starter has prepared the dataset
PATIENCE = timedelta(hours=2)  # how long processes wait for the first one's validation or for a slow disk


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this is the first process, before they are joined."""
    return not (under_torchrun() and int(os.environ["RANK"]))


def on_first(fabric: Fabric, work: Callable[[], Result], each_machine: bool = False) -> Result | None:
    """Let the first process do something while the others wait; if it fails, none of them goes on.

    With `each_machine`, the first of each machine. Returns what `work` does where it was done, None in the others.
    """
    first = fabric.local_rank == 0 if each_machine else fabric.is_global_zero
    result: Result | None = None
    failed: Exception | None = None
    if first:
        try:
            result = work()
        except Exception as error:
            failed = error
    if largest(fabric, int(failed is not None)):
        raise failed or DataError("the first process has failed; it says why")
    return result


def largest(fabric: Fabric, number: int) -> int:
    """The largest number of all processes."""
    return int(_reduce(fabric, torch.tensor(number, device=fabric.device), "max")) if fabric.world_size > 1 else number


def mean(fabric: Fabric, values: Tensor) -> Tensor:
    """The mean over processes: of a loss over each one's share, it is the loss of the whole batch."""
    return _reduce(fabric, values, "mean") if fabric.world_size > 1 else values


def _reduce(fabric: Fabric, values: Tensor, how: str) -> Tensor:
    return cast(Tensor, fabric.all_reduce(values, reduce_op=how))


class Stop:
    """Why a run ends before its last step: its time is up, or it is told to (SIGTERM, Ctrl-C).

    Within its block the first signal is noted, for the loop to save its work; a second one ends the process.
    """

    def __init__(self, minutes: float) -> None:
        self.until = time.monotonic() + 60 * minutes if minutes else float("inf")
        self.signal = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python does not allow it
            self.before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self.__exit__()

    def reason(self) -> int:
        """0, LATE or the number of a signal."""
        return self.signal or (LATE if time.monotonic() > self.until else 0)


def make_fabric(config: TrainConfig) -> Fabric:
    """The device of this process, its arithmetic, and its connection to the other processes."""
    processes, machines = count_processes(config)
    cuda = torch.cuda.is_available() and config.accelerator in ("auto", "cuda")
    precision = ("bf16-mixed" if cuda else "32-true") if config.precision == "auto" else config.precision
    several = processes * machines > 1
    torch.set_float32_matmul_precision("high")
    fabric = Fabric(
        accelerator=config.accelerator,
        devices=processes,
        num_nodes=machines,
        strategy=DDPStrategy(timeout=PATIENCE, gradient_as_bucket_view=True) if several else "auto",
        precision=precision,
    )
    fabric.launch()
    return fabric


def without_compiler(config: TrainConfig) -> TrainConfig:
    """The same, less `compile` where torch's compiler does not work: training is slower then, and works."""
    if not config.compile or can_compile(find_device(config.accelerator)):
        return config
    warnings.warn(
        "Training is not compiled, because torch's compiler does not work here: it needs a C++ compiler, such as g++.",
        stacklevel=2,
    )
    return replace(config, compile=False)


def count_processes(config: TrainConfig) -> tuple[int, int]:
    """Processes on this machine, and machines; an error where there are not as many devices."""
    if under_torchrun():
        here, all_of_them = (int(os.environ[name]) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
        if config.devices not in (1, here):
            raise ConfigError(f"devices is {config.devices}, but torchrun has started {here} processes here")
    else:
        here = all_of_them = 1
        check_devices(config)
        if config.devices > 1:
            raise ConfigError(
                f"devices is {config.devices}, but this is a single process; expected a start by `normmatch train`, "
                f"or by torchrun --nproc-per-node {config.devices}"
            )
    if config.batch_size < all_of_them:
        raise ConfigError(f"batch_size is {config.batch_size}, expected a pair for each of {all_of_them} devices")
    return here, all_of_them // here


def check_devices(config: TrainConfig) -> None:
    """Refuse devices that are not there."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    there = {"cuda": torch.cuda.device_count() if cuda else 0, "mps": int(mps), "cpu": cores()}
    kind = next(k for k, count in there.items() if count) if config.accelerator == "auto" else config.accelerator
    if config.devices > there[kind]:
        raise ConfigError(f"devices is {config.devices}, but of kind {kind} this machine has {there[kind]}")


def start_processes(config: TrainConfig, arguments: Sequence[str]) -> None:
    """Run `normmatch` with these arguments once for each device, by torchrun; what can be refused is refused before."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from normmatch.datasets.catalog import load_training
    from normmatch.training.run import find_start

    check_devices(config)
    find_start(config)
    load_training(config.data, config.crop_size)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun would, with a page of explanation
    command = ["--standalone", "--nproc-per-node", str(config.devices), "-m", "normmatch", *arguments]
    os.environ[CHECKED] = "1"
    try:
        run.main(command)
    except ChildFailedError as error:
        sys.exit(max(failure.exitcode for failure in error.failures.values()))
    except SignalException as error:  # it has passed the signal on and waited
        sys.exit(128 + error.sigval)
    finally:
        del os.environ[CHECKED]
