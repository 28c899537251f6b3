"""`normmatch bench`: measure speed."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from normmatch.config import DatasetName, ProtocolName
from normmatch.errors import ConfigError

DeviceName = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bfloat16", "float16"]
Part = Literal["pair", "stages", "points", "batches", "cached", "files"]


def data(
    name: Positional[DatasetName],
    root: Path,
    protocol: ProtocolName = "nmt",
    size: int | None = None,
    batch_size: int = 64,
    workers: int = 2,
    seconds: float = 10.0,
) -> None:
    """Measure how many augmented training pairs per second the loader delivers from a prepared dataset.

    Args:
        name: the dataset
        root: the folder that it lies in
        protocol: the rules that it was prepared by
        size: the size that it was prepared for; the protocol's if not given
        batch_size: pairs per batch
        workers: loader processes
        seconds: how long to measure
    """
    from normmatch.bench.data import bench_data
    from normmatch.config import DataConfig, TrainConfig
    from normmatch.datasets.catalog import load_splits

    split = load_splits(name, root, protocol, size, needed=("train",))["train"]
    source = DataConfig(names=(name,), root=root, protocol=protocol, workers=workers)
    config = TrainConfig(out=Path(), data=source, batch_size=batch_size)
    for with_images in (False, True):
        rate = bench_data(split, config, seconds, with_images)
        pixels = "in each batch" if with_images else "on the device"
        print(f"{rate:,.0f} pairs/s with {workers} workers, the pixels {pixels}")


def model(
    presets: Positional[tuple[str, ...]] = ("small",),
    device: DeviceName = "auto",
    points: int = 20,
    curve: tuple[int, ...] = (),
    batches: tuple[int, ...] = (),
    images: int | None = None,
    seconds: float = 1.0,
    compile: bool = True,
    precisions: tuple[Precision, ...] = (),
    heads: tuple[Precision, ...] = ("float32",),
    parts: tuple[Part, ...] = ("pair", "stages", "points", "batches", "cached", "files"),
    weights: str = "",
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Measure how fast networks match: latency, stages, throughput, scaling, memory, each also compared with plain.

    Args:
        presets: which networks; their weights are random, speed is the same
        device: what to measure on; auto is cuda where there is one
        points: keypoints per image
        curve: keypoints per image for the scaling of the head; 10 to 2,000 (500 on a CPU) if not given
        batches: pairs at a time for the throughput; 1 to 256 (4 on a CPU) if not given
        images: how many remembered images are matched with each other; 100 (8 on a CPU) if not given
        seconds: about how long each figure is measured
        compile: measure compiled networks as well
        precisions: of the backbone; on cuda bfloat16 and float16, else float32 and what auto chooses, if not given
        heads: precisions of the rest, for compiled networks; cached and files are measured with float32 alone
        parts: what to measure; the compiler takes most of the time
        weights: a weights file in place of random weights, for the share of equal matches; with one preset
        out: a folder for speed.json, speed.md and speed.png
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.bench.inputs import variants
    from normmatch.bench.model import Sizes, bench_model
    from normmatch.bench.tables import cells, make_tables, output_files, plot, write
    from normmatch.evaluation.provenance import made_with
    from normmatch.evaluation.tables import to_markdown
    from normmatch.model.device import find_device
    from normmatch.outputs import check_outputs
    from normmatch.weights import find_weights

    if not 0 < seconds < 3600 or min(points, *curve, *batches, 1) < 1:
        raise ConfigError(f"seconds {seconds}, points {points}; expected up to 3600 seconds, and 1 or more of the rest")
    check_outputs({"--out": output_files(out, "speed")}, [find_weights(weights)] if weights else [], overwrite)
    found = find_device(device)
    sizes, made = Sizes(points, seconds=seconds), made_with(found)
    if found.type == "cpu":
        sizes = replace(sizes, curve=sizes.curve[:6], batches=sizes.batches[:3], images=8)
    sizes = replace(sizes, curve=curve or sizes.curve, batches=batches or sizes.batches, images=images or sizes.images)
    ways, rows = variants(found, compile, precisions, heads), []
    for preset in dict.fromkeys(presets):
        for row in bench_model(preset, found, ways, sizes, weights or None, parts):
            rows.append(row)
            if out is not None:
                write(rows, made, out, "speed")
            print(preset, *filter(None, cells(row)), sep=", ", file=sys.stderr, flush=True)  # compilers take long
    if out is not None and any(row["what"] in ("head", "batch") for row in rows):
        plot(rows, out / "speed.png")
    print(to_markdown(make_tables(rows, made)))


def train(
    presets: Positional[tuple[str, ...]] = ("small",),
    device: DeviceName = "auto",
    batch_size: int = 64,
    points: int = 24,
    compile: bool = True,
    seconds: float = 5.0,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Measure how many pairs per second the training step takes, without the loader, and how busy the GPU is.

    Args:
        presets: which networks
        device: what to measure on; auto is cuda where there is one
        batch_size: pairs per step
        points: keypoints per image
        compile: compile the network, as training does
        seconds: about how long to measure
        out: a folder for train.json and train.md
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.bench.tables import make_tables, output_files, write
    from normmatch.bench.train import bench_train
    from normmatch.evaluation.provenance import made_with
    from normmatch.evaluation.tables import to_markdown
    from normmatch.model.device import find_device
    from normmatch.outputs import check_outputs

    if batch_size < 1 or points < 2 or not 0 < seconds < 3600:
        raise ConfigError(f"batch_size {batch_size}, points {points}, seconds {seconds}; expected 1, 2, up to 3600")
    check_outputs({"--out": output_files(out, "train")}, overwrite=overwrite)
    found = find_device(device)
    rows = [
        bench_train(preset, found, batch=batch_size, points=points, compile=compile, seconds=seconds)
        for preset in dict.fromkeys(presets)
    ]
    made = made_with(found)
    if out is not None:
        write(rows, made, out, "train")
    print(to_markdown(make_tables(rows, made)))
