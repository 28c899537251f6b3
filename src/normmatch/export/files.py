"""Write the two graphs of a network to a folder, and check there that they compute what the network does."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import normmatch
from normmatch.errors import ExportError, first_line
from normmatch.export.graphs import Graph, trace
from normmatch.export.parity import check_parity, onnx_runner
from normmatch.extras import require
from normmatch.model.network import NormMatch
from normmatch.outputs import MARK, whole_file

FORMATS = ("onnx",)


def export(model: NormMatch, out: Path, format: str = "onnx") -> dict[Path, float]:
    """Write `encoder.onnx` and `head.onnx` (see `graphs.py`) to the folder `out`, both whole or none.

    Both files carry the network's config as JSON, under the key "config" of their metadata.

    Returns:
        For each file the largest difference to what the network itself computes; more than 1e-4 is an ExportError.
    """
    if format not in FORMATS:
        raise ExportError(f"format is {format!r}, expected onnx: other formats are not written any more.")
    require("onnx", "onnxscript", "onnxruntime")
    files = output_files(out)
    with _quiet(), ExitStack() as stack:
        try:
            partial = {name: stack.enter_context(whole_file(file)) for name, file in files.items()}
            partial["head"].touch()  # a folder that cannot be written is better known now than in a minute
        except OSError as error:
            raise ExportError(f"the folder {out} cannot be written: {error.strerror or error}.") from error
        graphs = trace(model)
        for name, graph in graphs.items():
            _write(graph, partial[name], config_text(model))
        free_size = 2 in graphs["encoder"].axes["image"]
        found = check_parity(model, onnx_runner(partial["encoder"]), onnx_runner(partial["head"]), free_size)
    return {files[name]: difference for name, difference in found.items()}


def output_files(out: Path) -> dict[str, Path]:
    """The files of a folder, by the names of their graphs."""
    return {name: out / f"{name}.onnx" for name in ("encoder", "head")}


def config_text(model: NormMatch) -> str:
    """The config as JSON; of a backbone file only its name is kept, not its folder."""
    return json.dumps(asdict(replace(model.config, backbone_weights=Path(model.config.backbone_weights).name)))


def _write(graph: Graph, path: Path, config: str) -> None:
    try:
        onnx: Any = torch.onnx.export(
            graph.program, dynamo=True, verbose=False,
            input_names=graph.inputs, output_names=graph.outputs, dynamic_shapes=graph.axes,
        )  # fmt: skip
        onnx.model.producer_name, onnx.model.producer_version = MARK, normmatch.__version__
        onnx.model.metadata_props["config"] = config
        onnx.save(path, external_data=False)
    except OSError as error:
        raise ExportError(f"the file {path.name} cannot be written: {error.strerror or error}.") from error
    except Exception as error:  # the exporter raises whatever it stumbles on
        raise ExportError(f"the network cannot be written as ONNX: {first_line(error)}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter talks about its own insides; what matters is checked afterwards."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
