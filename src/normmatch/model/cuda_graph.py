"""CUDA graphs: a function's kernels recorded once and launched as one, where launching them one by one is the limit."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

TensorFunction = Callable[..., tuple[Tensor, ...]]
WARM_UP = 3  # runs before the recording: compilers compile, libraries choose their kernels
KEPT = 64  # recordings; they share one pool of memory


class CudaGraphs:
    """A function of tensors on a GPU, recorded for each combination of shapes; call it like the function itself.

    Arguments may lie elsewhere: they are copied to where the recording reads them. Results are copies, so that the next
    call does not change them. `function` must neither wait for the device nor depend on anything but its arguments and
    weights that stay where they are.
    """

    def __init__(self, function: TensorFunction, device: torch.device) -> None:
        self.function, self.device = function, device
        self.recordings: OrderedDict[tuple, tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]] = (
            OrderedDict()
        )
        self.lock = threading.Lock()
        self.pool: Any = None

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        key = tuple((a.shape, a.dtype) for a in arguments)
        with self.lock, torch.cuda.device(self.device):
            if key not in self.recordings:
                self.recordings[key] = self._record(arguments)
                if len(self.recordings) > KEPT:
                    self.recordings.popitem(last=False)
            self.recordings.move_to_end(key)
            graph, inputs, outputs = self.recordings[key]
            _copy(inputs, arguments)
            graph.replay()
            return tuple(output.clone() for output in outputs)

    def _record(self, arguments: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]:
        inputs = [argument.to(self.device).clone(memory_format=torch.contiguous_format) for argument in arguments]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.function(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            outputs = self.function(*inputs)
        return graph, inputs, tuple(outputs)


def _copy(places: list[Tensor], values: tuple[Tensor, ...]) -> None:
    """Copy values to their places; those that are on the device already in one kernel for all of a type."""
    groups: dict[tuple, tuple[list[Tensor], list[Tensor]]] = {}
    for place, value in zip(places, values, strict=True):
        group = groups.setdefault((value.device, value.dtype), ([], []))
        group[0].append(place)
        group[1].append(value)
    for group in groups.values():
        torch._foreach_copy_(*group, non_blocking=True)
