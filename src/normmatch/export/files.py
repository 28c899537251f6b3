"""Write the graphs of a network beside its weights, and check there that they compute what the network does."""

import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import onnx_ir as ir

from normmatch.errors import ExportError
from normmatch.export.graphs import image_step, trace
from normmatch.export.onnx import convert, in_8_bits, tensors_of
from normmatch.export.parity import check_parity
from normmatch.model.network import NormMatch
from normmatch.outputs import write_text
from normmatch.weights import FILE_NAME, read_held_out
from normmatch.weights.graphs import IN_8_BITS, INDEX, NAMES, ROUNDED, Graphs, index_text, shape_of

FILES = (*(f"{name}.onnx" for name in NAMES), *(f"{name}{IN_8_BITS}.onnx" for name in ROUNDED), INDEX)


def export(model: NormMatch, out: Path, weights: Path | None = None) -> dict[str, float]:
    """Write the graphs of a network (see `graphs.py`) and its weights as floats to a folder, all of them or none.

    Graphs carry the network's config as JSON, under the key "config" of their metadata.

    Args:
        weights: the network's file, which stays as it is if it is the folder's.

    Returns:
        For each graph the largest difference to what the network itself computes; more than 1e-4 is an ExportError.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".export-") as name:
            folder = Path(name)
            file = weights if weights is not None and in_place(weights, out) else None
            if file is None:
                file = model.save_pretrained(folder, held_out=read_held_out(weights) if weights else None)
            graphs = write_graphs(model, file, folder)
            found = check_parity(model, file, graphs)
            for path in folder.iterdir():
                os.replace(path, out / path.name)
    except OSError as error:
        raise ExportError(f"the folder {out} cannot be written: {error.strerror or error}.") from error
    return found


def in_place(weights: Path, out: Path) -> bool:
    """Whether a weights file is where its graphs look for it."""
    return (out / FILE_NAME).exists() and (out / FILE_NAME).samefile(weights)


def write_graphs(model: NormMatch, file: Path, folder: Path) -> Graphs:
    """Write the graphs for a weights file to a folder."""
    config = json.dumps(asdict(replace(model.config, backbone_weights=Path(model.config.backbone_weights).name)))
    places = tensor_places(file)
    tensors: dict[str, dict[str, list[int]]] = {}
    matrices: dict[str, list[str]] = {}
    traced = trace(model)
    for name, graph in traced.items():
        onnx = convert(name, graph, places, config)
        tensors[name] = tensors_of(onnx)
        ir.save(onnx, folder / f"{name}.onnx")
        if name in ROUNDED:
            matrices[name] = in_8_bits(onnx)
            ir.save(onnx, folder / f"{name}{IN_8_BITS}.onnx")
    step = image_step(model) if 2 in traced["encoder"].axes["image"] else 0
    graphs = Graphs(folder, shape_of(model.config), step, tensors, matrices)
    write_text(folder / INDEX, index_text(graphs))
    return graphs


def tensor_places(file: Path) -> dict[str, tuple[int, int]]:
    """Where a safetensors file has each of its tensors: offset and length in bytes."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    ranges = {key: value["data_offsets"] for key, value in header.items()}
    return {key: (8 + length + start, end - start) for key, (start, end) in ranges.items()}
