"""The stages of a match as functions to time one by one: what is before the network, and its parts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normmatch.bench.inputs import make_pairs
from normmatch.geometry import pad_points
from normmatch.matching.crops import make_view
from normmatch.model.compiled.compile import FastNetwork, bucket, with_kernels
from normmatch.model.graph import pseudo_coordinates
from normmatch.model.network import NormMatch
from normmatch.model.sampling import node_features
from normmatch.model.transformer import norm

Tensors = tuple[Tensor, ...]


@torch.inference_mode()
def stages(fast: FastNetwork, model: NormMatch, points: int, files: list[Path]) -> dict[str, Callable[[], Any]]:
    """Functions by their names, in the order of the network; each has what the ones before it would give it.

    Where the network is compiled, each stage is compiled by itself; together they take a little longer than the whole.
    """
    n = bucket(points, 8) if fast.compile else points
    device, size = fast.device, model.config.image_size
    data = make_pairs(model, points, 1)
    keypoints = [data[f"keypoints{i}"][0].numpy() for i in "01"]
    both = {key: value.to(device) for key, value in _tensors(pad_points(keypoints, n)).items()}
    images = torch.cat([data["image0"], data["image1"]])
    features = fast.encode(images)
    head = with_kernels(fast.model.head, device) if fast.compile else fast.model.head
    mask, adjacency = both["mask"], both["adjacency"]
    tokens_mask = F.pad(mask, (1, 0), value=True)  # (2, 1 + n)

    def sample(first: Tensor, second: Tensor, xy: Tensor) -> Tensors:
        return (node_features((first, second), xy, features.size),)

    def spline(nodes: Tensor, xy: Tensor, adjacency: Tensor) -> Tensors:
        return (head.spline(nodes, pseudo_coordinates(xy, adjacency), adjacency),)

    def transformer(tokens: Tensor, mask: Tensor) -> Tensors:
        return (head.transformer(tokens, mask)[-1],)

    def assign(similarity: Tensor, mask: Tensor) -> Tensors:
        return tuple(head.assign(similarity, mask[:1], mask[1:]).values())

    def run(function: Callable[..., Tensors], *tensors: Tensor) -> tuple[Callable[[], Tensors], Tensors]:
        def arithmetic(*tensors: Tensor) -> Tensors:
            with torch.autocast(device.type, fast.head_dtype, enabled=fast.head_dtype != torch.float32):
                return function(*tensors)

        chosen: Any = (
            fast._fastest(torch.compile(arithmetic, dynamic=False), arithmetic) if fast.compile else arithmetic
        )
        timed = torch.inference_mode()(lambda: chosen(*tensors))
        return timed, arithmetic(*tensors)

    sampling, (nodes,) = run(sample, *features.maps, both["keypoints"])
    convolution, (nodes,) = run(spline, nodes, both["keypoints"], adjacency)
    tokens = norm(torch.cat([head.global_token(features.pooled).unsqueeze(1), nodes.float()], 1))  # (2, 1 + n, D)
    attention, (tokens,) = run(transformer, tokens, tokens_mask)
    unit0, unit1 = tokens[:, 1:].chunk(2)
    similarity = (unit0 @ unit1.mT).float().masked_fill(~(mask[:1].unsqueeze(2) & mask[1:].unsqueeze(1)), 0.0)
    assignment, _ = run(assign, similarity, mask)
    return {
        "decode and resize": lambda: [make_view(f, xy, None, size, "") for f, xy in zip(files, keypoints, strict=True)],
        "graph": lambda: pad_points(keypoints, n),
        "backbone": lambda: fast.encode(images),
        "sampling": sampling,
        "spline": convolution,
        "transformer": attention,
        "Sinkhorn and decoding": assignment,
    }


def _tensors(arrays: dict[str, Any]) -> dict[str, Tensor]:
    return {key: torch.from_numpy(value) for key, value in arrays.items()}
