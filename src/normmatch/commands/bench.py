"""`normmatch bench`: measure speed."""

from tyro.conf import Positional

from normmatch.commands.options import Number, Root
from normmatch.config import DatasetName, ProtocolName


def data(
    name: Positional[DatasetName],
    root: Root,
    protocol: ProtocolName = "nmt",
    size: Number = None,
    batch_size: int = 64,
    workers: int = 2,
    seconds: float = 10.0,
) -> None:
    """Measure how many augmented training pairs a second the loader delivers from a prepared dataset.

    Args:
        name: the dataset
        root: the folder that it lies in
        protocol: the rules that it was prepared by
        size: the size that it was prepared for; the protocol's if not given
        batch_size: pairs a batch
        workers: loader processes
        seconds: how long to measure
    """
    from normmatch.benchmark import bench_data as run
    from normmatch.config import AugmentConfig
    from normmatch.data.catalog import load_splits

    split = load_splits(name, root, protocol, size, needed=("train",))["train"]
    for with_images in (False, True):
        rate = run(split, batch_size, workers, seconds, AugmentConfig(), with_images=with_images)
        pixels = "in each batch" if with_images else "on the device"
        print(f"{rate:,.0f} pairs/s with {workers} workers, the pixels {pixels}")
