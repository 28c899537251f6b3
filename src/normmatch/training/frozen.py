"""Training with a frozen backbone: encode a few augmented copies of every object before the first step.

A frozen backbone answers the same in every step, and the head reads its maps at the keypoints alone. So each object is
augmented and encoded `frozen_copies` times, and the features at its keypoints are kept: a few kilobytes instead of a
megabyte of maps. A step is then the head's work only, which two CPU cores do in about a second where the whole network
takes a minute.

The copies go in parts into a folder beside the prepared crops: a run that is interrupted goes on with the parts that
are there, and the next run with the same backbone, data and augmentation finds them all.
"""

import hashlib
import json
from dataclasses import asdict, replace

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from normmatch.config import TrainConfig
from normmatch.datasets.batches import read_images
from normmatch.datasets.types import PreparedSplit
from normmatch.model.network import MatchingHead
from normmatch.model.sampling import Nodes, node_features
from normmatch.outputs import whole_file
from normmatch.training.augmentation import add_noise, draw_params, fit_params, render
from normmatch.training.batches import KeypointTable

PART = 16  # objects a file, and images in a backbone's batch
VERSION = 1  # of the files


class FrozenFeatures:
    """What a frozen backbone sees in copies of the objects of a split, on the device that the backbone is on.

    Copy c of object i is object c * n + i of `split`, which has no pixels. Its `table` has the names of the original,
    so that a name has one number, whether or not augmentation has covered it in all copies.
    """

    def __init__(
        self, original: PreparedSplit, table: KeypointTable, parts: list[dict[str, Tensor]], device: torch.device
    ) -> None:
        nodes, pooled, keypoints, present = (
            torch.cat([part[key] for part in parts], 1) for key in ("nodes", "pooled", "keypoints", "present")
        )  # copies first: (C, n, V, F), (C, n, G), (C, n, V, 2), (C, n, V)
        self.nodes, self.pooled = nodes.flatten(0, 1).to(device), pooled.flatten(0, 1).to(device)
        self.columns = torch.from_numpy(table.columns).to(device)  # (T,)
        objects = []
        for points, seen in zip(keypoints.numpy(), present.numpy(), strict=True):
            for item, xy, there in zip(original.objects, points, seen, strict=True):
                names = tuple(table.names[item.label][v] for v in np.flatnonzero(there))
                objects.append(replace(item, names=names, keypoints=xy[there]))
        size = original.images.shape[1]
        pairs = None if original.pairs is None else _copy_pairs(original.pairs, len(original.objects), len(nodes))
        self.split = PreparedSplit(np.empty((0, size, size, 3), np.uint8), objects, pairs)
        self.table = KeypointTable(self.split, table.names)

    def read(self, index: Tensor, name_ids: Tensor) -> Nodes:
        """The nodes (B, N, F) of objects index (B,) for points with numbers name_ids (B, N), -1 for padding."""
        nodes = self.nodes[index.unsqueeze(1), self.columns[name_ids.clamp_min(0)]]  # (B, N, F)
        return Nodes(nodes.float().masked_fill((name_ids < 0).unsqueeze(2), 0.0), self.pooled[index].float())


def _copy_pairs(pairs: np.ndarray, objects: int, copies: int) -> np.ndarray:
    """Each pair (P, 2) of objects as the pairs of all their copies: (copies * copies * P, 2)."""
    first = objects * np.stack(np.meshgrid(np.arange(copies), np.arange(copies)), -1)  # (copies, copies, 2)
    return (first[:, :, None] + np.asarray(pairs)).reshape(-1, 2)


def make_frozen_features(
    backbone: nn.Module, split: PreparedSplit, config: TrainConfig, progress: bool = True
) -> FrozenFeatures:
    """Encode copies of every object of the split, as far as `config.data.root` does not hold them already."""
    table = KeypointTable(split)
    folder = config.data.root / "prepared" / f"frozen-{_key(backbone, split, config)}"
    chunks = [np.arange(len(split.objects))[i : i + PART] for i in range(0, len(split.objects), PART)]
    parts = []
    for number, index in enumerate(track(chunks, "encoding frozen copies", disable=not progress)):
        path = folder / f"part-{number:05d}.safetensors"
        if not path.is_file():
            copies = [_encode_copy(backbone, split, table, index, config, c) for c in range(config.frozen_copies)]
            with whole_file(path) as partial:
                save_file({key: torch.stack([copy[key] for copy in copies]) for key in copies[0]}, partial)
        parts.append(load_file(path))
    return FrozenFeatures(split, table, parts, next(backbone.parameters()).device)


@torch.inference_mode()
def _encode_copy(
    backbone: nn.Module, split: PreparedSplit, table: KeypointTable, index: np.ndarray, config: TrainConfig, copy: int
) -> dict[str, Tensor]:
    """One copy of objects index (B,): nodes (B, V, F), pooled (B, G), keypoints (B, V, 2), present (B, V).

    Augmentation is made for pairs: here of each object with itself, of which one side is used.
    """
    size, both = split.images.shape[1], np.stack([index, index])  # (2, B)
    rng = np.random.default_rng((VERSION, copy, int(index[0])))
    params, keypoints, present = fit_params(
        draw_params(rng, config.augment, len(index), size),
        table.keypoints[both], table.present[both], table.swap[index], size, fewest=0,
    )  # fmt: skip
    keypoints = add_noise(rng, keypoints, config.augment.noise)  # (2, B, V, 2)
    device = next(backbone.parameters()).device
    images = read_images(split, both.reshape(-1)).to(device)  # (2B, 3, S, S)
    rendered = render(images, {key: value.to(device) for key, value in params.tensors().items()})[: len(index)]
    with torch.autocast(device.type, torch.bfloat16, enabled=not _full_precision(config)):
        features = backbone(rendered)
    points, seen = torch.from_numpy(keypoints[0]), torch.from_numpy(present[0])
    nodes = node_features(tuple(m.float() for m in features.maps), points.to(device), features.size)  # (B, V, F)
    nodes = nodes.cpu().masked_fill(~seen.unsqueeze(2), 0.0)
    return {
        "nodes": nodes if _full_precision(config) else nodes.half(),
        "pooled": features.pooled.float().cpu(),
        "keypoints": points,
        "present": seen,
    }


def _full_precision(config: TrainConfig) -> bool:
    """Whether copies are encoded and kept in float32; auto means bfloat16 here, on a CPU too, for its speed."""
    return config.precision == "32-true"


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


def _key(backbone: nn.Module, split: PreparedSplit, config: TrainConfig) -> str:
    """A short hash of everything that the copies depend on."""
    settings = [config.frozen_copies, asdict(config.augment), _full_precision(config)]
    digest = hashlib.sha256(json.dumps([VERSION, PART, split.images.shape, *settings]).encode())
    for item in split.objects:
        digest.update(json.dumps([item.label, item.names, item.image]).encode())
        digest.update(np.asarray(item.keypoints, dtype="<f4").tobytes())
    for name, value in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]
