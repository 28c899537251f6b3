"""Where weights come from, and how they are kept: safetensors files that carry their config. No torch here.

The metadata of a file has `config`, the JSON of a ModelConfig, and `held_out`, whether some objects of the training
split were kept from training: "true", "false", or nothing in files that do not know.
"""

import json
import logging
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save_file

from normmatch.checks import check_path
from normmatch.config import ModelConfig
from normmatch.errors import ConfigError, WeightsError, first_line
from normmatch.extras import require
from normmatch.outputs import whole_file

FILE_NAME = "model.safetensors"
SCALE = ".scale8"  # ends the name of the tensor with the scales of a matrix that is stored in 8 bits
BUNDLED = Path(__file__).parent

Tensors = dict[str, np.ndarray]


def find_weights(name: str | Path) -> Path:
    """The weights file that a name stands for: a bundled name, a file, a folder that holds one, or a name on a hub.

    A file or folder that is called like a bundled network is written as a path: `./small`.
    """
    bundled = {file.stem: file for file in sorted(BUNDLED.glob("*.safetensors"))}
    if isinstance(name, str) and name in bundled:
        return bundled[name]
    path = check_path(name, "weights", WeightsError)
    if path.is_file():
        return path
    if path.is_dir():
        if (path / FILE_NAME).is_file():
            return path / FILE_NAME
        raise WeightsError(f"folder {path} holds no {FILE_NAME}; expected what save_pretrained wrote")
    if str(name) in bundled:
        return bundled[str(name)]
    known = ", ".join(bundled) or "none yet"
    # A run in a folder of ours, such as runs/mine, is not looked for on a hub.
    if path.suffix == ".safetensors" or str(name).count("/") != 1 or path.parent.is_dir():
        raise WeightsError(
            f"weights {name} not found; expected a file, a folder, owner/name on a hub, or a bundled one ({known})"
        )
    return _download(str(name))


def _download(name: str) -> Path:
    require("huggingface_hub")
    import huggingface_hub

    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it tells of each of its six attempts
    try:
        return Path(huggingface_hub.hf_hub_download(name, FILE_NAME))
    except Exception as error:  # of the hub, of its http library, of the disk
        raise WeightsError(
            f"weights {name} could not be had from the hub ({first_line(error)}), and no such folder exists"
        ) from error
    finally:
        logger.setLevel(level)


def read_config(path: Path) -> ModelConfig:
    """The config that a weights file carries."""
    config = parse_config(_read_metadata(path).get("config"), f"weights file {path}")
    if config.parameters > path.stat().st_size:  # a byte each is the least
        raise WeightsError(
            f"weights file {path} does not fit the model: it is too small for {config.parameters:,} numbers"
        )
    return config


def parse_config(text: str | None, where: str, needed: Collection[str] = ()) -> ModelConfig:
    """A config from the JSON that a file carries."""
    if text is None:
        raise WeightsError(f"{where} carries no config; expected one that NormMatch wrote")
    try:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(text).items()}
        unknown = sorted(values.keys() - {f.name for f in fields(ModelConfig)})
        if unknown:
            raise ConfigError(f"it has the unknown setting {unknown[0]}")
        if missing := sorted(set(needed) - values.keys()):
            raise ConfigError(f"it lacks the setting {missing[0]}")
        return ModelConfig(**values)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsError(f"{where} carries a config that cannot be: {first_line(error)}") from error


def read_held_out(path: Path) -> bool | None:
    """Whether the network was trained without some objects of the training split; None where the file does not know.

    Only on such objects can its scores be calibrated.
    """
    return {"true": True, "false": False}.get(_read_metadata(path).get("held_out", ""))


def _read_metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, "np") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"weights file {path} is not a readable safetensors file: {first_line(error)}") from error


def save_weights(path: Path, tensors: Mapping[str, np.ndarray], config: ModelConfig, held_out: bool | None) -> None:
    """Write tensors and config into one file, atomically. Of a backbone file only its name is kept, not its folder."""
    values = asdict(replace(config, backbone_weights=Path(config.backbone_weights).name))
    metadata = {"config": json.dumps(values)}
    if held_out is not None:
        metadata["held_out"] = json.dumps(held_out)
    try:
        with whole_file(path) as partial:
            save_file(dict(tensors), partial, metadata=metadata)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"weights file {path} cannot be written: {first_line(error)}") from error


def set_calibration(path: Path, min_score: float, calibration: Sequence[float]) -> None:
    """Write what was calibrated into the config of a weights file; its tensors stay as they are, to the bit."""
    config = replace(read_config(path), min_score=min_score, calibration=tuple(calibration))
    held_out = read_held_out(path)
    save_weights(path, read_stored(path), config, held_out)


def read_tensors(path: Path) -> Tensors:
    """The tensors of a safetensors file; the matrices of 8-bit files are multiplied out."""
    if not path.is_file():
        raise WeightsError(f"weights file {path} does not exist; expected a safetensors file")
    stored = read_stored(path)
    tensors = {key: value for key, value in stored.items() if not key.endswith(SCALE)}
    return {key: multiply_out(matrix, stored.get(key + SCALE)) for key, matrix in tensors.items()}


def multiply_out(matrix: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
    """A matrix of 8 bits as floats; one whose scales are missing or do not fit is complained of by its type."""
    known = scale is not None and scale.shape == matrix.shape[:1]
    return matrix.astype(np.float32) * _column(scale, matrix) if known else matrix  # type: ignore[arg-type]


def read_stored(path: Path, wanted: Container[str] | None = None) -> Tensors:
    """The tensors as they are stored, but for bfloat16, which numpy does not have: it becomes float32, exactly."""
    try:
        with safe_open(path, "np") as file:
            keys = [key for key in file.keys() if wanted is None or key in wanted]  # noqa: SIM118 - it is no dict
            kinds = {key: file.get_slice(key).get_dtype() for key in keys}
            tensors = {key: file.get_tensor(key) for key, kind in kinds.items() if kind != "BF16"}
        half = {key for key, kind in kinds.items() if kind == "BF16"}
        return tensors | (_read_bfloat16(path, half) if half else {})
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"weights file {path} is not a readable safetensors file: {first_line(error)}") from error


def _read_bfloat16(path: Path, keys: set[str]) -> Tensors:
    tensors = {}
    for key, stored in deserialize(path.read_bytes()):
        if key in keys:
            bits = np.frombuffer(stored["data"], "<u2").astype(np.uint32) << 16  # the upper half of a float32
            tensors[key] = bits.view(np.float32).reshape(stored["shape"])
    return tensors


def check_tensors(path: Path, tensors: Tensors, expected: Mapping[str, tuple[tuple[int, ...], bool]]) -> None:
    """Refuse the tensors of a file unless they are the expected ones, given by shape and whether they are floats."""
    floats = {key: value.dtype.kind == "f" for key, value in tensors.items()}
    both = expected.keys() & tensors.keys()
    complaints = {
        "lacks": expected.keys() - tensors.keys(),
        "has the unknown tensor": tensors.keys() - expected.keys(),
        "has another shape for": {k for k in both if expected[k][0] != tensors[k].shape},
        "has integers for": {k for k in both if expected[k][1] > floats[k]},
        "has NaN or infinite values in": {k for k in both if floats[k] and not np.isfinite(tensors[k]).all()},
    }
    for complaint, keys in complaints.items():
        if keys:
            raise WeightsError(
                f"weights file {path} does not fit the model: it {complaint} {min(keys)} (of {len(keys)})"
            )


def round_tensors(tensors: Mapping[str, np.ndarray], bits: int) -> Tensors:
    """Tensors in fewer bits, for smaller files: 16 is half precision; 8 stores matrices as whole numbers.

    With 8 bits each row of a matrix has a scale, its largest entry over 127, kept as a tensor of its own; everything
    that is not a matrix stays in half precision.
    """
    if isinstance(bits, bool) or bits not in (32, 16, 8):
        raise WeightsError(f"bits is {bits}; expected 32, 16 or 8")
    if bits == 32:
        return dict(tensors)
    result = {}
    for key, value in tensors.items():
        if value.dtype.kind != "f":
            result[key] = value
        elif bits == 16 or value.ndim not in (2, 4):
            result[key] = value.astype(np.float16)
        else:
            largest = np.abs(value).reshape(len(value), -1).max(1)
            scale = np.maximum(largest, np.float32(1e-12)) / np.float32(127)  # (rows,)
            result[key] = np.rint(value / _column(scale, value)).astype(np.int8)
            result[key + SCALE] = scale.astype(np.float32)
    return result


def _column(scale: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """(rows,) -> (rows, 1, ...), to be multiplied with the rows of a matrix."""
    return scale.reshape(-1, *[1] * (matrix.ndim - 1))
