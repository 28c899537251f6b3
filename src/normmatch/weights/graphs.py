"""The graphs of a network beside its weights: what onnxruntime runs without torch. They hold no weights themselves.

A folder has `encoder.onnx`, `embed.onnx` and `match.onnx` (what they take is said in `normmatch/export/graphs.py`),
the first two also for matrices in 8 bits, and `graphs.json`, which says of which network they are and which tensors of
a weights file each takes. Networks of the same shape share them: those of the bundled `small` are in the package.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from normmatch.config import ModelConfig
from normmatch.errors import WeightsError
from normmatch.outputs import MADE_BY
from normmatch.weights import (
    BUNDLED,
    SCALE,
    Tensors,
    check_tensors,
    multiply_out,
    parse_config,
    read_stored,
    round_tensors,
)

INDEX = "graphs.json"
NAMES = ("encoder", "embed", "match")
ROUNDED = NAMES[:2]  # which there are with matrices in 8 bits, too; they see one image at a time
IN_8_BITS = "-int8"  # ends the names of those

Shapes = Mapping[str, Sequence[int]]  # of tensors, by their names


@dataclass(frozen=True)
class Graphs:
    """Where the graphs of a network lie, and what they need."""

    folder: Path
    config: ModelConfig  # without what graphs do not depend on
    step: int  # height and width of an image may be multiples of this; 0 where the size is fixed
    tensors: Mapping[str, Shapes]  # of the weights file, by the name of the graph
    matrices: Mapping[str, Sequence[str]]  # those of them that a graph takes in 8 bits


def shape_of(config: ModelConfig) -> ModelConfig:
    """The part of a config that graphs depend on; there is none yet of the head that locates."""
    plain = replace(config, backbone_weights="", min_score=0.0, drop_path=0.0, locate_dim=0)
    return replace(plain, calibration=(), locate_calibration=())


def find_graphs(file: Path, config: ModelConfig) -> Graphs | None:
    """The graphs for a weights file: those beside it, or those of a bundled network of the same shape."""
    for folder in (file.parent, BUNDLED):
        if (folder / INDEX).is_file():
            graphs = read_index(folder / INDEX)
            if graphs.config == shape_of(config):
                return graphs
    return None


def read_index(path: Path) -> Graphs:
    """What `graphs.json` says."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        config = parse_config(json.dumps(values["config"]), str(path))
        return Graphs(path.parent, config, int(values["step"]), dict(values["tensors"]), dict(values["matrices"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{path} is damaged; write it anew with `normmatch export`") from error


def index_text(graphs: Graphs) -> str:
    """What `read_index` reads."""
    values = {"made_by": MADE_BY, "config": asdict(graphs.config), "step": graphs.step}
    return json.dumps({**values, "tensors": graphs.tensors, "matrices": graphs.matrices})


def read_for_graph(file: Path, shapes: Shapes, matrices: Sequence[str] = ()) -> Tensors:
    """The tensors that a graph takes from a weights file: `matrices` in 8 bits with their scales, others as floats."""
    stored = read_stored(file, {name for key in shapes for name in (key, key + SCALE)})
    tensors: Tensors = {}
    for key in shapes.keys() & stored.keys():
        value, scale = stored[key], stored.get(key + SCALE)
        if key in matrices:
            tensors |= round_tensors({key: value}, 8) if scale is None else {key: value, key + SCALE: scale}
        else:
            value = multiply_out(value, scale)
            tensors[key] = value.astype(np.float32) if value.dtype.kind == "f" else value
    expected = {key: (tuple(shape), key not in matrices) for key, shape in shapes.items()}
    expected |= {key + SCALE: (tuple(shapes[key][:1]), True) for key in matrices}
    check_tensors(file, tensors, expected)
    return tensors
