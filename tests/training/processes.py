"""Runs that are killed, told to stop or out of disk, as processes of their own; prints what became of them as JSON.

They are forks of this one, so that torch is imported once. Usage: python processes.py FOLDER
"""

import json
import os
import resource
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import normmatch.weights
from normmatch.config import PRESETS, AugmentConfig, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import NormMatchError
from normmatch.model.network import NormMatch
from normmatch.training import checkpoint, loop, validation
from normmatch.training.log import TrainingLog
from normmatch.training.run import train

SIZE = 64
Splits = dict[str, PreparedSplit] | None
SPLITS: Splits = {name: drawn.make(4, SIZE, seed=0, split=name) for name in ("train", "val")}


def config(out: Path, **changes: Any) -> TrainConfig:
    base = TrainConfig(
        out=out, model=replace(PRESETS["tiny"], image_size=SIZE, dim=16, drop_path=0.2),
        data=DataConfig(names=("synthetic",), workers=0), augment=AugmentConfig(flip=0.5, cutmix=0.3),
        steps=6, batch_size=2, warmup=2, precision="32-true", compile=False, accelerator="cpu", log_every=1,
        validate_every=2, validation_pairs=2, save_every=2, tensorboard=False,
    )  # fmt: skip
    return replace(base, **changes)


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def on_call(owner: object, name: str, number: int, action: Callable[..., object]) -> None:
    """Replace the `number`-th call of a function."""
    inner, calls = getattr(owner, name), []

    def replaced(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return (action if len(calls) == number else inner)(*args, **options)

    setattr(owner, name, replaced)


def half_written(tensors: Any, path: Path, metadata: Any) -> None:
    Path(path).write_bytes(b"half")
    die()


def half_a_line(self: TrainingLog, line: dict[str, Any]) -> None:
    with self.file.open("a") as file:
        file.write(json.dumps(line)[:10])
    die()


MOMENTS: dict[str, Callable[[], object]] = {
    "in the first step": lambda: on_call(torch.optim.AdamW, "step", 1, die),
    "after a step, before it is saved": lambda: on_call(loop, "save", 1, die),
    "in the first checkpoint": lambda: on_call(checkpoint, "save_file", 1, half_written),
    "in the second checkpoint": lambda: on_call(checkpoint, "save_file", 2, half_written),
    "before an old checkpoint goes": lambda: on_call(checkpoint, "all_in", 3, die),
    "in a line of the log": lambda: on_call(TrainingLog, "write", 2, half_a_line),
    "in a validation": lambda: on_call(validation, "predict", 1, die),
    "before the model is written": lambda: on_call(NormMatch, "save_pretrained", 1, die),
    "in the model": lambda: on_call(normmatch.weights, "save_file", 1, half_written),
}


def fork(settings: TrainConfig, prepare: Callable[[], object] = lambda: None, splits: Splits = SPLITS) -> int:
    """Train in a fork; its process number."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    os.setsid()
    sys.stdout = sys.stderr = (settings.out.parent / f"{settings.out.name}.txt").open("a")
    try:
        prepare()
        train(settings, splits)
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    except NormMatchError as error:
        (settings.out.parent / f"{settings.out.name}.error").write_text(str(error))
        code = 2
    sys.stdout.flush()
    os._exit(code)


def wait(child: int) -> int:
    """The exit code of a fork; minus the signal, if one has killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def log(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def same(a: Path, b: Path) -> bool:
    first, second = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def killed(folder: Path) -> dict[str, Any]:
    """One run, killed at one moment after the other, and resumed each time."""
    out, codes = folder / "killed", {}
    for name, prepare in MOMENTS.items():
        codes[name] = wait(fork(config(out, resume=(out / "config.json").exists()), prepare))
    end = wait(fork(config(out, resume=True)))
    entries = [(line["step"], "val_accuracy" in line) for line in log(out)]
    left = sorted(path.name for path in out.iterdir())
    return {"codes": codes, "end": end, "same": same(out, folder / "whole"), "entries": entries, "left": left}


def told(folder: Path) -> dict[str, Any]:
    """SIGTERM to the run and its loader's process, after which it is resumed."""
    out = folder / "told"
    run = config(out, steps=6, data=DataConfig(names=("synthetic",), workers=1))
    child = fork(run, lambda: on_call(loop, "step", 3, lambda *_, **__: time.sleep(60)))
    while not (out / "log.jsonl").exists() or len(log(out)) < 3:  # two steps and a validation
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    wait(child)
    child = fork(replace(run, resume=True), lambda: on_call(TrainingLog, "write_step", 1, lambda *_: signal_group()))
    code, saved = wait(child), [path.name for path in checkpoint.all_in(out)]
    return {
        "code": code,
        "saved": saved,
        "end": wait(fork(replace(run, resume=True))),
        "same": same(out, folder / "whole"),
    }


def signal_group() -> None:
    os.killpg(0, signal.SIGTERM)
    time.sleep(0.1)


def full_disk(folder: Path) -> dict[str, Any]:
    """No file may grow beyond a few kilobytes after the first checkpoint."""
    out = folder / "full"

    def prepare() -> None:
        on_call(loop, "validate_once", 1, lambda *_: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, -1)))

    code = wait(fork(config(out), prepare))
    left = sorted(path.name for path in out.iterdir())
    end = wait(fork(config(out, resume=True)))
    error = (folder / "full.error").read_text()
    return {"code": code, "error": error, "left": left, "end": end, "same": same(out, folder / "whole")}


def fork_pair(run: TrainConfig, splits: Splits = SPLITS) -> list[int]:
    """Two processes that train together, as torchrun would start them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    shared = {"TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    return [fork(run, lambda rank=rank: os.environ.update(rank), splits) for rank in ranks]  # type: ignore[misc]


def pair(folder: Path) -> dict[str, Any]:
    """One process and two, with unequal shares of a batch, points without partners, and images blended across."""
    model = replace(PRESETS["tiny"], backbone="test_vit", image_size=SIZE, dim=16)  # no statistics of a batch
    data = DataConfig(names=("synthetic",), workers=0, sampling="inclusion")
    run = config(folder / "one", model=model, data=data, batch_size=5, lr=3e-3)
    codes = [wait(fork(run))]
    codes += [wait(child) for child in fork_pair(replace(run, out=folder / "two"))]
    weights = [load_file(folder / out / "model.safetensors") for out in ("one", "two")]
    worst = max(float((weights[0][key] - weights[1][key]).abs().max()) for key in weights[0])
    return {"codes": codes, "logs": [log(folder / out) for out in ("one", "two")], "worst": worst}


def told_pair(folder: Path) -> dict[str, Any]:
    """SIGTERM to one of two processes; then they go on as one."""
    out = folder / "told_pair"
    run = config(out, model=replace(PRESETS["tiny"], backbone="test_vit", image_size=SIZE, dim=16), steps=100_000)
    children = fork_pair(run)
    while not (out / "log.jsonl").exists() or not log(out):
        time.sleep(0.05)
    os.kill(children[1], signal.SIGTERM)
    codes = [wait(child) for child in children]
    newest = checkpoint.find_newest(out)
    assert newest is not None
    saved = checkpoint.load(newest)
    end = wait(fork(replace(run, resume=True, minutes=1e-9)))
    return {"codes": codes, "steps": [saved["step"], log(out)[-1]["step"]], "end": end}


def full_disk_pair(folder: Path) -> dict[str, Any]:
    """The first process cannot write: the other one does not wait for it."""
    out = folder / "full_pair"
    out.mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    codes = [wait(child) for child in fork_pair(config(out))]
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    return {"codes": codes}


def unprepared_pair(folder: Path) -> dict[str, Any]:
    """Two processes on data that nobody has prepared yet, and on data that cannot be prepared."""
    drawn.write(folder / "data", 4, SIZE, seed=0)
    model = replace(PRESETS["tiny"], backbone="test_vit", image_size=SIZE, dim=16)
    run = config(
        folder / "fresh", model=model, data=DataConfig(("synthetic",), root=folder / "data", workers=0), steps=1
    )
    codes = [wait(child) for child in fork_pair(run, None)]
    run = replace(run, out=folder / "none", data=DataConfig(("folder",), root=folder / "no_data", workers=0))
    refused = [wait(child) for child in fork_pair(run, None)]
    return {"codes": codes, "refused": refused, "left": run.out.exists()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    assert wait(fork(config(place / "whole"))) == 0
    scenarios = (killed, told, full_disk, pair, told_pair, full_disk_pair, unprepared_pair)
    print(json.dumps({scenario.__name__: scenario(place) for scenario in scenarios}))
