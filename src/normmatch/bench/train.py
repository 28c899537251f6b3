"""How fast a network trains: whole steps on a made-up batch that lies on the device, and how busy the GPU is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.profiler import ProfilerActivity, profile

from normmatch.bench.scene import make_pairs
from normmatch.bench.timing import measure, peak_memory
from normmatch.config import PRESETS, TrainConfig
from normmatch.errors import ConfigError, DeviceError
from normmatch.model.matcher import NormMatch
from normmatch.training.optimizer import make_optimizer
from normmatch.training.step import TrainStep

PROFILED = 5  # steps


def bench_train(
    preset: str, device: torch.device, *, batch: int = 64, points: int = 24, compile: bool = True, seconds: float = 5.0
) -> dict[str, Any]:
    """Pairs a second of forward, backward, clipping, optimiser, renormalisation and averaging, without the loader."""
    if preset not in PRESETS:
        raise ConfigError(f"the preset is {preset!r}, expected one of {', '.join(PRESETS)}")
    config = TrainConfig(out=Path(), model=replace(PRESETS[preset], backbone_weights="random"), batch_size=batch)
    try:
        step = _make_step(config, device, points, compile)
        timing, memory = measure(step, device, seconds), peak_memory(step, device)
        busy = _device_ms(step) / timing.median if device.type == "cuda" else None
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"{device} has too little memory for {batch} pairs a step; expected fewer") from error
    return {
        "preset": preset,
        "what": "train",
        "variant": f"{'bfloat16' if device.type == 'cuda' else 'float32'}{', compiled' if compile else ''}",
        "points": points,
        "batch": batch,
        "ms": timing.median,
        "low": timing.low,
        "high": timing.high,
        "runs": timing.runs,
        "pairs_per_second": 1000 * batch / timing.median,
        "memory_mb": memory,
        "gpu_busy": busy,
    }


def _make_step(config: TrainConfig, device: torch.device, points: int, compile: bool) -> Any:
    """A training step as `Trainer` does it."""
    module = TrainStep(NormMatch(config.model), config.loss).to(device).train()
    optimizer = make_optimizer(module, config, fused=device.type == "cuda")
    average = AveragedModel(module.model, multi_avg_fn=get_ema_multi_avg_fn(config.average))
    head = [p for p in module.model.head.parameters() if p.requires_grad]
    data = {key: value.to(device) for key, value in make_pairs(module.model, points, config.batch_size).items()}
    data["matches0"] = torch.arange(points, device=device).repeat(config.batch_size, 1)  # (B, N)
    if compile:
        module.compile()

    def step() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = module(data)["loss"]
        loss.backward()
        nn.utils.clip_grad_norm_(head, config.clip)
        optimizer.step()
        optimizer.zero_grad()
        module.model.normalize_weights()
        average.update_parameters(module.model)
        return loss.detach()

    return step


def _device_ms(step: Any) -> float:
    """Milliseconds of kernels in a step. The profiler slows Python down, but not the kernels."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profiler.key_averages()) / 1000 / PROFILED
