"""A first training in a minute or two on two CPU cores: the preset `tiny` learns to match drawn figures."""

import shutil
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from normmatch.config import PRESETS, AugmentConfig, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.datasets.batches import collate, read_images
from normmatch.datasets.pairs import PairList, sample_pair_list
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError
from normmatch.evaluation.metrics import mean_accuracy
from normmatch.evaluation.predict import predict
from normmatch.model.network import NormMatch
from normmatch.training.run import train

FIGURES = 600  # training figures of each class
HELD_OUT = 60  # of each class, never seen in training
PAIRS = 100  # of each class, on which accuracy is measured


def quickstart(out: Path = Path("quickstart"), steps: int = 550) -> float:
    """Train a tiny network on drawn figures, show how well it matches figures that it has not seen.

    Args:
        out: the folder for the trained network and the picture; an earlier quickstart in it is replaced
        steps: length of the training
    """
    config = training_config(out / "run", steps)
    if config.out.exists():
        if not (config.out / "config.json").is_file():
            raise ConfigError(f"{config.out} is not an earlier quickstart; give another --out")
        shutil.rmtree(config.out)
    console = Console()
    size = PRESETS["tiny"].image_size
    console.print(f"drawing {FIGURES} figures each of {', '.join(drawn.LABELS)}")
    splits = {
        "train": drawn.make(FIGURES, size, seed=0, split="train"),
        "val": drawn.make(HELD_OUT, size, seed=0, split="val"),
    }
    pair_list = sample_pair_list(splits["val"], "synthetic", PAIRS, seed=0)

    torch.manual_seed(config.seed)
    before = predict(NormMatch(config.model).eval(), splits["val"], pair_list, progress=False).accuracy()
    model = train(config, splits)
    after = predict(model, splits["val"], pair_list, progress=False).accuracy()

    console.print(accuracy_table(before, after, chance(splits["val"], pair_list)))
    picture = out / "matches.png"
    draw_pair(model, splits["val"], pair_list, picture)
    console.print(f"the trained network is {config.out / 'model.safetensors'}, a matched pair of new figures {picture}")
    return mean_accuracy(after)


def training_config(out: Path, steps: int) -> TrainConfig:
    """Settings for a network that starts from nothing, on a CPU."""
    return TrainConfig(
        out=out,
        model=PRESETS["tiny"],
        data=DataConfig(name="synthetic", workers=0),
        augment=AugmentConfig(affine=0.0, photometric=0.0, mixup=0.0),
        steps=steps,
        batch_size=16,
        lr=5e-3,
        backbone_lr=3e-3,
        warmup=30,
        average=0.98,
        precision="32-true",
        compile=False,
        accelerator="cpu",
        tensorboard=False,
        validate_every=steps,
        save_every=steps,
    )


def chance(split: PreparedSplit, pair_list: PairList) -> float:
    """Accuracy of guessing: one over the number of candidates."""
    counts = [len(pair_list.pair(split, k).keypoints1) for k in range(len(pair_list))]
    return float(len(counts) / np.sum(counts))


def accuracy_table(before: dict[str, float], after: dict[str, float], guessing: float) -> Table:
    table = Table(title="keypoints of held-out figures matched right, in %")
    for column in ("class", "guessing", "untrained", "trained"):
        table.add_column(column, justify="left" if column == "class" else "right")
    rows = {label: (before[label], after[label]) for label in after}
    rows["mean"] = (mean_accuracy(before), mean_accuracy(after))
    for label, (first, last) in rows.items():
        table.add_row(label, f"{100 * guessing:.1f}", f"{100 * first:.1f}", f"{100 * last:.1f}")
    return table


def draw_pair(model: NormMatch, split: PreparedSplit, pair_list: PairList, path: Path) -> None:
    """A picture of the pair with the most points: right matches green, wrong ones red."""
    from normmatch import viz

    pairs = [pair_list.pair(split, k) for k in range(len(pair_list))]
    pair = max(pairs, key=lambda p: len(p.keypoints0))
    images = [read_images(split, np.array([i])).float() / 255 for i in (pair.index0, pair.index1)]  # (1, 3, S, S)
    batch = collate([pair], points=len(pair.keypoints0))
    with torch.inference_mode():
        output = model({**batch, "image0": images[0], "image1": images[1]})
    figure = viz.plot_images([images[0][0], images[1][0]])
    viz.plot_matches(figure, pair.keypoints0, pair.keypoints1, output["matches0"][0], truth=pair.gt_matches0)
    viz.save_plot(figure, path)
