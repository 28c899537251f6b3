"""The network behind `Matcher`, run by torch."""

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from normmatch.errors import ConfigError, DeviceError
from normmatch.geometry import pad_points
from normmatch.model.backbone import Features, TimmBackbone, prepare_for_inference
from normmatch.model.device import choose_precision, find_device
from normmatch.model.network import NormMatch

PAIRS_ON_CPU = 16  # matched together: more are no faster
PAIRS_ON_GPU = 256  # there starting the kernels takes the time, of one pair or of many


class TorchBackend:
    """A network in evaluation mode on a device. Features and tokens stay there; everything else is numpy.

    Args:
        weights: a network, which is copied, or what `NormMatch.from_pretrained` takes.
        device: "auto" is cuda where there is one, else cpu.
        precision: of the backbone, see `choose_precision`. The rest is float32.
        compile: compile the network: minutes, which thousands of pairs one by one on a GPU pay back.
    """

    def __init__(self, weights: str | Path | NormMatch, device: str, precision: str, compile: bool) -> None:
        self.device = find_device(device)
        self.dtype = choose_precision(precision, self.device)
        known = isinstance(weights, NormMatch)
        model = copy.deepcopy(weights).eval() if known else NormMatch.from_pretrained(weights)  # type: ignore[union-attr,arg-type]
        model.to(self.device)
        prepare_for_inference(model.backbone, self.dtype)
        self.image_size, self.min_score = model.config.image_size, model.config.min_score
        self.step, self.calibration = model.backbone.step, model.config.calibration
        self.pair_batch = PAIRS_ON_GPU if self.device.type == "cuda" else PAIRS_ON_CPU
        self.compiled = compile
        self.backbone: Callable[[Tensor], Features] = model.backbone
        self.eager = model.backbone  # what `maps` reads, which is never compiled
        self.head: Any = model.head
        if compile:
            from normmatch.model.compiled.compile import CompiledBackbone, CompiledHead

            self.backbone = CompiledBackbone(model.backbone, self.device, self.dtype)
            self.head = CompiledHead(model.head, self.device)

    @torch.inference_mode()
    def encode(self, images: np.ndarray) -> list[Features]:
        """The features of each of the images (B, 3, S, S) uint8."""
        half = self.dtype != torch.float32 and not self.compiled
        try:
            with torch.autocast(self.device.type, self.dtype) if half else nullcontext():
                found = self.backbone(torch.from_numpy(images).to(self.device, non_blocking=True))
            parts = (part.float().split(1) for part in (*found.maps, found.pooled))
            # Copies, or an image that is remembered would keep the whole batch in memory.
            return [Features((a.clone(), b.clone()), c.clone(), found.size) for a, b, c in zip(*parts, strict=True)]
        except torch.OutOfMemoryError as error:
            middle = self._halve(len(images), "images", error)
        return self.encode(images[:middle]) + self.encode(images[middle:])

    @torch.inference_mode()
    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """The maps (B, C, h, w) of blocks of a ViT beside each other, of images (B, 3, H, W) uint8 of a common size."""
        if not isinstance(self.eager, TimmBackbone) or self.eager.fixed_size or self.eager.patch == 1:
            raise ConfigError("locating reads blocks of a ViT at several sizes, which this network's backbone is not.")
        known = max(self.eager.layers) + 1
        if not blocks or not all(0 <= block < known for block in blocks):
            raise ConfigError(f"the blocks to be read are {list(blocks)}, expected some of 0 to {known - 1}.")
        try:
            with torch.autocast(self.device.type, self.dtype) if self.dtype != torch.float32 else nullcontext():
                found = self.eager.maps(torch.from_numpy(images).to(self.device).float() / 255, blocks)
            return torch.cat([one.float() for one in found], 1).cpu().numpy()
        except torch.OutOfMemoryError as error:
            middle = self._halve(len(images), "images", error)
        return np.concatenate([self.maps(images[:middle], blocks), self.maps(images[middle:], blocks)])

    @torch.inference_mode()
    def embed(self, features: Sequence[Features], keypoints: Sequence[np.ndarray]) -> list[Tensor]:
        """Encoded images with keypoints (K, 2) in pixels of the crop: tokens (1 + K, D) of each."""
        points = pad_points(keypoints, max(map(len, keypoints)))
        try:
            image = _stack(features), self._place(points["keypoints"]), self._place(points["adjacency"])
            tokens = self.head.embed(image)  # (B, 1 + n, D)
            return [item[: 1 + len(xy)].clone() for item, xy in zip(tokens, keypoints, strict=True)]
        except torch.OutOfMemoryError as error:
            middle = self._halve(len(features), "images", error)
        first, second = slice(0, middle), slice(middle, None)
        return self.embed(features[first], keypoints[first]) + self.embed(features[second], keypoints[second])

    @torch.inference_mode()
    def match(self, tokens0: Sequence[Tensor], tokens1: Sequence[Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """Similarity and log-assignment (B, n, n) of B pairs of images that were embedded, n the most points."""
        both = [*tokens0, *tokens1]
        unique = list(dict.fromkeys(both))  # an image may be in many pairs; tensors are told apart by identity
        row = {item: i for i, item in enumerate(unique)}
        n = max(map(len, unique)) - 1
        mask = np.arange(1, n + 1) < np.array([[len(item)] for item in both])  # (2B, n)
        try:
            tokens = pad_sequence(unique, batch_first=True)[[row[item] for item in both]]  # (2B, 1 + n, D)
            output = self.head.match(tokens, *self._place(mask).chunk(2))
            return output["similarity"].cpu().numpy(), output["log_assignment"].cpu().numpy()
        except torch.OutOfMemoryError as error:
            middle = self._halve(len(tokens0), "pairs", error)
        parts = [self.match(tokens0[half], tokens1[half]) for half in (slice(0, middle), slice(middle, None))]
        similarity, log_assignment = zip(*parts, strict=True)
        return _join(similarity, n, 0.0), _join(log_assignment, n, -np.inf)

    def _place(self, array: np.ndarray) -> Tensor:
        """An array where the head wants it; compiled code is given what is on the CPU, to fetch it all at once."""
        tensor = torch.from_numpy(array)
        return tensor if self.compiled else tensor.to(self.device, non_blocking=True)

    def _halve(self, batch: int, what: str, error: torch.OutOfMemoryError) -> int:
        """Where to cut a batch that memory is too short for; its tensors are freed once `error` is forgotten."""
        if batch < 2:
            raise DeviceError(
                f"{self.device} has too little free memory for even one of the {what}; "
                "expected a larger one, fewer keypoints, or the device cpu"
            ) from error
        warnings.warn(f"{batch} {what} at a time are too many for {self.device}'s memory; halving them", stacklevel=3)
        torch.cuda.empty_cache()
        return batch // 2


def _join(parts: Sequence[np.ndarray], n: int, nothing: float) -> np.ndarray:
    """Parts (B, K, K) of a batch as one array (sum B, n, n)."""
    return np.concatenate([np.pad(p, ((0, 0), *[(0, n - p.shape[1])] * 2), constant_values=nothing) for p in parts])


def _stack(features: Sequence[Features]) -> Features:
    maps = tuple(torch.cat([item.maps[i] for item in features]) for i in (0, 1))  # (B, C_l, h_l, w_l) each
    return Features((maps[0], maps[1]), torch.cat([item.pooled for item in features]), features[0].size)
