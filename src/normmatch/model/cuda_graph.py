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

    Results are copies, so that the next call does not change them. `function` must neither wait for the device nor
    depend on anything but its arguments and weights that stay where they are.
    """

    def __init__(self, function: TensorFunction) -> None:
        self.function = function
        self.recordings: OrderedDict[tuple, tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]] = (
            OrderedDict()
        )
        self.lock = threading.Lock()
        self.pool: Any = None

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        key = tuple((a.shape, a.dtype) for a in arguments)
        with self.lock, torch.cuda.device(arguments[0].device):
            if key not in self.recordings:
                self.recordings[key] = self._record(arguments)
                if len(self.recordings) > KEPT:
                    self.recordings.popitem(last=False)
            self.recordings.move_to_end(key)
            graph, inputs, outputs = self.recordings[key]
            for place, value in zip(inputs, arguments, strict=True):
                place.copy_(value, non_blocking=True)
            graph.replay()
            return tuple(output.clone() for output in outputs)

    def _record(self, arguments: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, ...]]:
        inputs = [argument.clone(memory_format=torch.contiguous_format) for argument in arguments]
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
