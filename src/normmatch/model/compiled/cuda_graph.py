"""CUDA graphs: a function's kernels recorded once and launched as one, where launching them one by one is the limit.

`CudaGraphs` is for inference: any shapes, results that stay. `RecordedStep` is for training: results that the next step
overwrites. Both are a `Recording` and what is put before and behind it.
"""

import threading
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normmatch.errors import first_line

TensorFunction = Callable[..., tuple[Tensor, ...]]
Batch = dict[str, Tensor]
WARM_UP = 3  # runs before the recording: compilers compile, libraries choose their kernels
KEPT = 64  # recordings; they share one pool of memory
ALIGNED = 256  # bytes, as CUDA's own allocations are


class Recording:
    """The kernels of a function without arguments, and what it returned: the places that each replay writes to anew.

    The function must neither wait for the device nor depend on anything but tensors that stay where they are. It has
    run before, with `run_beside`, so that compilers and libraries are done with their preparations.
    """

    def __init__(self, function: Callable[[], Any], stream: torch.cuda.Stream | None = None, pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self.outputs = function()


def run_beside(stream: torch.cuda.Stream, function: Callable[[], Any]) -> Any:
    """Run a function on another stream: after what was launched on this one, and before what will be."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = function()
    torch.cuda.current_stream().wait_stream(stream)
    return result


class CudaGraphs:
    """A function of tensors on a GPU, recorded for each combination of shapes; call it like the function itself.

    Arguments may lie elsewhere: they are copied to where the recording reads them. Results are copies, so that the next
    call does not change them.
    """

    def __init__(self, function: TensorFunction, device: torch.device) -> None:
        self.function, self.device = function, device
        self.recordings: OrderedDict[tuple, tuple[Inputs, Recording]] = OrderedDict()
        self.lock = threading.Lock()
        self.pool: Any = None

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        key = tuple((a.shape, a.dtype, a.device) for a in arguments)
        with self.lock, torch.cuda.device(self.device):
            inputs, recording = self.recordings.pop(key) if key in self.recordings else self._record(arguments)
            self.recordings[key] = inputs, recording  # the last that was used
            if len(self.recordings) > KEPT:
                self.recordings.popitem(last=False)
            inputs.fill(arguments)
            recording.graph.replay()
            results = tuple(map(torch.empty_like, recording.outputs))
            _copy(results, recording.outputs)
            return results

    def _record(self, arguments: tuple[Tensor, ...]) -> "tuple[Inputs, Recording]":
        inputs = Inputs(arguments, self.device)
        inputs.fill(arguments)

        def run() -> tuple[Tensor, ...]:
            return tuple(self.function(*inputs.places))

        stream = torch.cuda.Stream()
        for _ in range(WARM_UP):
            run_beside(stream, run)
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        return inputs, Recording(run, pool=self.pool)


class RecordedStep:
    """A training step on a GPU as one launch, recorded after a few plain steps, for each combination of shapes.

    A step is over a thousand small kernels, which Python launches more slowly than the GPU runs them. What a step
    returns, the next overwrites. Where recording fails it is said once, and all steps are plain from there.
    """

    def __init__(self, step: Callable[[Batch], Batch]) -> None:
        self.step = step
        self.stream = torch.cuda.Stream()
        self.plain_steps: Counter[tuple] = Counter()  # by shapes
        self.recordings: dict[tuple, tuple[Batch, Recording]] = {}  # with the batch that each reads
        self.possible = True

    def __call__(self, batch: Batch) -> Batch:
        key = tuple(value.shape for value in batch.values())
        if self.possible and self.plain_steps[key] >= WARM_UP and key not in self.recordings:
            self._record(key, batch)
        if key not in self.recordings:
            self.plain_steps[key] += 1
            return run_beside(self.stream, lambda: self.step(batch))
        place, recording = self.recordings[key]
        _copy(list(place.values()), [batch[name] for name in place])
        recording.graph.replay()
        return recording.outputs

    def _record(self, key: tuple, batch: Batch) -> None:
        place = {name: value.clone() for name, value in batch.items()}
        try:
            self.recordings[key] = place, Recording(lambda: self.step(place), self.stream)
        except RuntimeError as error:  # memory, mostly: a recording keeps what it needs to itself
            self.possible = False
            _renew_generator()
            warnings.warn(f"training steps cannot be recorded and run slower: {first_line(error)}", stacklevel=3)


def _renew_generator() -> None:
    """A recording that fails leaves torch's random generator in the middle of it; give it a state of its own again."""
    device = torch.cuda.current_device()
    fresh = torch.Generator(f"cuda:{device}").manual_seed(torch.initial_seed())
    torch.cuda.default_generators[device].graphsafe_set_state(fresh.graphsafe_get_state())


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
