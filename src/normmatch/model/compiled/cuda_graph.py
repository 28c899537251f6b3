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
            recording = self.recordings.pop(key, None) or self._record(arguments)
            self.recordings[key] = recording  # the last that was used
            if len(self.recordings) > KEPT:
                self.recordings.popitem(last=False)
            recording.inputs.fill(arguments)
            recording.graph.replay()
            results = tuple(map(torch.empty_like, recording.outputs))
            _copy(results, recording.outputs)
            return results

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
        on_cpu = [i for i, a in enumerate(arguments) if _packable(a)]
        packed = [arguments[i] for i in on_cpu]
        size = sum(map(_room, packed))
        self.parcel = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self.arrived = torch.empty(size, dtype=torch.uint8, device=device)
        self.packed = list(zip(on_cpu, (part.numpy() for part in _unpack(self.parcel, packed)), strict=True))
        unpacked = dict(zip(on_cpu, _unpack(self.arrived, packed), strict=True))
        self.places = [
            unpacked[i] if i in unpacked else torch.empty(a.shape, dtype=a.dtype, device=device)
            for i, a in enumerate(arguments)
        ]
        self.others = [i for i in range(len(arguments)) if i not in unpacked]
        self.sent = torch.cuda.Event()

    def fill(self, arguments: Sequence[Tensor]) -> None:
        """Copy the arguments to their places."""
        if self.packed:
            self.sent.synchronize()  # the last parcel must have left before it is packed anew
            for i, array in self.packed:
                np.copyto(array, arguments[i].numpy())  # torch would share it among threads, which wait on busy cores
            self.arrived.copy_(self.parcel, non_blocking=True)
            self.sent.record()
        _copy([self.places[i] for i in self.others], [arguments[i] for i in self.others])


class Recording(NamedTuple):
    """A CUDA graph, where it reads and where it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    outputs: tuple[Tensor, ...]


def _copy(places: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy values to their places, on the device in one kernel for all of a type: the starts are what takes time."""
    groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for place, value in zip(places, values, strict=True):
        group = groups.setdefault(value.dtype, ([], []))
        group[0].append(place)
        group[1].append(value)
    for group in groups.values():
        torch._foreach_copy_(*group, non_blocking=True)


def _packable(tensor: Tensor) -> bool:
    """Whether it travels in the parcel: numpy, which packs it, has no bfloat16."""
    return tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16


def _room(tensor: Tensor) -> int:
    return -(-tensor.nbytes // ALIGNED) * ALIGNED


def _unpack(parcel: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a parcel (bytes,), one behind the other, as tensors of the given shapes and types."""
    starts = accumulate(map(_room, like), initial=0)
    return [parcel[i : i + t.nbytes].view(t.dtype).view(t.shape) for i, t in zip(starts, like, strict=False)]
