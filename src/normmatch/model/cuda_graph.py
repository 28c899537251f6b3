"""CUDA graphs: a function's kernels recorded once and launched as one, where launching them one by one is the limit."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

TensorFunction = Callable[..., tuple[Tensor, ...]]
WARM_UP = 3  # runs before the recording: compilers compile, libraries choose their kernels
KEPT = 64  # recordings; they share one pool of memory
ALIGNED = 256  # bytes, as CUDA's own allocations are


class CudaGraphs:
    """A function of tensors on a GPU, recorded for each combination of shapes; call it like the function itself.

    Arguments may lie elsewhere: they are copied to where the recording reads them. Results are copies, so that the next
    call does not change them. `function` must neither wait for the device nor depend on anything but its arguments and
    weights that stay where they are.
    """

    def __init__(self, function: TensorFunction, device: torch.device) -> None:
        self.function, self.device = function, device
        self.recordings: OrderedDict[tuple, Recording] = OrderedDict()
        self.lock = threading.Lock()
        self.pool: Any = None

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        key = tuple((a.shape, a.dtype, a.device) for a in arguments)
        with self.lock, torch.cuda.device(self.device):
            if key not in self.recordings:
                self.recordings[key] = self._record(arguments)
                if len(self.recordings) > KEPT:
                    self.recordings.popitem(last=False)
            self.recordings.move_to_end(key)
            graph, inputs, outputs = self.recordings[key]
            inputs.fill(arguments)
            graph.replay()
            return tuple(output.clone() for output in outputs)

    def _record(self, arguments: tuple[Tensor, ...]) -> "Recording":
        inputs = Inputs(arguments, self.device)
        inputs.fill(arguments)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.function(*inputs.places)
        torch.cuda.current_stream().wait_stream(stream)
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            outputs = self.function(*inputs.places)
        return Recording(graph, inputs, tuple(outputs))


class Inputs:
    """Where a recording reads its arguments. Those on the CPU travel in one parcel: a copy each takes longer."""

    def __init__(self, arguments: Sequence[Tensor], device: torch.device) -> None:
        on_cpu = [a for a in arguments if _packable(a)]
        size = sum(map(_room, on_cpu))
        self.parcel = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self.arrived = torch.empty(size, dtype=torch.uint8, device=device)
        self.packed = [part.numpy() for part in _unpack(self.parcel, on_cpu)]
        unpacked = iter(_unpack(self.arrived, on_cpu))
        self.places = [
            next(unpacked) if _packable(a) else torch.empty(a.shape, dtype=a.dtype, device=device) for a in arguments
        ]
        self.sent = torch.cuda.Event()

    def fill(self, arguments: Sequence[Tensor]) -> None:
        """Copy the arguments to their places; those that are on the device already in one kernel for all of a type."""
        on_cpu = [a.numpy() for a in arguments if _packable(a)]
        if on_cpu:
            self.sent.synchronize()  # the last parcel must have left before it is packed anew
            for packed, array in zip(self.packed, on_cpu, strict=True):
                np.copyto(packed, array)  # torch would share it among threads, which wait where the cores are busy
            self.arrived.copy_(self.parcel, non_blocking=True)
            self.sent.record()
        groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for place, value in zip(self.places, arguments, strict=True):
            if not _packable(value):
                places, values = groups.setdefault(value.dtype, ([], []))
                places.append(place)
                values.append(value)
        for group in groups.values():
            torch._foreach_copy_(*group, non_blocking=True)


class Recording(NamedTuple):
    """A CUDA graph, where it reads and where it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    outputs: tuple[Tensor, ...]


def _packable(tensor: Tensor) -> bool:
    """Whether it travels in the parcel: numpy, which packs it, has no bfloat16."""
    return tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16


def _room(tensor: Tensor) -> int:
    return -(-tensor.nbytes // ALIGNED) * ALIGNED


def _unpack(parcel: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a parcel (bytes,), one behind the other, as tensors of the given shapes and types."""
    starts = accumulate(map(_room, like), initial=0)
    return [parcel[i : i + t.nbytes].view(t.dtype).view(t.shape) for i, t in zip(starts, like, strict=False)]
