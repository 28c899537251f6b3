"""The network behind `Matcher`, run by torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from normmatch.errors import ConfigError
from normmatch.model.backbone import Features
from normmatch.model.matcher import NormMatch


class TorchBackend:
    """A network in evaluation mode on a device. Features stay there; everything else is numpy.

    Args:
        weights: a network, or what `NormMatch.from_pretrained` takes.
        device: "auto" is cuda where there is one, else cpu.
        precision: of the backbone; "auto" is bfloat16 on cuda and float32 elsewhere. The rest is float32.
        compile: compile the network; it pays from a few hundred pairs on.
    """

    def __init__(self, weights: str | Path | NormMatch, device: str, precision: str, compile: bool) -> None:
        self.device = _device(device)
        if precision not in ("auto", "float32", "bfloat16"):
            raise ConfigError(f"precision is {precision!r}, expected auto, float32 or bfloat16")
        self.bfloat16 = precision == "bfloat16" or (precision == "auto" and self.device.type == "cuda")
        model = weights if isinstance(weights, NormMatch) else NormMatch.from_pretrained(weights)
        self.model = model.to(self.device).eval()
        self.image_size, self.min_score = model.config.image_size, model.config.min_score
        if compile:
            self.model.backbone.compile()
            self.model.head.compile(dynamic=True)

    @torch.inference_mode()
    def encode(self, images: np.ndarray) -> list[Features]:
        """The features of each of the images (B, 3, S, S) uint8."""
        tensor = torch.from_numpy(images).to(self.device).float() / 255
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            found: Features = self.model.backbone(tensor)
        parts = (part.float().split(1) for part in (*found.maps, found.pooled))
        # Copies, or an image that is remembered would keep the whole batch in memory.
        return [Features((a.clone(), b.clone()), c.clone(), found.size) for a, b, c in zip(*parts, strict=True)]

    @torch.inference_mode()
    def match(
        self, features0: Sequence[Features], features1: Sequence[Features], points: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Similarity and log-assignment (B, N, N) of B pairs.

        `points` has keypoints0/1 (B, N, 2) in pixels of the square, mask0/1 (B, N) and adjacency0/1 (B, N, N).
        """
        tensors: dict[str, Tensor] = {key: torch.from_numpy(value).to(self.device) for key, value in points.items()}
        output = self.model.head(_stack(features0), _stack(features1), tensors)
        return output["similarity"].cpu().numpy(), output["log_assignment"].cpu().numpy()


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch was built without cuda
        raise ConfigError(f"the device {name!r} cannot be used here; expected auto, cpu, cuda or mps") from error
    return device


def _stack(features: Sequence[Features]) -> Features:
    maps = tuple(torch.cat([item.maps[i] for item in features]) for i in (0, 1))  # (B, C_l, h_l, w_l) each
    return Features((maps[0], maps[1]), torch.cat([item.pooled for item in features]), features[0].size)
