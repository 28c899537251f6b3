"""One optimiser step: a batch on the device in, new weights and their running average out. Nothing in it waits."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from normmatch.config import TrainConfig
from normmatch.errors import first_line
from normmatch.model.network import NormMatch
from normmatch.training.optimizer import make_optimizer
from normmatch.training.step import TrainStep

Batch = dict[str, Tensor]
PLAIN_STEPS = 3  # before the recording: compilers compile, libraries choose their kernels


class Update:
    """Network, optimiser and average of a run; called with a batch and the share of the peak rate, it does a step.

    Args:
        inputs: what `TrainStep` is called with, made of a batch.
    """

    def __init__(
        self, fabric: Fabric, step: TrainStep, config: TrainConfig, inputs: Callable[[Batch], dict[str, Any]]
    ) -> None:
        self.fabric, self.model, self.config, self.inputs = fabric, step.model, config, inputs
        cuda = fabric.device.type == "cuda"
        optimizer = make_optimizer(step, config, fused=cuda)
        self.head_parameters = [p for p in self.model.head.parameters() if p.requires_grad]
        if config.compile:
            step.compile()
        self.module, self.optimizer = fabric.setup(step, optimizer)
        self.module.train()
        if not config.backbone_lr:
            self.model.backbone.eval()  # a frozen batch norm keeps its statistics too
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.rates = [torch.zeros((), device=fabric.device) if cuda else None for _ in self.optimizer.param_groups]
        self.begun = False
        recorded = cuda and config.compile and fabric.world_size == 1
        self._run: Callable[[Batch], Batch] = Recorded(self._step) if recorded else self._step

    def __call__(self, batch: Batch, rate: float) -> Batch:
        """Losses and accuracy, which the next call may overwrite."""
        for group, place in zip(self.optimizer.param_groups, self.rates, strict=True):
            now = group["peak"] * rate
            group["lr"] = now if place is None else place.fill_(now)  # a recording reads the tensor
        logs = self._run(batch)
        self.begun = True
        return logs

    def _step(self, batch: Batch) -> Batch:
        self.optimizer.zero_grad()
        logs = self.module(self.inputs(batch))
        self.fabric.backward(logs["loss"])
        if self.config.clip:
            logs["gradient"] = nn.utils.clip_grad_norm_(self.head_parameters, self.config.clip)
        self.optimizer.step()
        self.model.normalize_weights()
        mix_in(self.average, self.model, 1 - self.config.average if self.begun else 1.0)
        return {key: value.detach() for key, value in logs.items()}

    def averaged(self) -> NormMatch:
        """A copy of the averaged network, its matrices back on the sphere; the running average stays as it is."""
        model = copy.deepcopy(self.average)
        model.normalize_weights()
        return model.eval()

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds. Rates and the like follow from the settings."""
        return {
            "module": self.module.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state["optimizer"]})
        self.begun = True


@torch.no_grad()
def mix_in(average: nn.Module, model: nn.Module, share: float) -> None:
    """Move the parameters of an average towards a model's by a share of the way; buffers are the model's."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), share)
    if buffers := list(average.buffers()):
        torch._foreach_copy_(buffers, list(model.buffers()))


class Recorded:
    """A step on a GPU as one launch: a CUDA graph of its kernels, recorded after a few plain steps.

    A step is over a thousand small kernels, which Python launches more slowly than the GPU runs them. Batches must
    have one shape. Where recording fails it is said once, and all steps are plain.
    """

    def __init__(self, step: Callable[[Batch], Batch]) -> None:
        self.step, self.plain_steps = step, 0
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Batch = {}
        self.logs: Batch = {}
        self.possible = True

    def __call__(self, batch: Batch) -> Batch:
        if self.possible and self.plain_steps >= PLAIN_STEPS and self.graph is None:
            self._record(batch)
        if self.graph is None:
            return self._plain(batch)
        torch._foreach_copy_(list(self.batch.values()), [batch[key] for key in self.batch], non_blocking=True)
        self.graph.replay()
        return self.logs

    def _plain(self, batch: Batch) -> Batch:
        """On the stream that is recorded: what libraries keep for a stream is there already then."""
        self.plain_steps += 1
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            logs = self.step(batch)
        torch.cuda.current_stream().wait_stream(self.stream)
        return logs

    def _record(self, batch: Batch) -> None:
        self.batch = {key: value.clone() for key, value in batch.items()}
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self.logs = self.step(self.batch)
            self.graph = graph
        except RuntimeError as error:  # memory, mostly: a recording keeps what it needs to itself
            self.possible = False
            _renew_generator()
            warnings.warn(f"training steps cannot be recorded and run slower: {first_line(error)}", stacklevel=2)


def _renew_generator() -> None:
    """A recording that fails leaves torch's random generator in the middle of it; give it a state of its own again."""
    device = torch.cuda.current_device()
    fresh = torch.Generator(f"cuda:{device}").manual_seed(torch.initial_seed())
    torch.cuda.default_generators[device].graphsafe_set_state(fresh.graphsafe_get_state())
