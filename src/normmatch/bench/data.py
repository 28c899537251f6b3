"""How many augmented training pairs a second the loader of a training delivers."""

import time

import torch

from normmatch.config import TrainConfig
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError
from normmatch.training.batches import TrainBatches
from normmatch.training.loader import ERROR, Shares, make_loader


def bench_data(split: PreparedSplit, config: TrainConfig, seconds: float = 10.0, with_images: bool = False) -> float:
    """Pairs per second of the loader with the settings of a training: sampling, augmentation, Delaunay, transport.

    The first batches, while the workers start, are not counted; `with_images` is how it trains where the training
    crops do not fit into the memory of the device.
    """
    if not 0 < seconds < 3600:
        raise ConfigError(f"seconds is {seconds}; expected more than 0, and up to 3600.")
    most = max(len(item.names) for item in split.objects)
    batches = TrainBatches(
        split,
        config.batch_size,
        config.seed,
        config.data.sampling,
        config.augment,
        min_shared=get_protocol(config.data.protocol).fewest_shared,
        points=-(-most // 8) * 8,
    )
    shares = Shares(batches, 0, 1, split if with_images else None)
    loader = make_loader(shares, config, 0, pinned=torch.cuda.is_available())
    warmup, count, start, end = 4 * max(loader.num_workers, 1), 0, 0.0, 0.0
    for count, batch in enumerate(loader):
        if ERROR in batch:
            raise ConfigError(batch[ERROR])
        end = time.perf_counter()
        if count == warmup:
            start = end
        elif count > warmup and end - start > seconds:
            break
    return (count - warmup) * config.batch_size / (end - start)
