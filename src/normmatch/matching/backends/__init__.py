"""What runs the network behind `Matcher`: torch or onnxruntime, with the same answers."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class Backend(Protocol):
    """What runs the network; what images become in it is its own affair. See `backends/`."""

    image_size: int
    min_score: float
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
