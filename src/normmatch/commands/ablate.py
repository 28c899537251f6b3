"""`normmatch ablate`: the paper's ablation table with one command."""

from typing import Annotated, Literal, get_args

from tyro.conf import arg

from normmatch.config import TrainConfig

RowName = Literal[
    "full",
    "augmentation",
    "layer-loss",
    "vanilla",
    "cross-entropy",
    "vgg16",
    "name-loss",
    "layer-match",
    "paper-losses",
    "locating",
    "pascal-voc",
    "spair-71k",
]
ALL: tuple[RowName, ...] = get_args(RowName)[:9]  # the others are for mixtures, and for networks that locate


def ablate(
    config: Annotated[TrainConfig, arg(name="")],
    rows: tuple[RowName, ...] = ALL,
    vgg16_weights: str = "hub",
    split: str = "test",
    pairs: int = 1000,
    overwrite: bool = False,
) -> None:
    """Train the network once for each row of the paper's ablation table, and print the table beside the paper's drops.

    The options are those of `train small`, for every row. A command that was stopped goes on when it is given again.

    Args:
        config: the training of the full row
        rows: which rows; the last six are not in the paper, the last three are for a mixture and a network that locates
        vgg16_weights: where the VGG16 backbone starts from: hub, random, or the path of a safetensors file
        split: what accuracy is measured on
        pairs: pairs per class for that
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.experiments.ablations import ablate as run

    run(config, rows, vgg16_weights, split, pairs, overwrite)
