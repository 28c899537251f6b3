"""How many augmented training pairs a second the loader delivers, measured the way training uses it."""

import time

from torch import Tensor
from torch.utils.data import DataLoader

from normmatch.config import AugmentConfig
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError
from normmatch.training.batches import TrainBatches


def bench_data(
    split: PreparedSplit,
    batch_size: int = 64,
    workers: int = 2,
    seconds: float = 10.0,
    augment: AugmentConfig | None = None,
    with_images: bool = False,
) -> float:
    """Pairs per second of the loader as training uses it: sampling, augmentation plan, Delaunay, collate, transport.

    The first batches, while the workers start, are not counted.
    """
    if batch_size < 1 or workers < 0 or not 0 < seconds < 3600:
        raise ConfigError(
            f"batch_size {batch_size}, workers {workers}, seconds {seconds}; expected 1 or more, 0 or more, up to 3600"
        )
    batches = TrainBatches(split, batch_size, seed=0, augment=augment or AugmentConfig(), with_images=with_images)
    loader: DataLoader[dict[str, Tensor]] = DataLoader(
        batches,
        batch_size=None,
        sampler=range(10**9),
        num_workers=workers,
        persistent_workers=workers > 0,
        prefetch_factor=4 if workers else None,
    )
    warmup, count, start = 4 * max(workers, 1), 0, 0.0
    for count, _ in enumerate(loader):
        if count == warmup:
            start = time.perf_counter()
        elif count > warmup and time.perf_counter() - start > seconds:
            break
    return (count - warmup) * batch_size / (time.perf_counter() - start)
