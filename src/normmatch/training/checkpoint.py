"""Training checkpoints: tensors in one safetensors file, numbers in its metadata; nothing pickled, all or nothing."""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from normmatch.config import TrainConfig
from normmatch.errors import WeightsError
from normmatch.outputs import whole_file


def save(path: Path, state: dict[str, Any], keep: int) -> None:
    """Write a nested dict of tensors and JSON values as `path`, then drop all but the newest `keep` of its folder."""
    tensors: dict[str, Tensor] = {}
    values = _split(state, "", tensors)
    try:
        with whole_file(path) as partial:
            save_file(tensors, partial, metadata={"values": json.dumps(values)})
            with partial.open("rb") as file:
                os.fsync(file.fileno())  # on the disk before it has its name, and before an older one goes
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"checkpoint {path} cannot be written ({error}); the last one is still there") from error
    for old in all_in(path.parent)[:-keep]:
        old.unlink()


def all_in(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the oldest first; names sort by step."""
    return sorted(folder.glob("step-*.safetensors"))


def find_newest(folder: Path) -> Path | None:
    """The newest checkpoint of a folder; a damaged one is passed over for the one before it, with a warning."""
    paths = all_in(folder)[::-1]
    for path, before in zip(paths, [*paths[1:], None], strict=False):
        try:
            read_values(path)
            return path
        except WeightsError as error:
            if before is None:
                raise
            warnings.warn(f"{error}; the run goes on from {before.name}", stacklevel=2)
    return None


def read_values(path: Path) -> dict[str, Any]:
    """What a checkpoint holds besides tensors, such as the settings of its run; quick, as no tensor is read."""
    with _opened(path) as file:
        return json.loads(file.metadata()["values"])


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote."""
    with _opened(path) as file:
        values = json.loads(file.metadata()["values"])
        return _join(values, "", {key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:  # which notices a file that is cut off
            yield file
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise WeightsError(f"checkpoint {path} cannot be read ({error}); expected one that training wrote") from error


def as_json(config: TrainConfig) -> dict[str, Any]:
    """The settings of a run as they are written down."""
    return json.loads(json.dumps(asdict(config), default=str))


def _split(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of a nested value into `tensors`, leaving their place marked."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().contiguous().clone(memory_format=torch.contiguous_format)
        return {"__tensor__": True}
    if isinstance(value, dict):
        return {str(k): _split(v, f"{name}/{k}", tensors) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_split(v, f"{name}/{i}", tensors) for i, v in enumerate(value)]
    return value


def _join(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `_split`; keys that were integers are integers again."""
    if isinstance(value, dict):
        if value == {"__tensor__": True}:
            return tensors[name]
        return {int(k) if k.isdigit() else k: _join(v, f"{name}/{k}", tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [_join(v, f"{name}/{i}", tensors) for i, v in enumerate(value)]
    return value
