"""What runs the network behind `Matcher`: torch or onnxruntime, with the same answers."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from normmatch.checks import shown
from normmatch.weights import find_weights, read_config
from normmatch.weights.graphs import find_graphs

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "C:/Windows/System32/nvcuda.dll")  # where there may be a GPU


class Backend(Protocol):
    """What runs the network; what images become in it is its own affair. See `backends/`."""

    image_size: int
    step: int  # images may be any multiples of it; 0 where their size is fixed
    min_score: float
    calibration: tuple[float, ...]  # of the scores of matches, see `decode`
    pair_batch: int  # pairs that are matched together, if they have few points

    def encode(self, images: np.ndarray) -> list[Any]:
        """The features of each of the images (B, 3, S, S) uint8."""
        ...

    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """The maps (B, C, h, w) of blocks of a ViT beside each other, of images (B, 3, H, W) uint8 of a common size."""
        ...

    def embed(self, features: Sequence[Any], keypoints: Sequence[np.ndarray]) -> list[Any]:
        """The tokens of each of B encoded images with its keypoints (K, 2): all that a match needs."""
        ...

    def match(self, tokens0: Sequence[Any], tokens1: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Similarity and log-assignment (B, n, n) of B pairs of images that were embedded, n the most points.

        Where a pair has fewer points its log-assignment is -inf.
        """
        ...


def choose(weights: Any, device: Any, compile: bool, precision: Any) -> Literal["torch", "onnx"]:
    """The backend that "auto" stands for: torch where it is installed, and a GPU is there or onnx cannot do it."""
    if not all(map(importlib.util.find_spec, ("torch", "timm"))):
        return "onnx"
    ours = isinstance(weights, str | Path) and shown(device) in ("'auto'", "'cpu'")
    if not ours or compile or shown(precision) in ("'bfloat16'", "'float16'"):
        return "torch"
    if not importlib.util.find_spec("onnxruntime") or (device == "auto" and _gpu_is_there()):
        return "torch"
    file = find_weights(weights)
    return "onnx" if find_graphs(file, read_config(file)) else "torch"


def _gpu_is_there() -> bool:
    """Whether torch can use one; it is only asked, which takes seconds, where a driver is installed."""
    if not any(Path(driver).exists() for driver in DRIVERS):
        return False
    from normmatch.model.device import find_device

    return find_device("auto").type == "cuda"
