"""What the tests of locating share: smooth noise as photographs, and an encoder without a network."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

PATCH, CHANNELS = 14, 48


def photograph(seed: int, width: int = 240, height: int = 200, detail: int = 12) -> np.ndarray:
    """Smooth noise (H, W, 3) uint8."""
    noise = np.random.default_rng(seed).integers(0, 256, (detail, detail, 3), dtype=np.uint8)
    return np.array(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def points(seed: int, count: int, width: int = 240, height: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).uniform((0.15 * width, 0.15 * height), (0.85 * width, 0.85 * height), (count, 2))


class FakeEncoder:
    """Features that tell one neighbourhood of pixels from another: random waves of the colours around a cell."""

    def __init__(self) -> None:
        self.seen = 0

    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """(B, C, h, w) of images (B, 3, S, S) uint8."""
        self.seen += len(images)
        batch, _, side, _ = images.shape
        cells, half = side // PATCH, PATCH // 2
        means = images.reshape(batch, 3, side // half, half, side // half, half).mean((3, 5)) / 255  # (B, 3, 2h, 2w)
        padded = np.pad(means, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
        around = [padded[:, :, y : y + 2 * cells : 2, x : x + 2 * cells : 2] for y in range(4) for x in range(4)]
        colours = np.concatenate(around, 1)  # (B, 48, h, w)
        rng = np.random.default_rng(7)
        found = []
        for _ in blocks:
            waves = np.einsum("bchw,cd->bdhw", colours, rng.normal(0, 0.8, (48, CHANNELS)))
            found.append(np.cos(waves + rng.uniform(0, 2 * np.pi, CHANNELS)[:, None, None]))
        return np.concatenate(found, 1).astype(np.float32)
