"""Where weights come from, and how they are kept: safetensors files that carry their config, on disk or on a hub."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from normmatch.config import ModelConfig
from normmatch.errors import ConfigError, WeightsError, first_line
from normmatch.io import whole_file

FILE_NAME = "model.safetensors"
SCALE = ".scale8"  # ends the name of the tensor with the scales of a matrix that is stored in 8 bits
BUNDLED = Path(__file__).parent


def find(name: str | Path) -> Path:
    """The weights file that a name stands for: a file, a folder that holds one, a bundled name, or a name on a hub."""
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        if (path / FILE_NAME).is_file():
            return path / FILE_NAME
        raise WeightsError(f"folder {path} holds no {FILE_NAME}; expected what save_pretrained wrote")
    bundled = BUNDLED / f"{name}.safetensors"
    if bundled.is_file():
        return bundled
    known = ", ".join(sorted(p.stem for p in BUNDLED.glob("*.safetensors"))) or "none yet"
    # A run in a folder of ours, such as runs/mine, is not looked for on a hub.
    if path.suffix == ".safetensors" or str(name).count("/") != 1 or path.parent.is_dir():
        raise WeightsError(
            f"weights {name} not found; expected a file, a folder, owner/name on a hub, or a bundled one ({known})"
        )
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it tells of each of its six attempts
    try:
        return Path(hf_hub_download(str(name), FILE_NAME))
    except Exception as error:  # of the hub, of its http library, of the disk
        raise WeightsError(
            f"weights {name} could not be had from the hub ({first_line(error)}), and no such folder exists"
        ) from error
    finally:
        logger.setLevel(level)


def save_weights(
    path: Path, state: Mapping[str, Tensor], config: ModelConfig, about: Mapping[str, Any] | None = None
) -> None:
    """Write tensors and config into one file, atomically. Of a backbone file only its name is kept, not its folder.

    Args:
        about: how the network came to be, such as held_out: whether the validation objects were not trained on.
    """
    values = asdict(config)
    values["backbone_weights"] = Path(config.backbone_weights).name
    try:
        with whole_file(path) as partial:
            metadata = {key: json.dumps(value) for key, value in {**(about or {}), "config": values}.items()}
            save_file({k: v.contiguous() for k, v in state.items()}, partial, metadata=metadata)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"weights file {path} cannot be written: {first_line(error)}") from error


def read_config(path: Path) -> ModelConfig:
    """The config that a weights file carries."""
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get("config")
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"weights file {path} is not a readable safetensors file: {first_line(error)}") from error
    if text is None:
        raise WeightsError(f"weights file {path} carries no config; expected one that save_pretrained wrote")
    try:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(text).items()}
        unknown = sorted(values.keys() - {f.name for f in fields(ModelConfig)})
        if unknown:
            raise ConfigError(f"it has the unknown setting {unknown[0]}")
        return ModelConfig(**values)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsError(f"weights file {path} carries a config that cannot be: {first_line(error)}") from error


def set_min_score(path: Path, min_score: float) -> None:
    """Write a calibrated threshold into the config of a weights file; its tensors stay as they are, to the bit."""
    config = replace(read_config(path), min_score=min_score)
    save_weights(path, load_file(path), config)


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a safetensors file into a module; every tensor must be there and fit."""
    if not path.is_file():
        raise WeightsError(f"weights file {path} does not exist; expected a safetensors file")
    try:
        state = _unrounded(load_file(path))
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"weights file {path} is not a readable safetensors file: {first_line(error)}") from error
    expected = module.state_dict()
    both = expected.keys() & state.keys()
    complaints = {
        "lacks": expected.keys() - state.keys(),
        "has the unknown tensor": state.keys() - expected.keys(),
        "has another shape for": {k for k in both if expected[k].shape != state[k].shape},
        "has integers for": {k for k in both if expected[k].is_floating_point() > state[k].is_floating_point()},
        "has NaN or infinite values in": {k for k in both if not state[k].isfinite().all()},
    }
    for complaint, keys in complaints.items():
        if keys:
            raise WeightsError(
                f"weights file {path} does not fit the model: it {complaint} {min(keys)} (of {len(keys)})"
            )
    module.load_state_dict(state)


def rounded(state: Mapping[str, Tensor], bits: int) -> dict[str, Tensor]:
    """A state in fewer bits, for smaller files: 16 is half precision; 8 stores matrices as whole numbers.

    With 8 bits each row of a matrix has a scale, its largest entry over 127, kept as a tensor of its own; everything
    that is not a matrix stays in half precision.
    """
    if bits == 32:
        return dict(state)
    result = {}
    for key, value in state.items():
        if not value.is_floating_point():
            result[key] = value
        elif bits == 16 or value.ndim not in (2, 4):
            result[key] = value.to(torch.float16)
        else:
            scale = value.flatten(1).abs().amax(1).clamp_min(1e-12) / 127  # (rows,)
            result[key] = (value / _column(scale, value)).round().to(torch.int8)
            result[key + SCALE] = scale.float()
    return result


def _unrounded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The matrices of 8-bit files multiplied out; everything else as it is."""
    result = {key: value for key, value in state.items() if not key.endswith(SCALE)}
    for key, matrix in result.items():
        scale = state.get(key + SCALE)  # a matrix whose scales are missing or do not fit is complained of by its type
        if scale is not None and scale.shape == matrix.shape[:1]:
            result[key] = matrix.float() * _column(scale, matrix)
    return result


def _column(scale: Tensor, matrix: Tensor) -> Tensor:
    """(rows,) -> (rows, 1, ...), to be multiplied with the rows of a matrix."""
    return scale.view(-1, *[1] * (matrix.ndim - 1))
