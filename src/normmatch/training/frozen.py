"""Training with a frozen backbone: see every object a few times, augmented, before the first step.

A frozen backbone answers the same in every step, and the head reads its maps at the keypoints alone. So each object is
rendered and encoded `views` times, and what its keypoints see is kept: a few kilobytes instead of a megabyte of maps. A
step is then the head's work only, which two CPU cores do in about a second where the whole network takes a minute.

The views go in parts into a folder beside the prepared crops: a run that is interrupted goes on with the parts that
are there, and the next run with the same backbone, data and augmentation finds them all.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from normmatch.config import AugmentConfig
from normmatch.datasets.batches import read_images
from normmatch.datasets.types import PreparedObject, PreparedSplit
from normmatch.io import whole_file
from normmatch.model.network import MatchingHead
from normmatch.model.sampling import Nodes, node_features
from normmatch.training.augmentation import draw_params, fit_params, render
from normmatch.training.batches import KeypointTable

PART = 16  # objects a file, and images in a backbone's batch
VERSION = 1  # of the files


class Views:
    """What a frozen backbone sees of a split. View v of object i is object v * n + i of `split`."""

    def __init__(self, original: PreparedSplit, table: KeypointTable, parts: list[dict[str, Tensor]]) -> None:
        self.nodes, self.pooled, keypoints, present = (
            torch.cat([part[key] for part in parts], 1).flatten(0, 1)
            for key in ("nodes", "pooled", "keypoints", "present")
        )  # (V * n, K, C), (V * n, G), (V * n, K, 2), (V * n, K)
        self.columns = torch.from_numpy(table.columns)  # (T,)
        objects = []
        for i, (points, seen) in enumerate(zip(keypoints.numpy(), present.numpy(), strict=True)):
            item = original.objects[i % len(original.objects)]
            names = tuple(table.names[item.label][k] for k in np.flatnonzero(seen))
            objects.append(PreparedObject(item.label, names, points[seen], item.source, item.source_size))
        size = original.images.shape[1]
        self.split = PreparedSplit(np.empty((0, size, size, 3), np.uint8), objects)

    def read(self, index: Tensor, names: Tensor) -> Nodes:
        """The nodes (B, N, C) of objects index (B,) for points with numbers names (B, N), -1 for padding."""
        nodes = self.nodes[index.unsqueeze(1), self.columns[names.clamp_min(0)]]  # (B, N, C)
        return Nodes(nodes.float().masked_fill((names < 0).unsqueeze(2), 0.0), self.pooled[index].float())


def make_views(
    backbone: nn.Module, split: PreparedSplit, augment: AugmentConfig, views: int, folder: Path, progress: bool = True
) -> Views:
    """See every object of the split `views` times, with parts kept in `folder`."""
    table = KeypointTable(split)
    folder = folder / f"views-{_key(backbone, split, augment, views)}"
    chunks = [np.arange(len(split.objects))[i : i + PART] for i in range(0, len(split.objects), PART)]
    parts = []
    for number, index in enumerate(track(chunks, "seeing views", disable=not progress)):
        path = folder / f"part-{number:05d}.safetensors"
        if not path.is_file():
            seen = [_view(backbone, split, table, index, augment, v) for v in range(views)]
            with whole_file(path) as partial:
                save_file({key: torch.stack([view[key] for view in seen]) for key in seen[0]}, partial)
        parts.append(load_file(path))
    return Views(split, table, parts)


@torch.inference_mode()
def _view(
    backbone: nn.Module, split: PreparedSplit, table: KeypointTable, index: np.ndarray, augment: AugmentConfig, v: int
) -> dict[str, Tensor]:
    """View v of objects index (B,): nodes (B, K, C), pooled (B, G), keypoints (B, K, 2), present (B, K).

    Augmentation is planned for pairs: here of each object with itself, of which one side is used.
    """
    size, both = split.images.shape[1], np.stack([index, index])  # (2, B)
    params = draw_params(np.random.default_rng((VERSION, v, int(index[0]))), augment, len(index), size)
    params, keypoints, present = fit_params(
        params, table.keypoints[both], table.present[both], table.swap[index], size, fewest=0
    )  # (2, B, K, 2), (2, B, K)
    device = next(backbone.parameters()).device
    images = read_images(split, both.reshape(-1)).to(device)  # (2B, 3, S, S)
    rendered = render(images, {key: value.to(device) for key, value in params.tensors().items()})[: len(index)]
    with torch.autocast(device.type, torch.bfloat16):
        features = backbone(rendered)
    points, seen = torch.from_numpy(keypoints[0]), torch.from_numpy(present[0])
    nodes = node_features(tuple(m.float() for m in features.maps), points.to(device), features.size)  # (B, K, C)
    return {
        "nodes": nodes.cpu().half().masked_fill(~seen.unsqueeze(2), 0.0),
        "pooled": features.pooled.float().cpu(),
        "keypoints": points,
        "present": seen,
    }


def describe_by_size(head: MatchingHead, nodes0: Nodes, nodes1: Nodes, points: dict[str, Tensor]) -> dict[str, Tensor]:
    """`head.describe` of a batch whose padding comes last, with pairs of few points apart: the same, for half the work.

    Most pairs have less than half the points of the largest, and without a backbone the padding is what costs.
    """
    n = points["mask0"].shape[1]
    count = torch.maximum(points["mask0"].sum(1), points["mask1"].sum(1))  # (B,)
    rows, parts = [], []
    for first in range(0, n, 8):
        chosen = ((count > first) & (count <= first + 8)).nonzero()[:, 0]
        if not len(chosen):
            continue
        k = min(first + 8, n)
        cut = {key: value[chosen, :k] for key, value in points.items() if key.startswith(("keypoints", "mask"))}
        cut |= {key: points[key][chosen, :k, :k] for key in ("adjacency0", "adjacency1")}
        small0, small1 = (Nodes(nodes.features[chosen, :k], nodes.pooled[chosen]) for nodes in (nodes0, nodes1))
        output = head.describe(small0, small1, cut)
        more = n - k
        layers = {key: F.pad(output[key], (0, 0, 0, more)).transpose(0, 1) for key in ("layers0", "layers1")}
        parts.append({**layers, "similarity": F.pad(output["similarity"], (0, more, 0, more))})  # batch first
        rows.append(chosen)
    back = torch.cat(rows).argsort()
    whole = {key: torch.cat([part[key] for part in parts])[back] for key in parts[0]}
    return {**whole, "layers0": whole["layers0"].transpose(0, 1), "layers1": whole["layers1"].transpose(0, 1)}


def _key(backbone: nn.Module, split: PreparedSplit, augment: AugmentConfig, views: int) -> str:
    """A short hash of everything that the views depend on."""
    digest = hashlib.sha256(json.dumps([VERSION, PART, views, asdict(augment), split.images.shape]).encode())
    for item in split.objects:
        digest.update(json.dumps([item.label, item.names, item.source]).encode())
        digest.update(np.asarray(item.keypoints, dtype="<f4").tobytes())
    for name, value in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]
