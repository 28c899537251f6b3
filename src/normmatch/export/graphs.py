"""The two graphs that a network is exported as, traced by torch.export with dynamic sizes.

    encoder:  image (B, 3, H, W) float in [0, 1] -> first (B, C1, h1, w1), second (B, C2, h2, w2), pooled (B, G)
    head:     first, second, pooled, size, keypoints, mask, adjacency of both images (each name ends in 0 or 1)
              -> matches0, matches1 (B, N), matching_scores0, matching_scores1 (B, N),
                 similarity, log_assignment (B, N, N), as `NormMatch.forward` describes them

Two graphs, because the encoder takes nearly all the time: an image that is matched with many others goes through it
once. The head wants from each image
    size (2,) float: width and height of the image in whose pixels the keypoints are given
    keypoints (B, N, 2) float, mask (B, N) bool, adjacency (B, N, N) bool, padded to the same N for both images
The Delaunay triangulation stays outside: it is geometry (Qhull), not arithmetic, and no exchange format has it.
`normmatch.geometry`, which needs numpy and scipy alone, makes the adjacency.

B and N are free. So are H and W, in steps of a ViT's patch or of a convolutional network's stride; the windows of a
Swin are laid out for one size. Memory of the head grows with B * N^2 * D: it has no blocks of rows as SplineConv has.
"""

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from normmatch.errors import ExportError, first_line
from normmatch.model.assignment import best_matches
from normmatch.model.backbone import VGG16_STRIDE, TimmBackbone, VGG16Backbone
from normmatch.model.network import MatchingHead, NormMatch, delaunay_batch
from normmatch.model.sampling import Nodes, node_features
from normmatch.model.spline import SplineConv

RESAMPLE = "resample_abs_pos_embed"  # timm's function that fits a ViT's position grid to the image
ENCODED = ("first", "second", "pooled")
POINTS = ("size", "keypoints", "mask", "adjacency")
HEAD_INPUTS = tuple(name + i for i in "01" for name in (*ENCODED, *POINTS))
HEAD_OUTPUTS = ("matches0", "matches1", "matching_scores0", "matching_scores1", "similarity", "log_assignment")


class Graph(NamedTuple):
    """A traced graph, the names of what goes in and comes out, and of the free dimensions of each input."""

    program: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    axes: dict[str, dict[int, str]]


class Encoder(nn.Module):
    """`NormMatch.encode`, with tensors for results."""

    def __init__(self, backbone: TimmBackbone | VGG16Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.backbone(image)
        return *features.maps, features.pooled


class Head(nn.Module):
    """`MatchingHead`, with tensors for arguments and results; padding may hold anything."""

    def __init__(self, head: MatchingHead) -> None:
        super().__init__()
        self.head = head

    def forward(
        self,
        first0: Tensor, second0: Tensor, pooled0: Tensor,
        size0: Tensor, keypoints0: Tensor, mask0: Tensor, adjacency0: Tensor,
        first1: Tensor, second1: Tensor, pooled1: Tensor,
        size1: Tensor, keypoints1: Tensor, mask1: Tensor, adjacency1: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        points = {
            **_clean(keypoints0, mask0, adjacency0, "0"),
            **_clean(keypoints1, mask1, adjacency1, "1"),
        }
        # Coordinates as shares of the image: the size is a tensor here, so that it stays free in the graph.
        nodes0 = Nodes(node_features((first0, second0), points["keypoints0"] / size0, (1, 1)), pooled0)
        nodes1 = Nodes(node_features((first1, second1), points["keypoints1"] / size1, (1, 1)), pooled1)
        output = self.head(nodes0, nodes1, points)
        similarity, log_assignment = output["similarity"], output["log_assignment"]
        matches0, scores0 = best_matches(log_assignment, similarity)
        matches1, scores1 = best_matches(log_assignment.mT, similarity.mT)
        return matches0, matches1, scores0, scores1, similarity, log_assignment  # HEAD_OUTPUTS


def _clean(keypoints: Tensor, mask: Tensor, adjacency: Tensor, i: str) -> dict[str, Tensor]:
    return {
        f"keypoints{i}": keypoints.masked_fill(~mask.unsqueeze(2), 0.0),  # (B, N, 2)
        f"mask{i}": mask,  # (B, N)
        f"adjacency{i}": adjacency & mask.unsqueeze(2) & mask.unsqueeze(1),  # (B, N, N)
    }


@contextmanager
def _always_resampling(backbone: TimmBackbone | VGG16Backbone) -> Iterator[None]:
    """A ViT asks whether the image is of the size that it was trained with, and the tracer would rule that size out."""
    file = sys.modules[type(backbone.net).__module__]
    asking = getattr(file, RESAMPLE, None)
    if asking is None:
        yield
        return
    setattr(file, RESAMPLE, _resample)
    try:
        yield
    finally:
        setattr(file, RESAMPLE, asking)


def _resample(
    posemb: Tensor, new_size: tuple[int, int], old_size: tuple[int, int], num_prefix_tokens: int = 1
) -> Tensor:
    """timm's function without its question; at the same size it changes nothing, (1, prefix + h w, C)."""
    prefix, grid = posemb[:, :num_prefix_tokens], posemb[:, num_prefix_tokens:]
    grid = grid.unflatten(1, old_size).permute(0, 3, 1, 2)  # (1, C, h, w)
    grid = F.interpolate(grid, size=new_size, mode="bicubic", antialias=True)
    return torch.cat([prefix, grid.flatten(2).mT], 1)


def image_step(model: NormMatch) -> int:
    """Height and width may be any multiples of this, from two on; 0 where the size is fixed."""
    backbone = model.backbone
    if isinstance(backbone, VGG16Backbone):
        step = VGG16_STRIDE
    elif backbone.fixed_size:
        return 0
    else:
        step = backbone.patch if backbone.patch > 1 else backbone.smallest
    # The size that the network was made for must be one of them, or nothing could be done with the file.
    return step if model.config.image_size % step == 0 and model.config.image_size >= 2 * step else 0


def trace(model: NormMatch) -> dict[str, Graph]:
    """The graphs "encoder" and "head" of a network; the network itself stays as it is."""
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, SplineConv):
            module.in_blocks = False
    return {"encoder": _trace_encoder(model), "head": _trace_head(model)}


def _trace_encoder(model: NormMatch) -> Graph:
    step = image_step(model)
    try:
        return _encoder_graph(model, step)
    except ExportError:
        if not step:
            raise
        return _encoder_graph(model, 0)  # a backbone that asks for its image's size: better one size than no file


def _encoder_graph(model: NormMatch, step: int) -> Graph:
    size = model.config.image_size
    dims: dict[int, Any] = {0: Dim("batch")}
    axes = {0: "batch"}
    if step:
        dims |= {2: step * Dim("rows", min=2), 3: step * Dim("columns", min=2)}
        axes |= {2: "height", 3: "width"}
    image = torch.rand(2, 3, size, size + step)  # no square: sides of one length could be taken for one dimension
    with _always_resampling(model.backbone):
        program = _export(Encoder(model.backbone), (image,), (dims,), model.config.backbone)
    return Graph(program, ("image",), ENCODED, {"image": axes})


def _trace_head(model: NormMatch) -> Graph:
    arguments: list[Tensor] = []
    axes: dict[str, dict[int, str]] = {}
    for i, n in (("0", 5), ("1", 7)):
        channels, grids = model.backbone.channels, ((n, n + 1), (n + 2, n + 3))  # any grids do
        keypoints, mask = torch.rand(2, 6, 2), torch.arange(6) < torch.tensor([[6], [4]])  # (2, 6, 2), (2, 6)
        arguments += [torch.rand(2, c, *grid) for c, grid in zip(channels, grids, strict=True)]
        arguments += [torch.rand(2, model.backbone.global_channels), torch.ones(2)]
        arguments += [keypoints, mask, delaunay_batch(keypoints, mask)]
        axes |= {name + i: {0: "batch", 2: f"{name}_height{i}", 3: f"{name}_width{i}"} for name in ENCODED[:2]}
        axes |= {f"pooled{i}": {0: "batch"}, f"size{i}": {}, f"keypoints{i}": {0: "batch", 1: "points"}}
        axes |= {f"mask{i}": {0: "batch", 1: "points"}, f"adjacency{i}": {0: "batch", 1: "points", 2: "points"}}
    dims = {name: Dim(name) for each in axes.values() for name in each.values()}
    shapes = tuple({k: dims[name] for k, name in axes[each].items()} for each in HEAD_INPUTS)
    program = _export(Head(model.head), tuple(arguments), shapes, "after the backbone")
    return Graph(program, HEAD_INPUTS, HEAD_OUTPUTS, axes)


def _export(module: nn.Module, arguments: tuple[Tensor, ...], shapes: tuple[Any, ...], name: str) -> ExportedProgram:
    try:
        with torch.no_grad():
            return torch.export.export(module.eval(), arguments, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # the tracer raises whatever it stumbles on
        raise ExportError(f"the network {name} cannot be traced by torch.export: {first_line(error)}") from error
