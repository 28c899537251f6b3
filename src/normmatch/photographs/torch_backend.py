"""The network behind `Matcher`, run by torch."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from normmatch.device import find_device
from normmatch.model.backbone import Features
from normmatch.model.delaunay import pad_points
from normmatch.model.fast import FastNetwork
from normmatch.model.matcher import NormMatch

PAIRS_ON_CPU = 16  # matched together: more are no faster
PAIRS_ON_GPU = 256  # there starting the kernels takes the time, of one pair or of many


class TorchBackend:
    """A network in evaluation mode on a device. Features stay there; everything else is numpy.

    Args:
        weights: a network, or what `NormMatch.from_pretrained` takes.
        device: "auto" is cuda where there is one, else cpu.
        precision: of the backbone, see `choose_precision`. The rest is float32.
        compile: compile the network: minutes, which thousands of pairs one by one on a GPU pay back.
    """

    def __init__(self, weights: str | Path | NormMatch, device: str, precision: str, compile: bool) -> None:
        self.device = find_device(device)
        model = weights if isinstance(weights, NormMatch) else NormMatch.from_pretrained(weights)
        self.network = FastNetwork(model.to(self.device), precision=precision, compile=compile)
        self.image_size, self.min_score = model.config.image_size, model.config.min_score
        self.pair_batch = PAIRS_ON_GPU if self.device.type == "cuda" else PAIRS_ON_CPU

    @torch.inference_mode()
    def encode(self, images: np.ndarray) -> list[Features]:
        """The features of each of the images (B, 3, S, S) uint8."""
        found = self.network.encode(torch.from_numpy(images))
        parts = (part.split(1) for part in (*found.maps, found.pooled))
        # Copies, or an image that is remembered would keep the whole batch in memory.
        return [Features((a.clone(), b.clone()), c.clone(), found.size) for a, b, c in zip(*parts, strict=True)]

    @torch.inference_mode()
    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """The maps (B, C, h, w) of the blocks beside each other, of images (B, 3, H, W) uint8 of any common size."""
        return torch.cat(self.network.maps(torch.from_numpy(images), blocks), 1).cpu().numpy()

    @torch.inference_mode()
    def look(self, features: Sequence[Features], keypoints: Sequence[np.ndarray]) -> list[Tensor]:
        """Encoded images with keypoints (K, 2) in pixels of the square: tokens (1 + K, D) of each."""
        points = pad_points(keypoints, max(map(len, keypoints)))
        xy, graphs = (torch.from_numpy(points[key]) for key in ("keypoints", "adjacency"))
        tokens = self.network.look(_stack(features), xy, graphs)  # (B, 1 + n, D)
        return [seen[: 1 + len(xy)].clone() for seen, xy in zip(tokens, keypoints, strict=True)]

    @torch.inference_mode()
    def match(self, seen0: Sequence[Tensor], seen1: Sequence[Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """Similarity and log-assignment (B, n, n) of B pairs of images that `look` saw, n the most points."""
        both = [*seen0, *seen1]
        unique = list(dict.fromkeys(both))  # an image may be in many pairs; tensors are told apart by identity
        place = {seen: i for i, seen in enumerate(unique)}
        tokens = pad_sequence(unique, batch_first=True)[[place[seen] for seen in both]]  # (2B, 1 + n, D)
        mask = np.arange(1, tokens.shape[1]) < np.array([[len(item)] for item in both])  # (2B, n)
        output = self.network.compare(*tokens.chunk(2), *torch.from_numpy(mask).chunk(2))
        return output["similarity"].cpu().numpy(), output["log_assignment"].cpu().numpy()


def _stack(features: Sequence[Features]) -> Features:
    maps = tuple(torch.cat([item.maps[i] for item in features]) for i in (0, 1))  # (B, C_l, h_l, w_l) each
    return Features((maps[0], maps[1]), torch.cat([item.pooled for item in features]), features[0].size)
