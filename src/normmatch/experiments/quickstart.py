"""A first training in a minute or two on two CPU cores: the preset `tiny` learns to match drawn figures."""

from pathlib import Path

import numpy as np

from normmatch import viz
from normmatch.config import PRESETS, AugmentConfig, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.datasets.pairs import sample_pair_list
from normmatch.errors import ConfigError
from normmatch.evaluation.metrics import mean_accuracy
from normmatch.evaluation.predict import predict, untrained
from normmatch.evaluation.predictions import Predictions
from normmatch.evaluation.tables import Table, percent, print_table
from normmatch.outputs import check_outputs
from normmatch.training.run import train

FIGURES = 600  # training figures of each class
HELD_OUT = 60  # of each class, never seen in training
PAIRS = 100  # of each class, on which accuracy is measured


def quickstart(out: Path = Path("quickstart"), steps: int = 550, overwrite: bool = False) -> float:
    """Train a tiny network on drawn figures, show how well it matches figures that it has not seen.

    Args:
        out: the folder for the trained network and the picture
        steps: length of the training
        overwrite: replace a picture that was not written by this program, too
    """
    config, picture = training_config(out / "run", steps), out / "matches.png"
    viz.check_format(picture)
    check_outputs({"--out": picture}, overwrite=overwrite)
    if config.out.exists():
        raise ConfigError(f"{config.out} is there already; delete it, or give another --out")
    print(f"drawing {FIGURES} figures each of {', '.join(drawn.LABELS)}")
    size = config.model.image_size
    splits = {
        "train": drawn.make(FIGURES, size, seed=0, split="train"),
        "val": drawn.make(HELD_OUT, size, seed=0, split="val"),
    }
    pair_list = sample_pair_list(splits["val"], "synthetic", PAIRS, seed=0)

    before = predict(untrained(config.model, config.seed), splits["val"], pair_list, progress=False)
    model = train(config, splits)
    after = predict(model, splits["val"], pair_list, progress=False)

    largest = int(after.counts[:, 0].argmax())
    images = [np.asarray(splits["val"].images[i]) for i in after.pairs[largest].tolist()]
    viz.save_plot(viz.plot_pair(images, **after.pair(largest) | {"names": None}), picture)
    print_table(accuracy_table(before, after))
    print(f"the trained network is {config.out / 'model.safetensors'}, a matched pair of new figures {picture}")
    return mean_accuracy(after.accuracy())


def training_config(out: Path, steps: int) -> TrainConfig:
    """Settings for a network that starts from nothing, on a CPU."""
    return TrainConfig(
        out=out,
        model=PRESETS["tiny"],
        data=DataConfig(names=("synthetic",), workers=0),
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


def accuracy_table(before: Predictions, after: Predictions) -> Table:
    """Accuracy of the network before and after training, beside that of guessing: one over the candidates."""
    guessing = percent(len(after.counts) / after.counts[:, 1].sum())
    untrained, trained = before.accuracy(), after.accuracy()
    shares = {label: (untrained[label], trained[label]) for label in trained}
    shares["mean"] = (mean_accuracy(untrained), mean_accuracy(trained))
    rows = [(label, guessing, *map(percent, pair)) for label, pair in shares.items()]
    columns = ("class", "guessing", "untrained", "trained")
    return Table("keypoints of held-out figures matched right, in %", columns, rows, sums_up=True)
