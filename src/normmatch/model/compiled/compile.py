"""A network's backbone and head as compiled code with the same answers; on a GPU with kernels and CUDA graphs.

Compiled code is made for shapes. So points and pairs are filled up to a power of two, a bucket: nothing is compiled
again while their numbers stay in it. Code for any shape would be compiled once more only, but is slower. Both take a
minute or more at the first call, and run as they were where a device or a compiler lets them down.
"""

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normmatch.errors import NormMatchError, first_line
from normmatch.model.backbone import Features, compiled_parts
from normmatch.model.compiled.cuda_graph import CudaGraphs
from normmatch.model.network import MatchingHead
from normmatch.model.spline import MANY_POINTS, edge_list
from normmatch.model.transformer import Attention
from normmatch.model.window_attention import FusedWindowAttention

FEWEST_POINTS = 8  # the smallest bucket
COMPILED_SHAPES = 64  # torch's own limit, 8, ends in code that is silently slow
LARGE_WINDOW = 128  # tokens: the least for a kernel of our own, which was measured at 576

Tensors = tuple[Tensor, ...]
TensorFunction = Callable[..., Tensors]


class CompiledBackbone:
    """A backbone that `prepare_for_inference` has prepared, compiled for its device. The backbone stays as it is.

    Args:
        backbone: of a network whose weights do not change any more.
        device: where it is.
        dtype: what it computes in; on a GPU float32 means TF32 in matrix products.
    """

    def __init__(self, backbone: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        compiled = same_weights(backbone)
        if device.type == "cuda":
            with suppress(ModuleNotFoundError):  # of triton; the compiler will say that it is missing
                use_window_kernel(compiled)
        for part in compiled_parts(compiled):
            part.compile(dynamic=False)
        self.encode = fastest(partial(_encode, compiled, dtype), partial(_encode, backbone, dtype), device)

    def __call__(self, images: Tensor) -> Features:
        """Images (B, 3, H, W), floats in [0, 1] or uint8, from any device; the features are float32."""
        first, second, pooled = in_bucket(self.encode, images)
        return Features((first, second), pooled, (images.shape[-2], images.shape[-1]))


class CompiledHead:
    """`MatchingHead.embed` and `match`, compiled for the device of the head, which stays as it is.

    Args:
        head: of a network whose weights do not change any more.
        device: where it is; on a GPU its matrix products are in TF32.
    """

    def __init__(self, head: MatchingHead, device: torch.device) -> None:
        self.device = device
        self.plain, self.compiled = head, _compile_head(head, device)
        self._embedders: dict[tuple[int, int], TensorFunction] = {}  # by the size of the images
        self._matcher = fastest(partial(_match, self.compiled), partial(_match, head), device)

    def embed(self, image: tuple[Features, Tensor, Tensor]) -> Tensor:
        """`MatchingHead.embed`; keypoints and graphs may lie on the CPU."""
        features, keypoints, adjacency = image
        n = keypoints.shape[1]
        filled = bucket(n, FEWEST_POINTS)
        tensors = [*features.maps, features.pooled, _more_points(keypoints, filled), _more_points(adjacency, filled)]
        if filled >= MANY_POINTS:  # a trace does not make them
            edges = edge_list(tensors[-1])
            tensors += [] if edges is None else [edges]
        size = features.size
        if size not in self._embedders:
            compiled, plain = (partial(_embed, head, size) for head in (self.compiled, self.plain))
            self._embedders[size] = fastest(compiled, plain, self.device)
        (tokens,) = in_bucket(self._embedders[size], *tensors)
        return tokens[:, : 1 + n]

    def match(self, tokens: Tensor, mask0: Tensor, mask1: Tensor) -> dict[str, Tensor]:
        """Similarity and log-assignment of `MatchingHead.match`; masks may lie on the CPU."""
        n = mask0.shape[1]
        filled = bucket(n, FEWEST_POINTS)
        both = [_more_points(part, 1 + filled) for part in tokens.chunk(2)]
        masks = [_more_points(mask, filled) for mask in (mask0, mask1)]
        similarity, log_assignment = in_bucket(self._matcher, *both, *masks)
        return {"similarity": similarity[:, :n, :n], "log_assignment": log_assignment[:, :n, :n]}


def _encode(backbone: nn.Module, dtype: torch.dtype, images: Tensor) -> Tensors:
    with torch.autocast(images.device.type, dtype, enabled=dtype != torch.float32):
        found = backbone(images)
    return found.maps[0].float(), found.maps[1].float(), found.pooled.float()


def _embed(
    head: MatchingHead, size: tuple[int, int], first: Tensor, second: Tensor, pooled: Tensor,
    keypoints: Tensor, adjacency: Tensor, edges: Tensor | None = None,
) -> Tensors:  # fmt: skip
    return (head.embed((Features((first, second), pooled, size), keypoints, adjacency), edges=edges),)


def _match(head: MatchingHead, tokens0: Tensor, tokens1: Tensor, mask0: Tensor, mask1: Tensor) -> Tensors:
    output = head.match(torch.cat([tokens0, tokens1]), mask0, mask1)
    return output["similarity"], output["log_assignment"]


def fastest(compiled: TensorFunction, plain: TensorFunction, device: torch.device) -> TensorFunction:
    """Compiled code that goes the plain way where it fails, recorded as CUDA graphs on a GPU."""

    on_device = FallbackOnError(_with_settings(compiled, device), plain, "torch.compile")

    def run(*tensors: Tensor) -> Tensors:
        return on_device(*(tensor.to(device, non_blocking=True) for tensor in tensors))

    if device.type != "cuda":
        return run
    return FallbackOnError(CudaGraphs(run, device), run, "recording CUDA graphs")


class FallbackOnError:
    """A function that goes the fast way; where that fails it says so once, and goes the plain way from then on."""

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


def same_weights(module: Any) -> Any:
    """A copy that shares the weights: what is compiled in it does not show in the original."""
    return copy.deepcopy(module, {id(t): t for t in (*module.parameters(), *module.buffers())})


def with_kernels(head: MatchingHead, device: torch.device) -> MatchingHead:
    """A copy that shares the weights, to be compiled: on a GPU some of its parts are kernels of their own."""
    fused = same_weights(head)
    if device.type == "cuda":
        with suppress(ModuleNotFoundError):  # of triton; the compiler will say that it is missing
            from normmatch.model.compiled.attention_kernel import FusedAttention
            from normmatch.model.compiled.sinkhorn_kernel import fused_log_sinkhorn

            fused.log_sinkhorn = fused_log_sinkhorn
            for module in fused.modules():
                if isinstance(module, Attention):
                    module.__class__ = FusedAttention  # what it holds stays what it was
    return fused


def _compile_head(head: MatchingHead, device: torch.device) -> MatchingHead:
    """`with_kernels`, each part compiled by itself."""
    compiled = with_kernels(head, device)
    for part in compiled.compiled_parts():
        part.compile(dynamic=False)
    compiled.log_sinkhorn = torch.compile(compiled.log_sinkhorn, dynamic=False)
    return compiled


def use_window_kernel(net: nn.Module) -> None:
    """Let large windows attend in one kernel: for a network that is compiled for a GPU, and not trained."""
    from normmatch.model.compiled.window_kernel import fused_attend

    for module in net.modules():
        if isinstance(module, FusedWindowAttention) and math.prod(module.window_size) >= LARGE_WINDOW:
            module.attend = fused_attend


def bucket(count: int, fewest: int) -> int:
    """The smallest power of two that is at least `count` and `fewest`, a power of two itself."""
    return max(fewest, 1 << max(count - 1, 0).bit_length())


def in_bucket(function: TensorFunction, *tensors: Tensor) -> Tensors:
    """Call a function on a batch that is filled up to a bucket, and cut what it returns."""
    batch = len(tensors[0])
    more = bucket(batch, 1) - batch
    if more:
        tensors = tuple(torch.cat([tensor, tensor.new_zeros(more, *tensor.shape[1:])]) for tensor in tensors)
    return tuple(result[:batch] for result in function(*tensors))


def _more_points(value: Tensor, n: int) -> Tensor:
    """Keypoints (B, N, 2), tokens (B, N, D), mask (B, N) or adjacency (B, N, N) filled up to n with nothing."""
    more = n - value.shape[1]
    if not more:
        return value
    return F.pad(value, (0, more) * (value.ndim - 1) if value.dtype == torch.bool else (0, 0, 0, more))
