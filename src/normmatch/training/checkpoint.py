"""Training checkpoints: tensors in one safetensors file, numbers in its metadata; nothing pickled, all or nothing."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from normmatch.errors import WeightsError
from normmatch.io import whole_file


def save(path: Path, state: dict[str, Any], keep: int) -> None:
    """Write a nested dict of tensors and JSON values as `path`, then drop all but the newest `keep` of its folder."""
    tensors: dict[str, Tensor] = {}
    values = _split(state, "", tensors)
    try:
        with whole_file(path) as partial:
            save_file(tensors, partial, metadata={"values": json.dumps(values)})
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"checkpoint {path} cannot be written ({error}); the last one is still there") from error
    for old in sorted(path.parent.glob("step-*.safetensors"))[:-keep]:
        old.unlink()


def latest(folder: Path) -> Path | None:
    """The newest checkpoint of a folder; names sort by step."""
    return max(folder.glob("step-*.safetensors"), default=None)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote."""
    try:
        with safe_open(path, "pt") as file:
            values = json.loads(file.metadata()["values"])
            return _join(values, "", {key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"checkpoint {path} cannot be read ({error}); expected one that training wrote") from error


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
