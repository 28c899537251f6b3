"""NormMatch: two images and their keypoints in, correspondences out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normmatch.checks import check_path, shown
from normmatch.config import ModelConfig
from normmatch.errors import ConfigError, NormMatchError, WeightsError
from normmatch.geometry import delaunay
from normmatch.model.assignment import best_matches, log_sinkhorn
from normmatch.model.backbone import Features, check_fits_file, load_weights, make_backbone
from normmatch.model.inputs import check_image, check_pair
from normmatch.model.locate import Located, LocatingHead, calibrated, decode, dense_both, describe
from normmatch.model.sampling import Nodes, sample
from normmatch.model.spline import SplineCNN, pseudo_coordinates
from normmatch.model.transformer import TwoStreamTransformer, norm
from normmatch.weights import FILE_NAME, find_weights, read_config, round_tensors, save_weights

EncodedPoints = tuple[Features | Nodes, Tensor, Tensor]  # B encoded images, keypoints (B, N, 2) and graphs (B, N, N)


class Gather(nn.Module):
    """What the graph network reads of images, one set after the other. A module, to be compiled as one."""

    def forward(self, *images: EncodedPoints) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features at keypoints (B, N, C), pseudo-coordinates (B, N, N, 2), adjacency (B, N, N), pooled (B, G)."""
        parts = []
        for features, xy, graph in images:
            if isinstance(features, Nodes):
                nodes = features.features  # they were read before
            else:  # as `node_features` does
                nodes = torch.cat([sample(F.normalize(m, dim=1), xy, features.size) for m in features.maps], -1)
            parts.append((nodes, features.pooled, xy, graph))
        nodes, pooled, keypoints, adjacency = (torch.cat(part) for part in zip(*parts, strict=True))
        return nodes, pseudo_coordinates(keypoints, adjacency), adjacency, pooled


class MatchingHead(nn.Module):
    """Everything after the backbone: tensors in, tensors out, so that it compiles and exports whole.

    Both images have the same number N of (padded) points. `points` has the keys of `equal_points`, and may have edges0
    and edges1 (B, E, 2), the graphs as `edge_list` gives them, for many points.
    """

    def __init__(self, config: ModelConfig, channels: int, global_channels: int) -> None:
        super().__init__()
        self.config = config
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
        self.log_sinkhorn = log_sinkhorn  # compiled for a GPU its rounds are one kernel

    def forward(
        self, features0: Features | Nodes, features1: Features | Nodes, points: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """`embed` both images, then `match`."""
        return self.match(self._embed_both(features0, features1, points), points["mask0"], points["mask1"])

    def describe(
        self, features0: Features | Nodes, features1: Features | Nodes, points: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """`embed` both images, then `transform`: what the losses need."""
        return self.transform(self._embed_both(features0, features1, points), points["mask0"], points["mask1"])

    def _embed_both(
        self, features0: Features | Nodes, features1: Features | Nodes, points: Mapping[str, Tensor]
    ) -> Tensor:
        image0 = features0, points["keypoints0"], points["adjacency0"]
        image1 = features1, points["keypoints1"], points["adjacency1"]
        edges = torch.cat([points["edges0"], points["edges1"]]) if "edges0" in points else None  # (2B, E, 2)
        return self.embed(image0, image1, edges=edges)  # (2B, 1 + N, D)

    def embed(self, *images: EncodedPoints, edges: Tensor | None = None) -> Tensor:
        """Images as the transformer sees them, whatever their partners: unit tokens [global; keypoints] (B, 1 + N, D).

        `edges` (B, E, 2), where they are known, are the graphs as `edge_list` gives them.
        """
        nodes, pseudo, adjacency, pooled = self.gather(*images)
        nodes = self.spline(nodes, pseudo, adjacency, edges)  # (B, N, D)
        return norm(torch.cat([self.global_token(pooled).unsqueeze(1), nodes], 1))  # (B, 1 + N, D)

    def transform(self, tokens: Tensor, mask0: Tensor, mask1: Tensor) -> dict[str, Tensor]:
        """Unit descriptors of all keypoints after each layer, and the cosine similarity of the last ones.

        Args:
            tokens: (2B, 1 + N, D) of `embed`, images 0 before images 1.
            mask0, mask1: (B, N), True for real points.
        """
        mask = F.pad(torch.cat([mask0, mask1]), (1, 0), value=True)  # (2B, 1 + N)
        layers = torch.stack(self.transformer(tokens, mask))[:, :, 1:]  # (L, 2B, N, D)
        layers0, layers1 = layers.unflatten(1, (2, mask0.shape[0])).unbind(1)  # (L, B, N, D) each
        valid = mask0.unsqueeze(2) & mask1.unsqueeze(1)  # (B, N, N)
        similarity = (layers0[-1] @ layers1[-1].mT).masked_fill(~valid, 0.0)
        return {"layers0": layers0, "layers1": layers1, "similarity": similarity}

    def match(self, tokens: Tensor, mask0: Tensor, mask1: Tensor) -> dict[str, Tensor]:
        """Descriptors (B, N, D), their similarity and assignment (B, N, N); arguments as of `transform`."""
        mask = F.pad(torch.cat([mask0, mask1]), (1, 0), value=True)  # (2B, 1 + N)
        descriptors = self.transformer(tokens, mask)[-1][:, 1:]  # (2B, N, D)
        descriptors0, descriptors1 = descriptors.unflatten(0, (2, mask0.shape[0]))  # (B, N, D) each
        valid = mask0.unsqueeze(2) & mask1.unsqueeze(1)  # (B, N, N)
        similarity = (descriptors0 @ descriptors1.mT).masked_fill(~valid, 0.0).float()
        epsilon, rounds = self.config.sinkhorn_epsilon, self.config.sinkhorn_rounds
        return {
            "descriptors0": descriptors0,
            "descriptors1": descriptors1,
            "similarity": similarity,
            "log_assignment": self.log_sinkhorn(similarity, mask0, mask1, epsilon, rounds),
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
        if not isinstance(config, ModelConfig):
            raise ConfigError(f"config is {shown(config)}, expected a ModelConfig; a name is for from_pretrained")
        self.config = config
        self.backbone = make_backbone(
            config.backbone, config.backbone_layers, config.image_size, config.backbone_weights
        )
        self.head = MatchingHead(config, sum(self.backbone.channels), self.backbone.global_channels)
        self.locating = LocatingHead(self.backbone.channels, config.locate_dim) if config.locate_dim else None

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
                matching_scores0 (B, M), matching_scores1 (B, N): of these matches, in [0, 1]: assignment times cosine
                similarity (B, M, N): cosine, 0 for padding
                log_assignment (B, M, N): after Sinkhorn, -inf for padding
                descriptors0 (B, M, D), descriptors1 (B, N, D): unit vectors
        """
        check_pair(data, self.backbone)
        return self.match(data)

    def encode(self, image: Tensor) -> Features:
        """What the network sees in images (B, 3, H, W) in [0, 1]; reusable for any keypoints and any partner."""
        check_image(image, "image", self.backbone)
        return self.backbone(image)

    def features(self, data: Mapping[str, Any]) -> tuple[Features, Features]:
        """The features of both images where `data` does not hold them already, in one pass where sizes allow it."""
        known0, known1 = data.get("features0"), data.get("features1")
        if known0 is not None or known1 is not None or data["image0"].shape != data["image1"].shape:
            return (
                self.backbone(data["image0"]) if known0 is None else known0,
                self.backbone(data["image1"]) if known1 is None else known1,
            )
        both = self.backbone(torch.cat([data["image0"], data["image1"]]))
        (first0, first1), (second0, second1), (pooled0, pooled1) = (t.chunk(2) for t in (*both.maps, both.pooled))
        return Features((first0, second0), pooled0, both.size), Features((first1, second1), pooled1, both.size)

    def describe(self, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """What the losses need, see `MatchingHead.transform`; takes what `forward` takes, without its checks."""
        return self.head.describe(*self.features(data), equal_points(data))

    def match(self, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """`forward` without the checks of its input."""
        output = self.head(*self.features(data), equal_points(data))
        for i, assignment, cosines in (
            ("0", output["log_assignment"], output["similarity"]),
            ("1", output["log_assignment"].mT, output["similarity"].mT),
        ):
            output[f"matches{i}"], output[f"matching_scores{i}"] = best_matches(assignment, cosines)
        return cut(output, data["keypoints0"].shape[1], data["keypoints1"].shape[1])

    def locate(self, data: Mapping[str, Any]) -> Located:
        """Where the keypoints of image 0 lie in image 1, or that they are absent there.

        Args:
            data: image0 and image1, or features0 and features1, and keypoints0 (B, N, 2), as for `forward`.
        """
        features0, features1 = self.features(data)
        dense0, dense1 = self.locate_maps(features0), self.locate_maps(features1)
        queries = describe(dense0, data["keypoints0"].to(dense0.dtype), features0.size)  # (B, N, D)
        cells = dense1.shape[2], dense1.shape[3]
        found = decode(self._locating_head().log_probabilities(queries, dense1), cells, features1.size)
        return found._replace(scores=calibrated(found.scores, self.config.locate_calibration))

    def locate_maps(self, features: Features) -> Tensor:
        """Unit descriptors (B, D, h, w) of every place of encoded images: points are found where theirs is alike."""
        return self._locating_head()(features.maps)

    def _locating_head(self) -> LocatingHead:
        if self.locating is None:
            raise ConfigError("this network cannot locate; expected one that was trained with model.locate_dim")
        return self.locating

    def describe_places(
        self, features0: Features, features1: Features, points: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Log-probabilities (B, V, h w + 1) of where points lie in the other image: what the locating loss needs.

        Args:
            points: places0, places1 (B, V, 2) as shares of an image.
        """
        head = self._locating_head()
        dense0, dense1 = dense_both(head, features0, features1)
        queries0, queries1 = (describe(d, points[f"places{i}"], (1, 1)) for i, d in enumerate((dense0, dense1)))
        located0, located1 = head.log_probabilities(queries0, dense1), head.log_probabilities(queries1, dense0)
        return {"located0": located0, "located1": located1}

    def heads(self) -> list[nn.Parameter]:
        """Everything that is learned after the backbone."""
        return [*self.head.parameters(), *(self.locating.parameters() if self.locating is not None else ())]

    def compiled_heads(self) -> list[nn.Module]:
        """What of the heads is compiled part by part."""
        return [*self.head.compiled_parts(), *([self.locating] if self.locating is not None else ())]

    def normalize_weights(self) -> None:
        """Put the transformer's matrices back on the sphere: to be called after every optimiser step."""
        self.head.transformer.normalize_weights()

    def save_pretrained(self, path: str | Path, bits: Literal[32, 16, 8] = 32, *, held_out: bool | None = None) -> Path:
        """Write weights and config to `path`, a .safetensors file or a folder; fewer bits make a smaller file.

        `held_out` tells whether objects of the training split were kept from training, see `weights.read_held_out`.
        """
        path = check_path(path, "The place of the weights", WeightsError)
        file = path if path.suffix == ".safetensors" else path / FILE_NAME
        tensors = {key: value.detach().cpu().contiguous().numpy() for key, value in self.state_dict().items()}
        save_weights(file, round_tensors(tensors, bits), self.config, held_out)
        return file

    @classmethod
    def from_pretrained(cls, name: str | Path) -> Self:
        """A model in evaluation mode from a folder, a file, a bundled name, or owner/name on a hub."""
        file = find_weights(name)
        config = read_config(file)
        try:
            check_fits_file(config, file)
            model = cls(replace(config, backbone_weights="random"))  # the file holds the backbone too
        except NormMatchError as error:
            raise WeightsError(f"weights file {file} is of a model that cannot be: {error}") from error
        load_weights(model, file)
        model.config = config
        return model.eval()


def delaunay_batch(keypoints: Tensor, mask: Tensor) -> Tensor:
    """Adjacency (B, N, N) of the valid points of each image; a padded point has no edge. Runs on the CPU."""
    points, valid = keypoints.detach().cpu().numpy(), mask.cpu().numpy()
    adjacency = np.zeros((*valid.shape, valid.shape[1]), dtype=bool)
    for graph, xy, keep in zip(adjacency, points, valid, strict=True):
        graph[np.ix_(keep, keep)] = delaunay(xy[keep])
    return torch.from_numpy(adjacency).to(keypoints.device)


def equal_points(data: Mapping[str, Any], n: int = 0) -> dict[str, Tensor]:
    """Keypoints, masks and graphs of both images, padded to the larger number of points, or to n if that is more.

    There is nothing in them where a mask is False: padding that was given may hold anything.
    """
    n = max(data["keypoints0"].shape[1], data["keypoints1"].shape[1], n)
    points = {}
    for i in "01":
        keypoints, mask, adjacency = data[f"keypoints{i}"], data.get(f"mask{i}"), data.get(f"adjacency{i}")
        keypoints = keypoints.to(torch.promote_types(keypoints.dtype, torch.float32))  # half is too coarse for pixels
        if mask is None:
            mask = torch.ones(keypoints.shape[:2], dtype=torch.bool, device=keypoints.device)
        if adjacency is None:
            adjacency = delaunay_batch(keypoints, mask)
        more = n - mask.shape[1]
        points[f"keypoints{i}"] = F.pad(keypoints.masked_fill(~mask.unsqueeze(2), 0.0), (0, 0, 0, more))  # (B, n, 2)
        points[f"mask{i}"] = F.pad(mask, (0, more))  # (B, n)
        adjacency = adjacency & mask.unsqueeze(2) & mask.unsqueeze(1)
        points[f"adjacency{i}"] = F.pad(adjacency, (0, more, 0, more))  # (B, n, n)
    return points


def cut(output: Mapping[str, Tensor], m: int, n: int) -> dict[str, Tensor]:
    """An output for the first m points of image 0 and the first n of image 1, without what filled them up."""
    shorter = {key: value[:, :n] if key.endswith("1") else value[:, :m] for key, value in output.items()}
    return {k: value[:, :, :n] if k in ("similarity", "log_assignment") else value for k, value in shorter.items()}
