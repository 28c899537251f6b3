"""Batches on their way to a device: each process takes its share of them, and the next one travels ahead."""

import math
import os
import signal
from collections.abc import Generator
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from normmatch.config import TrainConfig
from normmatch.datasets.batches import read_images
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError
from normmatch.training.batches import ImagesOnDevice, TrainBatches
from normmatch.training.distributed import mean
from normmatch.training.frozen import FrozenFeatures
from normmatch.training.losses import count_points


class Shares(Dataset[dict[str, Tensor]]):
    """The share of process `rank` of `world` in every batch; with `images`, the pixels of that split come along."""

    def __init__(self, batches: TrainBatches, rank: int, world: int, images: PreparedSplit | None) -> None:
        self.batches, self.rank, self.world, self.images = batches, rank, world, images

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        batch = take_share(self.batches[step], self.rank, self.world)
        if self.images is not None:
            batch |= {f"image{i}": read_images(self.images, batch[f"index{i}"].numpy()) for i in "01"}
        return batch


@dataclass(frozen=True)
class TrainData:
    """Where batches come from, and their pixels: in the batches, or on the device before the first one.

    With frozen features there are no pixels.
    """

    batches: TrainBatches
    images: PreparedSplit | None = None  # whose pixels come with the batches
    source: ImagesOnDevice | FrozenFeatures | None = None  # what lies on the device


def make_data(config: TrainConfig, split: PreparedSplit, frozen: FrozenFeatures | None, fabric: Fabric) -> TrainData:
    """The training batches of a split, and where their images come from."""
    batches = make_batches(config, split, frozen)
    source = frozen or images_on_device(split, fabric.device)
    return TrainData(batches, None if source else split, source)


def make_batches(config: TrainConfig, split: PreparedSplit, frozen: FrozenFeatures | None = None) -> TrainBatches:
    """The training batches of a split, or of what a frozen backbone has seen in it."""
    most = max(len(item.names) for item in split.objects)
    return TrainBatches(
        frozen.split if frozen else split,
        config.batch_size,
        config.seed,
        config.data.sampling,
        None if frozen else config.augment,
        min_shared=get_protocol(config.data.protocol).fewest_shared,
        points=-(-most // 8) * 8,  # one shape for all batches, so that nothing is compiled twice
        table=frozen.table if frozen else None,
        shares=dict(zip(config.data.names, config.data.shares, strict=True)) if config.data.shares else None,
        places=config.model.locate_dim > 0,
    )


def images_on_device(split: PreparedSplit, device: torch.device) -> ImagesOnDevice | None:
    """All training crops in a GPU's memory, where they take at most half of what is free; else batches bring them."""
    if device.type != "cuda" or math.prod(split.images.shape) > torch.cuda.mem_get_info(device)[0] / 2:
        return None
    return ImagesOnDevice(split.images, device)


def take_share(batch: dict[str, Tensor], rank: int, world: int) -> dict[str, Tensor]:
    """The pairs of a batch that a process works on, and over how many keypoints of the whole batch its means are.

    Images may be blended with images of other processes' pairs. So each image is followed by its partner: index0 and
    index1 have twice as many rows as there are pairs then, of which the first half is to be used.
    """
    if world == 1:
        return batch
    total = len(batch["mask0"])
    rows = torch.arange(total).tensor_split(world)[rank]  # (b,)
    share = {key: value[rows] for key, value in batch.items() if not key.startswith(("augment_", "index", "image"))}
    share |= {key: value for key, value in batch.items() if key == "image_side"}
    share |= {key: value / world for key, value in count_points(batch).items()}
    images = torch.stack([rows, total + rows])  # (2, b), rows among all 2B images
    if "augment_partner" in batch:
        images = torch.cat([images, batch["augment_partner"][images]], 1)  # (2, 2b)
        share |= {key: value[images.flatten()] for key, value in batch.items() if key.startswith("augment_")}
        place = torch.arange(images.numel()).view(2, 2, -1)  # (2, own or partner, b)
        share["augment_partner"] = place[
            :, [1, 1]
        ].flatten()  # (4b,); a partner is rendered as it is: it comes to nothing
    index = torch.cat([batch["index0"], batch["index1"]])[images]  # (2, b) or (2, 2b)
    return share | {"index0": index[0], "index1": index[1]}


def make_loader(shares: Shares, config: TrainConfig, start: int, device: torch.device) -> DataLoader:
    """Batches from step `start` on, prepared by other processes."""
    workers = min(config.data.workers, os.cpu_count() or 1)
    return DataLoader(
        shares,
        batch_size=None,
        sampler=range(start, config.steps),
        num_workers=workers,
        pin_memory=device.type == "cuda",
        prefetch_factor=8 if workers else None,
        worker_init_fn=_start_worker,
    )


def _start_worker(_: int) -> None:
    """A signal that ends a run reaches all its processes; the training process tells its workers when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def prefetch(loader: DataLoader, device: torch.device) -> Generator[dict[str, Tensor], None, None]:
    """Batches on the device; while one is used, the next one is copied, on a stream of its own."""
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    ahead: dict[str, Tensor] | None = None
    for batch in loader:
        with torch.cuda.stream(stream):
            moved = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
        if ahead is not None:
            yield ahead
        if stream is not None:
            torch.cuda.current_stream(device).wait_stream(stream)
            for value in moved.values():
                value.record_stream(torch.cuda.current_stream(device))
        ahead = moved
    if ahead is not None:
        yield ahead


def check_finite(losses: list[Tensor], step: int, fabric: Fabric) -> None:
    """Stop at a loss that is not finite, before a checkpoint has it.

    Args:
        losses: of the last steps before `step`; emptied here. Reading them waits for the device.
    """
    values = mean(fabric, torch.stack(losses)).tolist() if losses else []
    losses.clear()
    for number, value in enumerate(values, start=step - len(values)):
        if not math.isfinite(value):
            raise ConfigError(f"the loss is {value} at step {number}; expected finite ones: try a smaller lr")
