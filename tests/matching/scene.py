"""What the tests of photographs share: smooth noise as photographs, their points, and an untrained tiny network."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from normmatch import PRESETS, NormMatch


def photograph(seed: int, width: int = 120, height: int = 80) -> np.ndarray:
    """Smooth noise (H, W, 3) uint8."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.array(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def points(seed: int, count: int, width: int = 120, height: int = 80) -> np.ndarray:
    return np.random.default_rng(seed).uniform((0, 0), (width, height), (count, 2))


def tiny_model() -> NormMatch:
    torch.manual_seed(0)
    return NormMatch(PRESETS["tiny"]).eval()


def write_scene(folder: Path, counts: list[int]) -> Path:
    """Photographs 0.png, 1.png ... with so many points each, the keypoints file points.json, and tiny.safetensors."""
    entries = []
    for i, count in enumerate(counts):
        Image.fromarray(photograph(i)).save(folder / f"{i}.png")
        named = [{"name": f"p{k}", "x": x, "y": y} for k, (x, y) in enumerate(points(i, count).tolist())]
        entries.append({"image": f"{i}.png", "keypoints": named})
    (folder / "points.json").write_text(json.dumps({"images": entries}))
    tiny_model().save_pretrained(folder / "tiny.safetensors")
    return folder
