"""The network behind `Matcher`, run by torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from normmatch.device import find_device
from normmatch.model.backbone import Features
from normmatch.model.fast import FastNetwork
from normmatch.model.matcher import NormMatch


class TorchBackend:
    """A network in evaluation mode on a device. Features stay there; everything else is numpy.

    Args:
        weights: a network, or what `NormMatch.from_pretrained` takes.
        device: "auto" is cuda where there is one, else cpu.
        precision: of the backbone, see `choose_precision`. The rest is float32.
        compile: compile the network; it pays from a few hundred pairs on.
    """

    def __init__(self, weights: str | Path | NormMatch, device: str, precision: str, compile: bool) -> None:
        self.device = find_device(device)
        model = weights if isinstance(weights, NormMatch) else NormMatch.from_pretrained(weights)
        self.network = FastNetwork(model.to(self.device), precision=precision, compile=compile)
        self.image_size, self.min_score = model.config.image_size, model.config.min_score

    @torch.inference_mode()
    def encode(self, images: np.ndarray) -> list[Features]:
        """The features of each of the images (B, 3, S, S) uint8."""
        found = self.network.encode(torch.from_numpy(images))
        parts = (part.split(1) for part in (*found.maps, found.pooled))
        # Copies, or an image that is remembered would keep the whole batch in memory.
        return [Features((a.clone(), b.clone()), c.clone(), found.size) for a, b, c in zip(*parts, strict=True)]

    @torch.inference_mode()
    def match(
        self, features0: Sequence[Features], features1: Sequence[Features], points: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Similarity and log-assignment (B, N, N) of B pairs.

        `points` has keypoints0/1 (B, N, 2) in pixels of the square, mask0/1 (B, N) and adjacency0/1 (B, N, N).
        """
        tensors = {key: torch.from_numpy(value) for key, value in points.items()}
        output = self.network.match({"features0": _stack(features0), "features1": _stack(features1), **tensors})
        return output["similarity"].cpu().numpy(), output["log_assignment"].cpu().numpy()


def _stack(features: Sequence[Features]) -> Features:
    maps = tuple(torch.cat([item.maps[i] for item in features]) for i in (0, 1))  # (B, C_l, h_l, w_l) each
    return Features((maps[0], maps[1]), torch.cat([item.pooled for item in features]), features[0].size)
