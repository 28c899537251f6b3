"""Traced graphs as ONNX models that name their weights without holding them, in floats and in 8 bits."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from onnxscript import optimizer

import normmatch
from normmatch.errors import ExportError, first_line
from normmatch.export.graphs import Graph
from normmatch.outputs import MARK
from normmatch.weights import FILE_NAME, SCALE

OPSETS = {"encoder": 23}  # the first with attention, whose mask onnxruntime wants for every query: not for `match`
PLAIN = 18
Places = Mapping[str, tuple[int, int]]  # where a weights file holds each tensor: offset and length


def convert(name: str, graph: Graph, places: Places, config: str) -> ir.Model:
    """A graph as ONNX. What `places` names is said to lie in the weights file beside it."""
    with _quiet():
        try:
            program: Any = torch.onnx.export(
                graph.program, dynamo=True, verbose=False, optimize=False, opset_version=OPSETS.get(name, PLAIN),
                input_names=graph.inputs, output_names=graph.outputs, dynamic_shapes=graph.axes,
            )  # fmt: skip
            model: ir.Model = program.model
            known = model.graph.initializers
            weights = [known.pop(name) for name in list(known) if name in places]
            for value in weights:
                value.const_value = None
            model.graph.inputs.extend(weights)  # of inputs the optimizer folds nothing
            optimizer.optimize_ir(model)
        except Exception as error:  # the exporter raises whatever it stumbles on
            raise ExportError(f"the network cannot be written as ONNX: {first_line(error)}") from error
    _normalize_at_once(model.graph)
    for value in weights:
        model.graph.inputs.remove(value)
        if value.uses():
            _keep_outside(value, *places[str(value.name)])
            known[str(value.name)] = value
    RemoveUnusedNodesPass()(model)
    for node in model.graph:
        node.metadata_props.clear()  # where in the code it came from
        node.doc_string = None
    model.graph.doc_string = None
    model.producer_name, model.producer_version = MARK, normmatch.__version__
    model.metadata_props["config"] = config
    return model


def tensors_of(model: ir.Model) -> dict[str, list[int]]:
    """The shapes of the tensors that a graph takes from a weights file, by their names there."""
    values: Any = model.graph.initializers.values()
    return {value.name: list(value.shape.numpy()) for value in values if _is_outside(value)}


def in_8_bits(model: ir.Model) -> list[str]:
    """Let a graph multiply with matrices in 8 bits, as the weights files of 8 bits hold them; returns their names.

    A matrix W = diag(s) Q of a linear layer x W^T is a product of whole numbers and a scale for each column; one that
    is multiplied from the right has a scale for each row, which x is multiplied with. x is rounded to 8 bits, too, with
    one scale for all of it. These are onnxruntime's own operators.
    """
    graph: Any = model.graph
    found = []
    for node in [node for node in graph if node.op_type == "MatMul"]:
        x, right = node.inputs
        matrix = right
        if right.producer() is not None and right.producer().op_type == "Transpose":
            matrix = right.producer().inputs[0]
        if not _is_outside(matrix) or matrix.shape.rank() != 2:
            continue
        name, rows = matrix.name, matrix.shape[0]
        scale = ir.Value(name=name + SCALE, shape=ir.Shape([rows]), type=ir.TensorType(ir.DataType.FLOAT))
        _keep_outside(scale)
        matrix.dtype = right.dtype = ir.DataType.INT8
        _keep_outside(matrix)
        graph.initializers[name], graph.initializers[name + SCALE] = matrix, scale
        found.append(name)
        last, bias, by_column = node, None, scale
        if matrix is right:
            scaled = ir.node("Mul", [x, scale])
            by_column = _one(graph)
            graph.insert_before(node, scaled)
            x = scaled.outputs[0]
        else:
            last, bias = _with_bias(node)
        product = ir.node("DynamicQuantizeMatMul", [x, right, by_column, None, bias], domain="com.microsoft")
        product.outputs[0].dtype, product.outputs[0].shape = last.outputs[0].dtype, last.outputs[0].shape
        graph.insert_after(last, product)
        last.outputs[0].replace_all_uses_with(product.outputs[0], replace_graph_outputs=True)
        graph.remove([last, node] if last is not node else node, safe=True)
    model.opset_imports["com.microsoft"] = 1
    return found


def _normalize_at_once(graph: Any) -> None:
    """Make one operator of each `F.normalize`, which is traced as ReduceL2 -> Clip -> Expand, and Div by that."""
    for node in [node for node in graph if node.op_type == "Div"]:
        x, chain = node.inputs[0], [node.inputs[1].producer()]
        for kind in ("Expand", "Clip", "ReduceL2"):
            if chain[-1] is None or chain[-1].op_type != kind:
                break
            chain.append(chain[-1].inputs[0].producer())
        else:
            *_, length, _ = chain
            axis = ir.convenience.get_const_tensor(length.inputs[1])
            if length.inputs[0] is x and axis is not None:
                unit = ir.node("LpNormalization", [x], {"axis": int(axis.numpy()[0]), "p": 2})
                unit.outputs[0].dtype, unit.outputs[0].shape = x.dtype, x.shape
                graph.insert_after(node, unit)
                node.outputs[0].replace_all_uses_with(unit.outputs[0], replace_graph_outputs=True)
                unit.outputs[0].name, node.outputs[0].name = node.outputs[0].name, None
                graph.remove(node, safe=True)


def _with_bias(node: Any) -> tuple[Any, Any]:
    """The node after a product that adds a bias from the weights file, and the bias; else the product itself."""
    users = [user for user, _ in node.outputs[0].uses()]
    if len(users) == 1 and users[0].op_type == "Add":
        other = next(value for value in users[0].inputs if value is not node.outputs[0])
        if _is_outside(other) and other.shape.rank() == 1:
            return users[0], other
    return node, None


def _is_outside(value: Any) -> bool:
    return isinstance(value.const_value, ir.ExternalTensor)


def _keep_outside(value: Any, offset: int = 0, length: int = 0) -> None:
    value.const_value = ir.ExternalTensor(FILE_NAME, offset, length, value.dtype, shape=value.shape, name=value.name)


def _one(graph: Any) -> Any:
    """The number 1, as an initializer."""
    if "one" not in graph.initializers:
        value: Any = ir.tensor([1.0], dtype=ir.DataType.FLOAT, name="one")
        kind = ir.TensorType(ir.DataType.FLOAT)
        graph.initializers["one"] = ir.Value(name="one", shape=value.shape, type=kind, const_value=value)
    return graph.initializers["one"]


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
