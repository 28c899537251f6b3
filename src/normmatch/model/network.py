"""NormMatch: two images and their keypoints in, correspondences out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normmatch import weights as pretrained
from normmatch.config import ModelConfig
from normmatch.errors import InputError, NormMatchError, WeightsError
from normmatch.model.assignment import Alternate, alternate, best_matches, log_sinkhorn
from normmatch.model.backbone import Features, make_backbone
from normmatch.model.graph import delaunay_batch, pseudo_coordinates
from normmatch.model.sampling import Nodes, read_nodes
from normmatch.model.spline import SplineCNN
from normmatch.model.transformer import TwoStreamTransformer, norm

OUTSIDE = 0.25  # how far beyond its border, as a share of the image, a keypoint may lie

View = tuple[Features | Nodes, Tensor, Tensor]  # B images, their keypoints (B, N, 2) and graphs (B, N, N)


class Gather(nn.Module):
    """What the graph network reads of images, one view after the other. A module, to be compiled as one."""

    def forward(self, *views: View) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features at keypoints (B, N, C), pseudo-coordinates (B, N, N, 2), adjacency (B, N, N), pooled (B, G)."""
        read = [read_nodes(features, keypoints) for features, keypoints, _ in views]
        nodes, pooled = (torch.cat(parts) for parts in zip(*read, strict=True))
        keypoints, adjacency = torch.cat([view[1] for view in views]), torch.cat([view[2] for view in views])
        return nodes, pseudo_coordinates(keypoints, adjacency), adjacency, pooled


class MatchingHead(nn.Module):
    """Everything after the backbone: tensors in, tensors out, so that it compiles and exports whole.

    Both images have the same number N of (padded) points. `points` has the keys of `equal_points`, and may have edges0
    and edges1 (B, E, 2), the graphs as `edge_list` gives them, for many points.
    """

    def __init__(self, config: ModelConfig, channels: int, global_channels: int) -> None:
        super().__init__()
        self.config = config
        self.alternate: Alternate = alternate  # Sinkhorn's rounds; compiled for a GPU they are one kernel
        self.gather = Gather()
        self.spline = SplineCNN(channels, config.dim, config.spline_kernel)
        self.global_token = nn.Linear(global_channels, config.dim)
        self.transformer = TwoStreamTransformer(
            config.dim,
            config.num_layers,
            config.num_heads,
            config.mlp_ratio,
            normalized=config.transformer == "normalized",
            shared_streams=config.shared_streams,
            drop_path=config.drop_path,
        )

    def forward(
        self, features0: Features | Nodes, features1: Features | Nodes, points: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """`look` at both images, then `compare`."""
        return self.compare(self._look_at_both(features0, features1, points), points["mask0"], points["mask1"])

    def describe(
        self, features0: Features | Nodes, features1: Features | Nodes, points: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Unit descriptors of all keypoints after each layer, and the cosine similarity of the last ones."""
        return self.relate(self._look_at_both(features0, features1, points), points["mask0"], points["mask1"])

    def _look_at_both(
        self, features0: Features | Nodes, features1: Features | Nodes, points: dict[str, Tensor]
    ) -> Tensor:
        view0 = features0, points["keypoints0"], points["adjacency0"]
        view1 = features1, points["keypoints1"], points["adjacency1"]
        edges = torch.cat([points["edges0"], points["edges1"]]) if "edges0" in points else None  # (2B, E, 2)
        return self.look(view0, view1, edges=edges)  # (2B, 1 + N, D)

    def look(self, *views: View, edges: Tensor | None = None) -> Tensor:
        """Images as the transformer sees them, whatever their partners: unit tokens [global; keypoints] (B, 1 + N, D).

        `edges` (B, E, 2), where they are known, are the graphs as `edge_list` gives them.
        """
        nodes, pseudo, adjacency, pooled = self.gather(*views)
        nodes = self.spline(nodes, pseudo, adjacency, edges)  # (B, N, D)
        return norm(torch.cat([self.global_token(pooled).unsqueeze(1), nodes], 1))  # (B, 1 + N, D)

    def relate(self, tokens: Tensor, mask0: Tensor, mask1: Tensor) -> dict[str, Tensor]:
        """What `describe` returns, of tokens (2B, 1 + N, D), images 0 before images 1."""
        mask = F.pad(torch.cat([mask0, mask1]), (1, 0), value=True)  # (2B, 1 + N)
        layers = torch.stack(self.transformer(tokens, mask))  # (L, 2B, 1 + N, D)
        layers0, layers1 = layers[:, :, 1:].chunk(2, 1)  # (L, B, N, D) each

        valid = mask0.unsqueeze(2) & mask1.unsqueeze(1)  # (B, N, N)
        similarity = (layers0[-1] @ layers1[-1].mT).masked_fill(~valid, 0.0)
        return {"layers0": layers0, "layers1": layers1, "similarity": similarity}

    def compare(self, tokens: Tensor, mask0: Tensor, mask1: Tensor) -> dict[str, Tensor]:
        """`relate`, then `assign`: what `forward` returns, of tokens (2B, 1 + N, D), images 0 before images 1."""
        output = self.relate(tokens, mask0, mask1)
        similarity = output["similarity"].float()
        return {
            "descriptors0": output["layers0"][-1],
            "descriptors1": output["layers1"][-1],
            "similarity": similarity,
            **self.assign(similarity, mask0, mask1),
        }

    def assign(self, similarity: Tensor, mask0: Tensor, mask1: Tensor) -> dict[str, Tensor]:
        """The Sinkhorn assignment, and the best match of every point."""
        log_assignment = log_sinkhorn(
            similarity, mask0, mask1, self.config.sinkhorn_epsilon, self.config.sinkhorn_rounds, self.alternate
        )
        matches0, scores0 = best_matches(log_assignment, similarity)
        matches1, scores1 = best_matches(log_assignment.mT, similarity.mT)
        return {
            "log_assignment": log_assignment,
            "matches0": matches0,
            "matches1": matches1,
            "matching_scores0": scores0,
            "matching_scores1": scores1,
        }

    def compiled_parts(self) -> list[nn.Module]:
        """What is compiled part by part, in less time than the whole: layers share their code."""
        streams = [stream for layer in self.transformer.layers for stream in layer.children()]
        return [self.gather, self.spline, *streams]


class NormMatch(nn.Module):
    """The Normalized Matching Transformer.

    Args:
        config: see ModelConfig; `PRESETS` has the named ones.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = make_backbone(
            config.backbone, config.backbone_layers, config.image_size, config.backbone_weights
        )
        self.head = MatchingHead(config, sum(self.backbone.channels), self.backbone.global_channels)

    def encode(self, image: Tensor) -> Features:
        """What the network sees in images (B, 3, H, W) in [0, 1]; reusable for any keypoints and any partner."""
        _check_image(image, "image")
        return self.backbone(image)

    def encode_pair(self, image0: Tensor, image1: Tensor) -> tuple[Features, Features]:
        """`encode` of both images without its checks, in one pass where their sizes allow it."""
        if image0.shape != image1.shape:
            return self.backbone(image0), self.backbone(image1)
        both = self.backbone(torch.cat([image0, image1]))
        (first0, first1), (second0, second1) = (m.chunk(2) for m in both.maps)
        pooled0, pooled1 = both.pooled.chunk(2)
        return Features((first0, second0), pooled0, both.size), Features((first1, second1), pooled1, both.size)

    def forward(self, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """Match the keypoints of B image pairs.

        Args:
            data: a mapping with
                image0, image1: (B, 3, H, W) float in [0, 1]; or features0, features1 from `encode` in their place
                keypoints0 (B, M, 2), keypoints1 (B, N, 2): xy in pixels of the image as given
                mask0 (B, M), mask1 (B, N): bool, True for real points; optional, all are real without it
                adjacency0 (B, M, M), adjacency1 (B, N, N): bool; optional, the Delaunay graph without it

        Returns:
            A dict with
                matches0 (B, M), matches1 (B, N): index of the best point in the other image, -1 for padding
                matching_scores0 (B, M), matching_scores1 (B, N): how sure, in [0, 1]: assignment times cosine
                similarity (B, M, N): cosine, 0 for padding
                log_assignment (B, M, N): after Sinkhorn, -inf for padding
                descriptors0 (B, M, D), descriptors1 (B, N, D): unit vectors
        """
        check(data)
        return self.match(data)

    def match(self, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """`forward` without the checks of its input."""
        m, n = data["keypoints0"].shape[1], data["keypoints1"].shape[1]
        return cut(self.head(*self.features(data), equal_points(data)), m, n)

    def describe(self, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """What the losses need, see `MatchingHead.describe`; takes what `forward` takes, without its checks."""
        return self.head.describe(*self.features(data), equal_points(data))

    def features(self, data: Mapping[str, Any]) -> tuple[Features, Features]:
        """What the network sees of both images, where `data` does not hold it already."""
        if "features0" in data or "features1" in data:
            return (
                data["features0"] if "features0" in data else self.backbone(data["image0"]),
                data["features1"] if "features1" in data else self.backbone(data["image1"]),
            )
        return self.encode_pair(data["image0"], data["image1"])

    def normalize_weights(self) -> None:
        """Put the transformer's matrices back on the sphere: to be called after every optimiser step."""
        self.head.transformer.normalize_weights()

    def save_pretrained(
        self, path: str | Path, bits: Literal[32, 16, 8] = 32, about: Mapping[str, Any] | None = None
    ) -> Path:
        """Write weights and config to `path`, a .safetensors file or a folder; fewer bits make a smaller file.

        Args:
            about: how the network came to be, see `save_weights`.
        """
        path = Path(path)
        file = path if path.suffix == ".safetensors" else path / pretrained.FILE_NAME
        state = self.state_dict()
        pretrained.save_weights(file, pretrained.rounded(state, bits), self.config, about)
        return file

    @classmethod
    def from_pretrained(cls, name: str | Path) -> Self:
        """A model in evaluation mode from a folder, a file, a bundled name, or owner/name on a hub."""
        file = pretrained.find(name)
        config = pretrained.read_config(file)
        try:
            model = cls(replace(config, backbone_weights="random"))  # the file holds the backbone too
        except NormMatchError as error:
            raise WeightsError(f"weights file {file} is of a model that cannot be: {error}") from error
        pretrained.load_weights(model, file)
        model.config = config
        return model.eval()


def equal_points(data: Mapping[str, Any], n: int = 0) -> dict[str, Tensor]:
    """Keypoints, masks and graphs of both images, padded to the larger number of points, or to n if that is more."""
    n = max(data["keypoints0"].shape[1], data["keypoints1"].shape[1], n)
    points = {}
    for i in "01":
        keypoints, mask, adjacency = data[f"keypoints{i}"], data.get(f"mask{i}"), data.get(f"adjacency{i}")
        keypoints = keypoints.to(torch.promote_types(keypoints.dtype, torch.float32))  # half is too coarse for pixels
        if mask is None:
            mask = torch.ones(keypoints.shape[:2], dtype=torch.bool, device=keypoints.device)
        if adjacency is None:
            adjacency = delaunay_batch(keypoints, mask)
        numpy = keypoints.device.type == "cpu" and torch.is_inference_mode_enabled()  # gradients need torch
        pad = _pad_on_cpu if numpy else _pad
        points[f"keypoints{i}"], points[f"mask{i}"], points[f"adjacency{i}"] = pad(keypoints, mask, adjacency, n)
    return points


def _pad(keypoints: Tensor, mask: Tensor, adjacency: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keypoints (B, n, 2), mask (B, n) and adjacency (B, n, n), with nothing in them where the mask is False."""
    more = n - mask.shape[1]
    keypoints = keypoints.masked_fill(~mask.unsqueeze(2), 0.0)  # padding may hold anything
    adjacency = adjacency & mask.unsqueeze(2) & mask.unsqueeze(1)
    return F.pad(keypoints, (0, 0, 0, more)), F.pad(mask, (0, more)), F.pad(adjacency, (0, more, 0, more))


def _pad_on_cpu(keypoints: Tensor, mask: Tensor, adjacency: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """`_pad` by numpy: torch shares such work among threads, which wait for each other where the cores are busy."""
    given, valid, graph = keypoints.numpy(), mask.numpy(), adjacency.numpy()
    batch, count = valid.shape
    xy, real, edges = np.zeros((batch, n, 2), given.dtype), np.zeros((batch, n), bool), np.zeros((batch, n, n), bool)
    np.copyto(xy[:, :count], given, where=valid[:, :, None])
    real[:, :count] = valid
    edges[:, :count, :count] = graph
    if not valid.all():
        edges &= real[:, :, None]
        edges &= real[:, None, :]
    return torch.from_numpy(xy), torch.from_numpy(real), torch.from_numpy(edges)


def cut(output: Mapping[str, Tensor], m: int, n: int) -> dict[str, Tensor]:
    """The head's output for the first m points of image 0 and the first n of image 1, without what filled them up."""
    cut = {key: value[:, :n] if key.endswith("1") else value[:, :m] for key, value in output.items()}
    return {key: value[:, :, :n] if key in ("similarity", "log_assignment") else value for key, value in cut.items()}


def check(data: Mapping[str, Any]) -> None:
    """Refuse what cannot be matched with one sentence that names the argument."""
    sizes = []
    for i in "01":
        batch, size = _check_view(data, i)
        _check_points(data, i, batch, size)
        sizes.append(batch)
    if sizes[0] != sizes[1]:
        raise InputError(f"image0 holds {sizes[0]} images and image1 {sizes[1]}, expected the same number")


def _check_view(data: Mapping[str, Any], i: str) -> tuple[int, tuple[int, int]]:
    """Batch size and image size of image i."""
    if f"features{i}" in data:
        features = data[f"features{i}"]
        if not isinstance(features, Features):
            raise InputError(f"features{i} is {_describe(features)}, expected what `encode` returns")
        return features.pooled.shape[0], features.size
    image: Any = data.get(f"image{i}")
    _check_image(image, f"image{i}")
    return image.shape[0], (image.shape[2], image.shape[3])


def _check_image(image: Any, name: str) -> None:
    if not isinstance(image, Tensor) or image.ndim != 4 or image.shape[1] != 3 or 0 in image.shape:
        raise InputError(f"{name} is {_describe(image)}, expected a float tensor (B, 3, H, W) with values in [0, 1]")
    if not image.is_floating_point():
        raise InputError(f"{name} has dtype {image.dtype}, expected floats in [0, 1] (divide bytes by 255)")
    low, high = image.aminmax()
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # also true for NaN
        raise InputError(f"{name} has values from {low:.3g} to {high:.3g}, expected finite values in [0, 1]")


def _check_points(data: Mapping[str, Any], i: str, batch: int, size: tuple[int, int]) -> None:
    keypoints, mask, adjacency = (data.get(f"{name}{i}") for name in ("keypoints", "mask", "adjacency"))
    if not isinstance(keypoints, Tensor) or keypoints.ndim != 3 or keypoints.shape[2] != 2:
        raise InputError(f"keypoints{i} is {_describe(keypoints)}, expected a float tensor ({batch}, N, 2)")
    if keypoints.shape[0] != batch:
        raise InputError(f"keypoints{i} is for {keypoints.shape[0]} images, but there are {batch}")
    if keypoints.shape[1] == 0:
        raise InputError(f"keypoints{i} is empty, expected at least one point")
    if not keypoints.is_floating_point():
        raise InputError(f"keypoints{i} has dtype {keypoints.dtype}, expected floats")
    n = keypoints.shape[1]
    for name, value, shape in (("mask", mask, (batch, n)), ("adjacency", adjacency, (batch, n, n))):
        if value is not None and (not isinstance(value, Tensor) or value.dtype != torch.bool or value.shape != shape):
            raise InputError(f"{name}{i} is {_describe(value)}, expected a bool tensor {shape}")
    valid = keypoints if mask is None else keypoints[mask]
    if not valid.isfinite().all():
        raise InputError(f"keypoints{i} has NaN or infinite coordinates, expected finite pixels")
    limit = keypoints.new_tensor((size[1], size[0]))
    if ((valid < -OUTSIDE * limit) | (valid > (1 + OUTSIDE) * limit)).any():
        raise InputError(
            f"keypoints{i} has points far outside the image, expected xy within {size[1]} x {size[0]} pixels"
        )


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)}"
    return "missing" if value is None else f"a {type(value).__name__}"
