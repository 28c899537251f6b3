"""The network behind `Matcher`, run by onnxruntime on a weights file. Nothing here imports torch."""

import os
import platform
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from normmatch.checks import check_word, shown
from normmatch.errors import ConfigError, InputError, WeightsError, first_line
from normmatch.geometry import delaunay
from normmatch.weights import find_weights, read_config
from normmatch.weights.graphs import IN_8_BITS, ROUNDED, Graphs, find_graphs, read_for_graph

MAX_POINTS = 1024  # of an image: the graph holds all messages between them at once, 5 GB here
PRECISIONS = ("auto", "int8", "float32")
MOST_THREADS = 8  # more gain little, for one photograph at a time
FAST_IN_8_BITS = ("avx512_vnni", "avx_vnni", "asimddp")  # instructions of a processor, as Linux calls them


class Encoded(NamedTuple):
    """What the encoder says about one image."""

    first: np.ndarray  # (C1, h1, w1)
    second: np.ndarray  # (C2, h2, w2)
    pooled: np.ndarray  # (G,)


class OnnxBackend:
    """A network whose graphs lie beside its weights, or are those of a bundled one.

    Args:
        weights: what `find_weights` takes.
        device: "auto" and "cpu" run on the CPU, "cuda" on a GPU if onnxruntime was installed for it.
        precision: float32, or int8: matrices, and what is multiplied with them, in 8 bits, all else in float32; auto is
            int8 where the processor has instructions for it.
        compile: False; there is nothing to compile.
        graphs: where they lie, if that is not to be looked for.
    """

    pair_batch = 16  # more are no faster on a CPU

    def __init__(self, weights: Any, device: str, precision: str, compile: bool, graphs: Graphs | None = None) -> None:
        if compile:
            raise ConfigError("compile is True, but the backend onnx has nothing to compile; expected False.")
        if check_word(precision, "precision", PRECISIONS, ConfigError) == "auto":
            precision = "int8" if fast_in_8_bits() else "float32"
        self.providers, self.in_8_bits = _providers(device), precision == "int8"
        self.file = find_weights(weights)
        config = read_config(self.file)
        self.image_size, self.min_score, self.layers = config.image_size, config.min_score, config.backbone_layers
        found = graphs or find_graphs(self.file, config)
        if found is None:
            raise WeightsError(
                f"there are no graphs beside {self.file}, which the backend onnx runs; "
                f"write them with `normmatch export {weights} --out DIR`, and pass DIR"
            )
        self.graphs, self.step, self.calibration = found, found.step, config.calibration
        # what `embed` needs is imported while images are encoded
        threading.Thread(target=import_module, args=("scipy.spatial",)).start()

    @cached_property
    def encoder(self) -> Any:
        return self._open("encoder")

    @cached_property
    def embedder(self) -> Any:
        return self._open("embed")

    @cached_property
    def matcher(self) -> Any:
        return self._open("match")

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """The blocks of a ViT whose maps can be had; none of another backbone."""
        found = [int(output.name[3:]) for output in self.encoder.get_outputs() if output.name.startswith("map")]
        return tuple(found) if found[0] == 0 else ()

    def encode(self, images: np.ndarray) -> list[Encoded]:
        """The features of each of the images (B, 3, S, S) uint8."""
        outputs = (*(f"map{layer}" for layer in self.layers), "pooled")
        return [Encoded(*(part[0] for part in found)) for found in self._see(images, outputs)]

    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """The maps (B, C, h, w) of blocks of a ViT beside each other, of images (B, 3, H, W) uint8 of a common size."""
        if not self.blocks or not self.graphs.step:
            raise ConfigError("locating reads blocks of a ViT at several sizes, which this network's backbone is not.")
        if not blocks or not all(block in self.blocks for block in blocks):
            raise ConfigError(f"the blocks to be read are {list(blocks)}, expected some of 0 to {self.blocks[-1]}.")
        height, width = images.shape[2:]
        if height % self.graphs.step or width % self.graphs.step:
            raise InputError(f"the image is {width} x {height}, expected multiples of the patch, {self.graphs.step}")
        found = self._see(images, [f"map{block}" for block in blocks])
        return np.concatenate([np.concatenate(maps, 1) for maps in found])

    def _see(self, images: np.ndarray, outputs: Sequence[str]) -> list[list[np.ndarray]]:
        """One image at a time: more are no faster, and in 8 bits what is rounded together shares a scale."""
        floats = images.astype(np.float32) / 255
        return [self.encoder.run(outputs, {"image": image[None]}) for image in floats]

    def embed(self, features: Sequence[Encoded], keypoints: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Encoded images with keypoints (K, 2) in pixels of the crop: tokens (1 + K, D) of each."""
        if max(map(len, keypoints)) > MAX_POINTS:
            raise InputError(f"An image has more than {MAX_POINTS:,} keypoints; the backend onnx matches no more.")
        size, tokens = np.full(2, self.image_size, np.float32), []
        for image, xy in zip(features, keypoints, strict=True):
            inputs = {name: part[None] for name, part in zip(Encoded._fields, image, strict=True)}
            inputs |= {"keypoints": xy[None], "adjacency": delaunay(xy)[None], "size": size}
            tokens.append(self.embedder.run(("tokens",), inputs)[0][0])
        return tokens

    def match(self, tokens0: Sequence[np.ndarray], tokens1: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Similarity and log-assignment (B, n, n) of B pairs of images that were embedded, n the most points."""
        n = max(map(len, (*tokens0, *tokens1))) - 1
        inputs = {}
        for i, some in enumerate((tokens0, tokens1)):
            inputs[f"tokens{i}"] = np.stack([np.pad(item, ((0, n + 1 - len(item)), (0, 0))) for item in some])
            inputs[f"mask{i}"] = np.arange(1, n + 1) < np.array([[len(item)] for item in some])  # (B, n)
        similarity, log_assignment = self.matcher.run(("similarity", "log_assignment"), inputs)
        return similarity, log_assignment

    def _open(self, name: str) -> Any:
        """A session for a graph, with its weights."""
        import onnxruntime

        rounded = self.in_8_bits and name in ROUNDED
        matrices = self.graphs.matrices[name] if rounded else ()
        tensors = read_for_graph(self.file, self.graphs.tensors[name], matrices)
        path = self.graphs.folder / f"{name}{IN_8_BITS if rounded else ''}.onnx"
        options, levels = onnxruntime.SessionOptions(), onnxruntime.GraphOptimizationLevel
        options.log_severity_level = 3  # errors
        options.intra_op_num_threads = threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others may want the cores
        options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED if name == "encoder" else levels.ORT_ENABLE_BASIC
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in tensors.values()]
        options.add_external_initializers(list(tensors), values)
        try:
            return onnxruntime.InferenceSession(path, options, providers=self.providers)
        except Exception as error:  # onnxruntime has many, none of them public
            raise WeightsError(
                f"{path} cannot be run by onnxruntime ({first_line(error)}); write it anew with `normmatch export`"
            ) from error


def fast_in_8_bits() -> bool:
    """Whether the processor multiplies bytes faster than floats; where that is not known it is said not to."""
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    words = _processor().split()
    return any(flag in words for flag in FAST_IN_8_BITS)


def threads() -> int:
    """As many as the environment says, else as this process has cores; two of one core's gain nothing, nor do many."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdecimal() and int(said):
        return int(said)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = [re.search(rf"{what}\s*: (\d+)", _processor()) for what in ("siblings", "cpu cores")]
    share = int(counts[0][1]) // int(counts[1][1]) if counts[0] and counts[1] else 1
    return max(1, min(cores // share, MOST_THREADS))


def _processor() -> str:
    """What Linux says of it."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def _providers(device: str) -> list[str]:
    import onnxruntime

    device = device if isinstance(device, str) else shown(device)
    if device in ("auto", "cpu"):
        return ["CPUExecutionProvider"]
    if device == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]
    raise ConfigError(f"the device {device!r} cannot be used by the onnxruntime installed here; expected auto or cpu.")
