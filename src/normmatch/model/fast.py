"""A network as it runs fastest on its device, with the same answers: arithmetic, buckets, compiler, CUDA graphs.

    fast = FastNetwork(model, compile=True)
    output = fast.match({"image0": ..., "image1": ..., "keypoints0": ..., "keypoints1": ...})

Compiled code is made for shapes. So points and pairs are filled up to a power of two, a bucket: nothing is compiled
again while their numbers stay in it. Code for any shape would be compiled once more only, but is slower.
"""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

from normmatch.errors import ConfigError, DeviceError, NormMatchError, first_line
from normmatch.model.backbone import Features, TimmBackbone, compiled_parts
from normmatch.model.cuda_graph import CudaGraphs
from normmatch.model.matcher import MatchingHead, NormMatch, cut, equal_points
from normmatch.model.spline import MANY_POINTS, edge_list
from normmatch.model.transformer import Attention
from normmatch.model.window_attention import keep_biases, use_window_kernel

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FEWEST_POINTS = 8  # the smallest bucket
COMPILED_SHAPES = 64  # torch's own limit, 8, ends in code that is silently slow
POINTS = tuple(f"{name}{i}" for name in ("keypoints", "mask", "adjacency") for i in "01")
OUTPUTS = (
    "descriptors0", "descriptors1", "similarity", "log_assignment",
    "matches0", "matches1", "matching_scores0", "matching_scores1",
)  # fmt: skip

Tensors = tuple[Tensor, ...]
TensorFunction = Callable[..., Tensors]


class FastNetwork:
    """A network in evaluation mode, on the device it is on; its weights must not change any more.

    Args:
        model: stays as it is; in half precision a copy of its backbone is made.
        precision: of the backbone: auto, float32, bfloat16 or float16; see `choose_precision`.
        head_precision: of everything after it. Compiled for a GPU, float32 means TF32 in matrix products, in both.
        compile: compile the network, and record it as CUDA graphs on a GPU. Takes a minute at the first call.
    """

    def __init__(
        self, model: NormMatch, *, precision: str = "auto", head_precision: str = "float32", compile: bool = False
    ) -> None:
        self.model, self.compile = model.eval(), compile
        self.device = next(model.parameters()).device
        self.dtype = choose_precision(precision, self.device)
        self.head_dtype = choose_precision(head_precision, self.device)
        self.backbone = _prepare_backbone(model.backbone, self.dtype)
        self._backbone = self._encoder(self.backbone)
        if compile:
            compiled = _same_weights(self.backbone)
            if self.device.type == "cuda":
                with suppress(ModuleNotFoundError):  # of triton; the compiler will say that it is missing
                    use_window_kernel(compiled)
            for part in compiled_parts(compiled):
                part.compile(dynamic=False)
            self._backbone = self._fastest(self._encoder(compiled), self._backbone)
        self._compiled_head = _compile_head(model.head, self.device) if compile else None
        self._parts: dict[tuple[Any, ...], TensorFunction] = {}

    @torch.inference_mode()
    def encode(self, images: Tensor) -> Features:
        """`NormMatch.encode` of images (B, 3, H, W), floats in [0, 1] or uint8, from any device; maps are float32."""
        first, second, pooled = self._run(self._backbone, [images.to(self.device, non_blocking=True)], "images")
        return Features((first, second), pooled, (images.shape[-2], images.shape[-1]))

    @torch.inference_mode()
    def maps(self, images: Tensor, blocks: Sequence[int]) -> list[Tensor]:
        """`TimmBackbone.maps` of images (B, 3, H, W) uint8, from any device; float32, and never compiled."""
        if not isinstance(self.backbone, TimmBackbone) or self.backbone.fixed_size or self.backbone.patch == 1:
            raise ConfigError("locating reads blocks of a ViT at several sizes, which this network's backbone is not.")
        known = max(self.backbone.layers) + 1
        if not blocks or not all(0 <= block < known for block in blocks):
            raise ConfigError(f"the blocks to be read are {list(blocks)}, expected some of 0 to {known - 1}")

        def encode(images: Tensor) -> Tensors:
            with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
                found = self.backbone.maps(images.float() / 255, blocks)
            return tuple(one.float() for one in found)

        return list(self._run(self._on_device(encode), [images], "images"))

    @torch.inference_mode()
    def look(self, features: Features, keypoints: Tensor, adjacency: Tensor) -> Tensor:
        """`MatchingHead.look` at encoded images with keypoints (B, N, 2) and graphs (B, N, N), from any device.

        For images that are matched more than once with these points: `compare` takes what it returns, (B, 1 + N, D).
        """
        n = keypoints.shape[1]
        points = [_more_points(value, self._filled(n)) for value in (keypoints, adjacency)]
        edges = self._edges(points[1])
        points += [] if edges is None else [edges]
        tensors = [*features.maps, features.pooled, *points]
        (tokens,) = self._run(self._part(_look, features.size), tensors, "images")
        return tokens[:, : 1 + n]

    @torch.inference_mode()
    def compare(self, tokens0: Tensor, tokens1: Tensor, mask0: Tensor, mask1: Tensor) -> dict[str, Tensor]:
        """`MatchingHead.compare` of B pairs of images that `look` saw, with masks (B, N) of their real points."""
        n = mask0.shape[1]
        filled = self._filled(n)
        tokens = [_more_points(tokens, 1 + filled) for tokens in (tokens0, tokens1)]
        masks = [_more_points(mask, filled) for mask in (mask0, mask1)]
        found = self._run(self._part(_compare), [*tokens, *masks], "pairs")
        return cut(dict(zip(OUTPUTS, found, strict=True)), n, n)

    @torch.inference_mode()
    def head(self, features0: Features, features1: Features, points: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`MatchingHead.forward`; points as `equal_points` makes them, from any device, the CPU being the best one."""
        n = points["mask0"].shape[1]
        named = {key: _more_points(points[key], self._filled(n)) for key in POINTS}
        edges0, edges1 = (self._edges(named[f"adjacency{i}"]) for i in "01")
        if edges0 is not None and edges1 is not None:
            named |= {"edges0": edges0, "edges1": edges1}
        views = [*features0.maps, features0.pooled, *features1.maps, features1.pooled]
        function = self._part(_match, features0.size, features1.size, tuple(named))
        found = self._run(function, [*views, *named.values()], "pairs")
        return cut(dict(zip(OUTPUTS, found, strict=True)), n, n)

    @torch.inference_mode()
    def match(self, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """`NormMatch.match`. The graphs are made while the GPU is busy with the images."""
        m, n = data["keypoints0"].shape[1], data["keypoints1"].shape[1]
        points = {key: value.cpu() for key, value in data.items() if key[:-1] in ("keypoints", "mask", "adjacency")}
        features0, features1 = self._features(data)
        return cut(self.head(features0, features1, equal_points(points, self._filled(max(m, n)))), m, n)

    def _filled(self, points: int) -> int:
        """Up to how many points are filled up."""
        return bucket(points, FEWEST_POINTS) if self.compile else points

    def _edges(self, adjacency: Tensor) -> Tensor | None:
        """The `edge_list` of graphs that compiled code is to see as such: a trace does not make it."""
        return edge_list(adjacency) if self.compile and adjacency.shape[1] >= MANY_POINTS else None

    def _features(self, data: Mapping[str, Any]) -> list[Features]:
        images: list[Any] = [data.get("image0"), data.get("image1")]
        known: list[Any] = [data.get("features0"), data.get("features1")]
        if known == [None, None] and images[0].shape[1:] == images[1].shape[1:]:
            both, first = self.encode(torch.cat([image.to(self.device) for image in images])), len(images[0])
            return [
                Features((both.maps[0][s], both.maps[1][s]), both.pooled[s], both.size)
                for s in (slice(0, first), slice(first, None))
            ]
        return [self.encode(image) if view is None else view for image, view in zip(images, known, strict=True)]

    def _encoder(self, backbone: nn.Module) -> TensorFunction:
        def encode(images: Tensor) -> Tensors:
            if not images.is_floating_point():
                images = images.float() / 255
            with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
                found = backbone(images)
            return found.maps[0].float(), found.maps[1].float(), found.pooled.float()

        return encode

    def _part(self, function: TensorFunction, *settings: Any) -> TensorFunction:
        """A function of a head, settings and tensors as one of tensors alone, made once for the same settings."""
        key = function, *settings
        if key not in self._parts:

            def run(head: MatchingHead, *tensors: Tensor) -> Tensors:
                with torch.autocast(self.device.type, self.head_dtype, enabled=self.head_dtype != torch.float32):
                    return function(head, *settings, *tensors)

            plain, compiled = partial(run, self.model.head), self._compiled_head
            self._parts[key] = self._fastest(partial(run, compiled), plain) if compiled else self._on_device(plain)
        return self._parts[key]

    def _fastest(self, compiled: TensorFunction, plain: TensorFunction) -> TensorFunction:
        function = self._on_device(Attempt(_with_settings(compiled, self.device), plain, "torch.compile"))
        if self.device.type != "cuda":
            return function
        return Attempt(CudaGraphs(function, self.device), function, "recording CUDA graphs")

    def _on_device(self, function: TensorFunction) -> TensorFunction:
        return lambda *tensors: function(*(tensor.to(self.device, non_blocking=True) for tensor in tensors))

    def _run(self, function: TensorFunction, tensors: Sequence[Tensor], what: str) -> Tensors:
        """Call a function on the batch, filled up to a bucket where it is compiled; in parts if memory is short."""
        batch = len(tensors[0])
        filled = bucket(batch, 1) if self.compile else max(batch, 1)
        try:
            results = function(*(_more_rows(tensor, filled - batch) for tensor in tensors))
            return results if filled == batch else tuple(result[:batch] for result in results)
        except torch.OutOfMemoryError as error:
            if batch < 2:
                raise DeviceError(
                    f"{self.device} has too little free memory for even one of the {what}; "
                    "expected a larger one, fewer keypoints, or the device cpu"
                ) from error
        warnings.warn(f"{batch} {what} at a time are too many for {self.device}'s memory; halving them", stacklevel=3)
        torch.cuda.empty_cache()
        parts = [[tensor[s] for tensor in tensors] for s in (slice(0, batch // 2), slice(batch // 2, None))]
        return tuple(torch.cat(halves) for halves in zip(*(self._run(function, p, what) for p in parts), strict=True))


def _look(
    head: MatchingHead, size: tuple[int, int], first: Tensor, second: Tensor, pooled: Tensor,
    keypoints: Tensor, adjacency: Tensor, edges: Tensor | None = None,
) -> Tensors:  # fmt: skip
    return (head.look((Features((first, second), pooled, size), keypoints, adjacency), edges=edges),)


def _compare(head: MatchingHead, tokens0: Tensor, tokens1: Tensor, mask0: Tensor, mask1: Tensor) -> Tensors:
    output = head.compare(torch.cat([tokens0, tokens1]), mask0, mask1)
    return tuple(output[name] for name in OUTPUTS)


def _match(
    head: MatchingHead, size0: tuple[int, int], size1: tuple[int, int], names: tuple[str, ...], *tensors: Tensor
) -> Tensors:
    first0, second0, pooled0, first1, second1, pooled1, *points = tensors
    view0, view1 = Features((first0, second0), pooled0, size0), Features((first1, second1), pooled1, size1)
    output = head(view0, view1, dict(zip(names, points, strict=True)))
    return tuple(output[name] for name in OUTPUTS)


class Attempt:
    """A function that tries the fast way; where that fails it says so once, and goes the plain way from then on."""

    def __init__(self, fast: TensorFunction, plain: TensorFunction, what: str) -> None:
        self.fast: TensorFunction | None = fast
        self.plain, self.what = plain, what

    def __call__(self, *arguments: Tensor) -> Tensors:
        if self.fast is not None:
            try:
                return self.fast(*arguments)
            except (NormMatchError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # no C++ compiler, no triton, a GPU that is too old for it ...
                reason = first_line(error)
                warnings.warn(f"{self.what} does not work here, so it runs slower: {reason}", stacklevel=2)
                self.fast = None
        return self.plain(*arguments)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The arithmetic that a name stands for on a device.

    auto is bfloat16 where the device has instructions for it; without them float16 on a GPU, float32 elsewhere. A half
    precision that a CPU would only imitate, slowly, is replaced by float32 with a warning.
    """
    native = _has_bfloat16(device)
    if name == "auto":
        return torch.bfloat16 if native else torch.float16 if device.type == "cuda" else torch.float32
    if name not in PRECISIONS:
        raise ConfigError(f"precision is {name!r}, expected auto, {', '.join(PRECISIONS)}")
    dtype = PRECISIONS[name]
    if (dtype == torch.bfloat16 and not native) or (dtype == torch.float16 and device.type == "cpu"):
        better = torch.float16 if device.type == "cuda" else torch.float32
        warnings.warn(f"{device} has no {name} arithmetic; {str(better)[6:]} is used instead", stacklevel=3)
        return better
    return dtype


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        found = (getattr(torch.cpu, f"_is_{name}_supported", bool) for name in ("avx512_bf16", "amx_tile"))
        return any(ask() for ask in found)
    return False


def bucket(count: int, fewest: int) -> int:
    """The smallest power of two that is at least `count` and `fewest`, a power of two itself."""
    return max(fewest, 1 << max(count - 1, 0).bit_length())


def _prepare_backbone(backbone: Any, dtype: torch.dtype) -> Any:
    """A backbone with biases kept and matrices cast once, where autocast would cast them for every image."""
    prepared = _same_weights(backbone) if dtype == torch.float32 else copy.deepcopy(backbone)
    keep_biases(prepared)
    for module in prepared.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0  # for training only; but each block has its own, and would be compiled for it
    if dtype != torch.float32:
        for module in prepared.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                module.to(dtype)
    return prepared.requires_grad_(False) if dtype != torch.float32 else prepared


def _same_weights(module: Any) -> Any:
    """A copy that shares the weights: what is compiled or kept in it does not show in the original."""
    return copy.deepcopy(module, {id(t): t for t in (*module.parameters(), *module.buffers())})


def with_kernels(head: MatchingHead, device: torch.device) -> MatchingHead:
    """A copy that shares the weights, to be compiled: on a GPU some of its parts are kernels of their own."""
    fused = _same_weights(head)
    if device.type == "cuda":
        with suppress(ModuleNotFoundError):  # of triton; the compiler will say that it is missing
            from normmatch.model.attention_kernel import fused_attend
            from normmatch.model.sinkhorn_kernel import fused_alternate

            fused.alternate = fused_alternate
            for module in fused.modules():
                if isinstance(module, Attention):
                    module.attend = fused_attend
    return fused


def _compile_head(head: MatchingHead, device: torch.device) -> MatchingHead:
    """`with_kernels`, each part compiled by itself."""
    compiled = with_kernels(head, device)
    for part in compiled.compiled_parts():
        part.compile(dynamic=False)
    compiled.assign = torch.compile(compiled.assign, dynamic=False)  # type: ignore[method-assign]
    return compiled


def _with_settings(function: TensorFunction, device: torch.device) -> TensorFunction:
    """Compiled code for as many shapes as there are; on a GPU float32 products use its matrix units (TF32)."""

    def run(*arguments: Tensor) -> Tensors:
        with torch._dynamo.config.patch(recompile_limit=COMPILED_SHAPES):
            return function(*arguments)

    def run_with_matrix_units(*arguments: Tensor) -> Tensors:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return run(*arguments)
        finally:
            torch.set_float32_matmul_precision(before)

    return run_with_matrix_units if device.type == "cuda" else run  # elsewhere a setting would only compile anew


def _more_points(value: Tensor, n: int) -> Tensor:
    """Keypoints (B, N, 2), tokens (B, N, D), mask (B, N) or adjacency (B, N, N) filled up to n with nothing."""
    more = n - value.shape[1]
    if not more:
        return value
    return F.pad(value, (0, more) * (value.ndim - 1) if value.dtype == torch.bool else (0, 0, 0, more))


def _more_rows(tensor: Tensor, more: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(more, *tensor.shape[1:])]) if more else tensor
