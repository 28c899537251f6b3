"""The network behind `Matcher`, run by onnxruntime from the files of `normmatch export`. Nothing here imports torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from normmatch.checks import check_path, shown
from normmatch.errors import ConfigError, InputError, WeightsError
from normmatch.extras import require
from normmatch.geometry import delaunay, pad_points
from normmatch.weights import parse_config

ENCODED = ("first", "second", "pooled")
MAX_POINTS = 1024  # of an image: the exported head holds all messages between them at once, 5 GB here
MAX_ELEMENTS = 1 << 28  # of these messages, if that can be had by matching fewer pairs at once: 1 GiB


class Encoded(NamedTuple):
    """What the encoder says about one image."""

    first: np.ndarray  # (C1, h1, w1)
    second: np.ndarray  # (C2, h2, w2)
    pooled: np.ndarray  # (G,)


class Embedded(NamedTuple):
    """An encoded image with keypoints and their graph; the exported head does the rest for each pair."""

    image: Encoded
    keypoints: np.ndarray  # (K, 2)
    graph: np.ndarray  # (K, K)


class OnnxBackend:
    """An exported network. Its arithmetic is float32.

    Args:
        weights: the folder that `normmatch export` wrote.
        device: "auto" and "cpu" run on the CPU, "cuda" on a GPU if onnxruntime was installed for it.
        precision: "auto" or "float32".
        compile: False; there is nothing to compile.
    """

    pair_batch = 16  # more are no faster on a CPU

    def __init__(self, weights: Any, device: str, precision: str, compile: bool) -> None:
        if not isinstance(precision, str) or precision not in ("auto", "float32") or compile:
            wrong = "compile is True" if compile else f"precision is {shown(precision)}"
            raise ConfigError(f"{wrong}, but the backend onnx runs files as they are; expected what is the default.")
        providers = _providers(device)
        files = _files(weights)
        self.encoder, self.head = (_open(file, providers) for file in files)
        configs = [_config(session, file) for session, file in zip((self.encoder, self.head), files, strict=True)]
        if configs[0] != configs[1]:
            raise WeightsError(f"{files[0]} and {files[1]} are not of the same network; export it anew.")
        self.image_size, self.min_score, self.dim = configs[0]

    def encode(self, images: np.ndarray) -> list[Encoded]:
        """The features of each of the images (B, 3, S, S) uint8."""
        found = self.encoder.run(ENCODED, {"image": images.astype(np.float32) / 255})
        return [Encoded(*(part.copy() for part in parts)) for parts in zip(*found, strict=True)]

    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """The exported encoder hands out the last maps alone."""
        raise ConfigError("The backend onnx does not locate points yet; expected the backend torch.")

    def embed(self, features: Sequence[Encoded], keypoints: Sequence[np.ndarray]) -> list[Embedded]:
        """Encoded images with keypoints (K, 2) in pixels of the crop."""
        return [Embedded(image, xy, delaunay(xy)) for image, xy in zip(features, keypoints, strict=True)]

    def match(self, tokens0: Sequence[Embedded], tokens1: Sequence[Embedded]) -> tuple[np.ndarray, np.ndarray]:
        """Similarity and log-assignment (B, n, n) of B pairs of images that were embedded, n the most points."""
        n = max(len(item.keypoints) for item in (*tokens0, *tokens1))
        if n > MAX_POINTS:
            raise InputError(f"An image has more than {MAX_POINTS:,} keypoints; the backend onnx matches no more.")
        size = np.full(2, self.image_size, np.float32)
        most = max(1, MAX_ELEMENTS // (2 * n * n * self.dim))
        parts = []
        for start in range(0, len(tokens0), most):
            inputs = {"size0": size, "size1": size}
            for i, tokens in enumerate((tokens0, tokens1)):
                some = tokens[start : start + most]
                points = pad_points([item.keypoints for item in some], n, [item.graph for item in some])
                inputs |= {f"{key}{i}": value for key, value in points.items()}
                inputs |= {f"{key}{i}": np.stack([getattr(item.image, key) for item in some]) for key in ENCODED}
            parts.append(self.head.run(("similarity", "log_assignment"), inputs))
        similarity, log_assignment = (np.concatenate(part) for part in zip(*parts, strict=True))
        return similarity, log_assignment


def _files(weights: Any) -> list[Path]:
    if not isinstance(weights, str | Path):
        raise ConfigError(f"the backend onnx got a {type(weights).__name__}; expected a folder that export wrote.")
    folder = check_path(weights, "weights", WeightsError)
    files = [folder / "encoder.onnx", folder / "head.onnx"]
    if not all(file.is_file() for file in files):
        raise WeightsError(
            f"{weights} is no folder with encoder.onnx and head.onnx, which the backend onnx runs; "
            f"write them with `normmatch export {weights} --out DIR`, and pass DIR."
        )
    return files


def _providers(device: str) -> list[str]:
    require("onnxruntime")
    import onnxruntime

    device = device if isinstance(device, str) else shown(device)
    if device in ("auto", "cpu"):
        return ["CPUExecutionProvider"]
    if device == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]
    raise ConfigError(f"the device {device!r} cannot be used by the onnxruntime installed here; expected auto or cpu.")


def _open(file: Path, providers: list[str]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    try:
        return onnxruntime.InferenceSession(file, options, providers=providers)
    except Exception as error:  # onnxruntime has many, none of them public
        raise WeightsError(f"{file} is not an ONNX file that onnxruntime can run; export it anew.") from error


def _config(session: Any, file: Path) -> tuple[int, float, int]:
    """Image size, least score and width of the network, from the metadata of a file."""
    config = parse_config(
        session.get_modelmeta().custom_metadata_map.get("config"),
        f"the file {file}",
        ("image_size", "min_score", "dim"),
    )
    return config.image_size, config.min_score, config.dim
