"""How fast a network trains: whole steps on a made-up batch that lies on the device; and how fast batches are made."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from normmatch.bench.timing import Row, measure
from normmatch.config import PRESETS, TrainConfig
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError, DeviceError
from normmatch.model.network import NormMatch, equal_points
from normmatch.training.distributed import make_fabric
from normmatch.training.loader import Shares, make_batches, make_loader
from normmatch.training.loop import recorded, step
from normmatch.training.optimizer import set_rates
from normmatch.training.run import make_state


def bench_train(
    preset: str, device: torch.device, *, batch: int = 64, points: int = 24, compile: bool = True, seconds: float = 5.0
) -> Row:
    """Pairs per second of whole steps: losses, gradients, clipping, optimiser, renormalisation, average; no loader."""
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
        timing = measure(_make_step(config, points), device, seconds)
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"{device} has too little memory for {batch} pairs per step; expected fewer") from error
    variant = f"{'bfloat16' if device.type == 'cuda' else 'float32'}{', compiled' if compile else ''}"
    return timing.row(preset, variant, "train", points, batch)


def _make_step(config: TrainConfig, points: int) -> Callable[[], Tensor]:
    """A training step as a run does it, images in bytes like those of a dataset."""
    fabric = make_fabric(config)
    names = torch.zeros(points, dtype=torch.long)  # as many as there are points, all of one class
    state = make_state(config, fabric, NormMatch(config.model), names)
    rng, size, batch = torch.Generator().manual_seed(0), config.model.image_size, config.batch_size
    data = equal_points({f"keypoints{i}": torch.rand(batch, points, 2, generator=rng) * size for i in "01"})
    shape = (batch, 3, size, size)
    data |= {f"image{i}": torch.randint(256, shape, generator=rng, dtype=torch.uint8) for i in "01"}
    numbers = torch.arange(points).repeat(batch, 1)  # (B, N): each point is its own name and partner
    data |= {"gt_matches0": numbers, "name_ids0": numbers, "name_ids1": numbers}
    data = {key: value.to(fabric.device) for key, value in data.items()}
    set_rates(state.optimizer, config.warmup, config)
    run_step = recorded(partial(step, state), state)
    return lambda: run_step(data)["loss"]


def bench_data(split: PreparedSplit, config: TrainConfig, seconds: float = 10.0, with_images: bool = False) -> float:
    """Pairs per second of the loader with the settings of a training: sampling, augmentation, Delaunay, transport.

    The first batches, while the workers start, are not counted; `with_images` is how it trains where the training
    crops do not fit into the memory of the device.
    """
    if not 0 < seconds < 3600:
        raise ConfigError(f"seconds is {seconds}; expected more than 0, and up to 3600.")
    shares = Shares(make_batches(config, split), 0, 1, split if with_images else None)
    loader = make_loader(shares, config, 0, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    warmup, count, start, end = 4 * max(loader.num_workers, 1), 0, 0.0, 0.0
    for count, _ in enumerate(loader):
        end = time.perf_counter()
        if count == warmup:
            start = end
        elif count > warmup and end - start > seconds:
            break
    return (count - warmup) * config.batch_size / (end - start)
