"""How fast a network trains: whole steps on a made-up batch that lies on the device, and how busy the GPU is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from normmatch.bench.inputs import make_pairs
from normmatch.bench.timing import Row, measure, peak_memory
from normmatch.config import PRESETS, TrainConfig
from normmatch.errors import ConfigError, DeviceError
from normmatch.model.network import NormMatch
from normmatch.training.distributed import make_fabric
from normmatch.training.step import TrainStep
from normmatch.training.update import Update

PROFILED = 5  # steps


def bench_train(
    preset: str, device: torch.device, *, batch: int = 64, points: int = 24, compile: bool = True, seconds: float = 5.0
) -> Row:
    """Pairs a second of whole steps: losses, gradients, clipping, optimiser, renormalisation, average; no loader."""
    if preset not in PRESETS:
        raise ConfigError(f"the preset is {preset!r}, expected one of {', '.join(PRESETS)}")
    config = TrainConfig(
        out=Path(),
        model=replace(PRESETS[preset], backbone_weights="random"),
        batch_size=batch,
        compile=compile,
        accelerator=device.type,  # type: ignore[arg-type]
    )
    try:
        step = _make_step(config, points)
        timing, memory = measure(step, device, seconds), peak_memory(step, device)
        busy = _device_ms(step) / timing.median if device.type == "cuda" else None
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"{device} has too little memory for {batch} pairs a step; expected fewer") from error
    variant = f"{'bfloat16' if device.type == 'cuda' else 'float32'}{', compiled' if compile else ''}"
    return {"preset": preset, "variant": variant, **timing.row("train", points, batch, memory), "gpu_busy": busy}


def _make_step(config: TrainConfig, points: int) -> Any:
    """A training step as `Trainer` does it."""
    fabric = make_fabric(config)
    names = torch.zeros(points, dtype=torch.long)  # as many as there are points, all of one class
    update = Update(fabric, TrainStep(NormMatch(config.model), config.loss, names), config, lambda batch: batch)
    data = make_pairs(update.model, points, config.batch_size)
    numbers = torch.arange(points).repeat(config.batch_size, 1)  # (B, N): each point is its own name and partner
    data |= {"matches0": numbers, "names0": numbers, "names1": numbers}
    data = {key: value.to(fabric.device) for key, value in data.items()}
    return lambda: update(data, 1.0)["loss"]


def _device_ms(step: Any) -> float:
    """Milliseconds of kernels in a step. The profiler slows Python down, but not the kernels."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profiler.key_averages()) / 1000 / PROFILED
