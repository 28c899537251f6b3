"""The graphs of a network, traced by torch.export: ONNX files without weights, which know their tensors by name.

    encoder:  image (B, 3, H, W) float in [0, 1] -> map5 (B, C, h, w) ..., pooled (B, G)
              of a ViT the maps of all blocks up to the last that is read, of others the two that the head reads
    embed:    first, second (B, C_l, h_l, w_l), pooled (B, G), size (2,), keypoints (B, N, 2), adjacency (B, N, N)
              -> tokens (B, 1 + N, D): an image with its keypoints, whatever its partner
    match:    tokens0, tokens1 (B, 1 + N, D), mask0, mask1 (B, N)
              -> matches0, matches1 (B, N), matching_scores0, matching_scores1 (B, N),
                 similarity, log_assignment (B, N, N), as `NormMatch.forward` describes them

N photographs cost N runs of the encoder and of embed, whatever is matched with what. `size` is the image's width and
height, in whose pixels the keypoints are; both images of a pair are padded to the same N, and padding has no edges.
The Delaunay triangulation stays outside: it is geometry (Qhull), not arithmetic, and no exchange format has it.
`normmatch.geometry`, which needs numpy and scipy alone, makes the adjacency.

B and N are free. So are H and W, in steps of a ViT's patch or of a convolutional network's stride; the windows of a
Swin are laid out for one size. Memory of embed grows with B * N^2 * D: it has no blocks of rows as SplineConv has.
"""

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from normmatch.errors import ExportError, first_line
from normmatch.model.assignment import best_matches
from normmatch.model.backbone import TimmBackbone, VGG16Backbone, vit_blocks
from normmatch.model.network import MatchingHead, NormMatch, delaunay_batch
from normmatch.model.sampling import Nodes, node_features
from normmatch.model.spline import SplineConv

RESAMPLE = "resample_abs_pos_embed"  # timm's function that fits a ViT's position grid to the image
EMBED_INPUTS = ("first", "second", "pooled", "size", "keypoints", "adjacency")
MATCH_INPUTS = ("tokens0", "tokens1", "mask0", "mask1")
MATCH_OUTPUTS = ("matches0", "matches1", "matching_scores0", "matching_scores1", "similarity", "log_assignment")


class Graph(NamedTuple):
    """A traced graph, the names of what goes in and comes out, and of the free dimensions of each input."""

    program: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    axes: dict[str, dict[int, str]]


class Encoder(nn.Module):
    """`NormMatch.encode`, with tensors for results, and the maps of all blocks of a ViT."""

    def __init__(self, backbone: TimmBackbone | VGG16Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.blocks = list(range(len(vit_blocks(backbone)))) or list(backbone.layers)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        if isinstance(self.backbone, VGG16Backbone):
            features = self.backbone(image)
            return *features.maps, features.pooled
        maps = self.backbone.maps(image, self.blocks)  # (B, C_l, h_l, w_l) each
        return *maps, maps[-1].mean((2, 3))


class Embed(nn.Module):
    """`MatchingHead.embed` of images alone."""

    def __init__(self, head: MatchingHead) -> None:
        super().__init__()
        self.head = head

    def forward(
        self, first: Tensor, second: Tensor, pooled: Tensor, size: Tensor, keypoints: Tensor, adjacency: Tensor
    ) -> Tensor:
        # Coordinates as shares of the image: the size is a tensor here, so that it stays free in the graph.
        nodes = Nodes(node_features((first, second), keypoints / size, (1, 1)), pooled)
        return self.head.embed((nodes, keypoints, adjacency))


class Match(nn.Module):
    """`MatchingHead.match`, and what it means."""

    def __init__(self, head: MatchingHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, tokens0: Tensor, tokens1: Tensor, mask0: Tensor, mask1: Tensor) -> tuple[Tensor, ...]:
        output = self.head.match(torch.cat([tokens0, tokens1]), mask0, mask1)
        similarity, log_assignment = output["similarity"], output["log_assignment"]
        matches0, scores0 = best_matches(log_assignment, similarity)
        matches1, scores1 = best_matches(log_assignment.mT, similarity.mT)
        return matches0, matches1, scores0, scores1, similarity, log_assignment  # MATCH_OUTPUTS


class Attention(nn.Module):
    """A ViT's attention as the one operator that ONNX has for it; its weights are those of timm's."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.qkv, self.proj, self.heads = attention.qkv, attention.proj, attention.num_heads

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)  # (B, T, C) each
        return self.proj(torch.onnx.ops.attention(q, k, v, q_num_heads=self.heads, kv_num_heads=self.heads)[0])


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
    size, step = model.config.image_size, model.backbone.step
    # The size that the network was made for must be one of them, or nothing could be done with the file.
    return step if step and size % step == 0 and size >= 2 * step else 0


def trace(model: NormMatch) -> dict[str, Graph]:
    """The graphs of a network by their names; the network itself stays as it is."""
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, SplineConv):
            module.in_blocks = False
    for block in vit_blocks(model.backbone):
        if _is_plain(getattr(block, "attn", None)):
            block.attn = Attention(block.attn)
    return {"encoder": _trace_encoder(model), "embed": _trace_embed(model), "match": _trace_match(model)}


def _is_plain(attention: Any) -> bool:
    """Whether it is timm's usual attention, with nothing done to queries, keys and values."""
    if type(attention) is not timm.layers.Attention or attention.gate is not None:
        return False
    return all(isinstance(getattr(attention, name), nn.Identity) for name in ("q_norm", "k_norm", "norm"))


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
    encoder = Encoder(model.backbone)
    with _always_resampling(model.backbone):
        program = _export(encoder, (image,), (dims,), model.config.backbone)
    return Graph(program, ("image",), (*(f"map{block}" for block in encoder.blocks), "pooled"), {"image": axes})


def _trace_embed(model: NormMatch) -> Graph:
    keypoints, mask = torch.rand(2, 6, 2), torch.arange(6) < torch.tensor([[6], [4]])  # (2, 6, 2), (2, 6)
    grids = ((5, 6), (7, 8))  # any do
    maps = [torch.rand(2, c, *grid) for c, grid in zip(model.backbone.channels, grids, strict=True)]
    pooled = torch.rand(2, model.backbone.global_channels)
    arguments = (*maps, pooled, torch.ones(2), keypoints, delaunay_batch(keypoints, mask))
    axes = {name: {0: "batch", 2: f"{name}_height", 3: f"{name}_width"} for name in EMBED_INPUTS[:2]}
    axes |= {"pooled": {0: "batch"}, "size": {}, "keypoints": {0: "batch", 1: "points"}}
    axes |= {"adjacency": {0: "batch", 1: "points", 2: "points"}}
    return _head_graph(Embed(model.head), arguments, EMBED_INPUTS, ("tokens",), axes)


def _trace_match(model: NormMatch) -> Graph:
    mask = torch.arange(6) < torch.tensor([[6], [4]])  # (2, 6)
    tokens = F.normalize(torch.randn(2, 7, model.config.dim), dim=-1)
    axes = {name: {0: "batch", 1: "tokens" if name.startswith("tokens") else "points"} for name in MATCH_INPUTS}
    arguments = (tokens, tokens.flip(0), mask, mask.clone())  # one tensor given twice would be one input
    return _head_graph(Match(model.head), arguments, MATCH_INPUTS, MATCH_OUTPUTS, axes)


def _head_graph(
    module: nn.Module, arguments: tuple[Tensor, ...], inputs: tuple[str, ...], outputs: tuple[str, ...],
    axes: dict[str, dict[int, str]],
) -> Graph:  # fmt: skip
    dims: dict[str, Any] = {name: Dim(name) for each in axes.values() for name in each.values()}
    dims |= {"tokens": dims["points"] + 1}
    shapes = tuple({k: dims[name] for k, name in axes[each].items()} for each in inputs)
    return Graph(_export(module, arguments, shapes, "after the backbone"), inputs, outputs, axes)


def _export(module: nn.Module, arguments: tuple[Tensor, ...], shapes: tuple[Any, ...], name: str) -> ExportedProgram:
    try:
        with torch.no_grad():
            return torch.export.export(module.eval(), arguments, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # the tracer raises whatever it stumbles on
        raise ExportError(f"the network {name} cannot be traced by torch.export: {first_line(error)}") from error
