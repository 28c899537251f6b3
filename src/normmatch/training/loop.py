"""Training on one page: the state of a run, one step, and the loop around it.

    batch -> augment -> describe -> losses -> backward -> clip -> optimise -> normalise -> average

Everything random is a function of (seed, step): the batch is (see `TrainBatches`), and the generators are seeded anew
at every step. So a run that is stopped, even killed, and resumed ends with the same weights as one that never stopped.
How a run starts and ends is in `run.py`.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from normmatch.config import TrainConfig
from normmatch.model.compiled.cuda_graph import RecordedStep
from normmatch.model.network import NormMatch
from normmatch.training import checkpoint
from normmatch.training.batches import ImagesOnDevice, batch_images
from normmatch.training.distributed import REASONS, Stop, largest, mean, on_first
from normmatch.training.frozen import FrozenFeatures, describe_by_size
from normmatch.training.loader import Shares, TrainData, check_finite, make_loader, prefetch
from normmatch.training.log import Clock, TrainingLog
from normmatch.training.losses import MatchingLoss, accuracy
from normmatch.training.optimizer import averaged, move_average, set_rates
from normmatch.training.validation import Validation, validate

Batch = dict[str, Tensor]
Step = Callable[[Batch], Batch]


class NetworkWithLosses(nn.Module):
    """What is distributed: the inputs of a step in, its losses and accuracy out."""

    def __init__(self, model: NormMatch, loss: MatchingLoss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        points = {key: value for key, value in inputs.items() if not key.startswith(("image", "features"))}
        if "features0" in inputs and points["mask0"].device.type == "cpu":  # elsewhere sorting by size would wait
            output = describe_by_size(self.model.head, inputs["features0"], inputs["features1"], points)
        else:
            features = self.model.features(inputs)
            output = self.model.head.describe(*features, points)
            if "places0" in points:
                output |= self.model.describe_places(*features, points)
        return {**self.loss(output, points), "accuracy": accuracy(output["similarity"], points)}


@dataclass
class State:
    """A run at one of its steps. It is saved and loaded as one."""

    config: TrainConfig
    fabric: Fabric
    module: nn.Module  # NetworkWithLosses, as Fabric wraps it
    model: NormMatch  # the network in it
    average: NormMatch  # the running average of its weights, which is what is evaluated and kept
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0  # of training, over all resumptions

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds: all that the rest of the run depends on."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "min_score": self.model.config.min_score,
            "config": checkpoint.as_json(self.config),
            "module": self.module.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],  # rates and the like follow from the settings
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.step, self.seconds = saved["step"], saved["seconds"]
        self.module.load_state_dict(saved["module"])
        self.average.load_state_dict(saved["average"])
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": saved["optimizer"]})


def augment(batch: Batch, source: ImagesOnDevice | FrozenFeatures | None) -> dict[str, Any]:
    """What the network sees of a batch: its augmented images, or what a frozen backbone has seen in them."""
    points = {key: value for key, value in batch.items() if not key.startswith(("augment_", "index", "image"))}
    if isinstance(source, FrozenFeatures):
        return points | {f"features{i}": source.read(batch[f"index{i}"], batch[f"name_ids{i}"]) for i in "01"}
    pairs = len(batch["mask0"])  # behind them may be images that only lend pixels
    image0, image1 = batch_images(batch, source)  # (B, 3, S, S) each
    return points | {"image0": image0[:pairs], "image1": image1[:pairs]}


def step(state: State, batch: Batch, source: ImagesOnDevice | FrozenFeatures | None = None) -> Batch:
    """One training step, whole: its losses and accuracy. Nothing in it waits for the device."""
    config = state.config
    inputs = augment(batch, source)
    state.optimizer.zero_grad()
    logs = state.module(inputs)  # describe the keypoints of both images, then the losses
    state.fabric.backward(logs["loss"])
    if config.clip:
        logs["gradient"] = nn.utils.clip_grad_norm_(state.model.heads(), config.clip)
    state.optimizer.step()
    state.model.normalize_weights()  # back on the sphere
    move_average(state.average, state.model, 1 - config.average if state.step else 1.0)
    return {key: value.detach() for key, value in logs.items()}


def fit(state: State, data: TrainData, validation: Validation | None) -> int:
    """Train up to the last step, or until there is a reason to stop: returns that reason, or 0 at the end."""
    config, fabric, reason = state.config, state.fabric, 0
    run_step = recorded(partial(step, state, source=data.source), state)
    shares = Shares(data.batches, fabric.global_rank, fabric.world_size, data.images)
    loader = make_loader(shares, config, state.step, fabric.device)
    log = TrainingLog(config.out, state.step, state.seconds, fabric.is_global_zero, config.tensorboard)
    with closing(log), Stop(config.minutes) as stop, log.bar(config.steps, state.step):
        if validation and validation_due(state):
            validate_once(state, validation, log)  # if it was killed in the validation
        clock, losses = Clock(state.seconds), list[Tensor]()  # losses not looked at yet: that waits for the device
        with closing(prefetch(loader, fabric.device)) as batches:
            for batch in batches:
                torch.manual_seed(config.seed * 1_000_003 + state.step + 7_919 * fabric.global_rank)
                set_rates(state.optimizer, state.step, config)
                logs = run_step(batch)
                losses.append(logs["loss"].clone())  # the next step may overwrite it
                state.step += 1
                log.advance(state.step)
                last = state.step == config.steps
                if state.step % config.log_every == 0 or last:
                    settle(state, losses, clock)
                    values = mean(fabric, torch.stack(list(logs.values()))).tolist()
                    log.write_step(state.step, state.seconds, config.batch_size, dict(zip(logs, values, strict=True)))
                reason = reason_to_stop(state, stop)
                if state.step % config.save_every == 0 or last or reason:
                    settle(state, losses, clock)
                    save(state)
                if reason:
                    log.say(f"{REASONS[reason]} at step {state.step}; --resume continues")
                    break
                if validation and validation_due(state):
                    settle(state, losses, clock)
                    with clock.paused():
                        validate_once(state, validation, log)
    return reason


def settle(state: State, losses: list[Tensor], clock: Clock) -> None:
    """Wait for the device to finish the steps so far: their losses must be finite, and only now is their time known."""
    check_finite(losses, state.step, state.fabric)
    state.seconds = clock.seconds


def recorded(plain: Step, state: State) -> Step:
    """The step as one launch of a CUDA graph, where one GPU does all of it and it is compiled."""
    one_gpu = state.fabric.device.type == "cuda" and state.fabric.world_size == 1
    return RecordedStep(plain) if one_gpu and state.config.compile else plain


def reason_to_stop(state: State, stop: Stop) -> int:
    """Why to stop now, or 0. Processes agree about it, for which they wait for their GPUs: not every step."""
    several_gpus = state.fabric.world_size > 1 and state.fabric.device.type == "cuda"
    if several_gpus and state.step % state.config.log_every:
        return 0
    return largest(state.fabric, stop.reason())


def save(state: State) -> None:
    """Write a checkpoint."""
    path = state.config.out / f"step-{state.step:07d}.safetensors"
    on_first(state.fabric, lambda: checkpoint.save(path, state.state_dict(), state.config.keep))


def validation_due(state: State) -> bool:
    """Every so many steps, and after the last one."""
    last = state.step == state.config.steps
    return last or (state.step > 0 and state.step % state.config.validate_every == 0)


def validate_once(state: State, validation: Validation, log: TrainingLog) -> None:
    """Validate, unless the log of a resumed run has it already."""

    def work() -> None:
        if not log.validated(state.step):
            predictions = validate(averaged(state.average), validation, state.config)
            log.write_validation(state.step, state.seconds, validation.split, predictions)

    on_first(state.fabric, work)
