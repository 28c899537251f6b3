"""`normmatch train`: train a network, starting from one of the presets."""

import os
import sys
import warnings
from typing import Annotated, Any, Union

import tyro
from tyro.conf import subcommand

from normmatch.config import PRESETS, AugmentConfig, LossConfig, TrainConfig
from normmatch.errors import ExportError
from normmatch.extras import require

PAPER = TrainConfig(  # the paper's recipe: six epochs of 2,000 steps
    out=tyro.MISSING,
    augment=AugmentConfig(affine=0.0, photometric=0.0, mixup=0.3, cutmix=0.3, erase=0.3),
    loss=LossConfig(names=0.0, layer_match=0.0),
    steps=12_000,
    batch_size=8,
    lr=5e-4,
    backbone_lr=1.5e-5,
    betas=(0.9, 0.999),
    warmup=0,
    schedule="steps",
    clip=0.0,
    average=0.0,
    validate_every=2000,
    save_every=2000,
)


def train(config: TrainConfig) -> None:
    """Train; the dataset is prepared first where that has not been done."""
    require("lightning_fabric", "torch", "onnxscript")
    from normmatch.training.distributed import start_processes, under_torchrun

    if config.devices > 1 and not under_torchrun():
        start_processes(config, sys.argv[1:])
        return
    from normmatch.export.files import export
    from normmatch.training import run
    from normmatch.weights import FILE_NAME
    from normmatch.weights.graphs import find_graphs

    model = run.train(config)
    file = config.out / FILE_NAME
    finished = file.is_file()  # not where --minutes were over
    if finished and os.environ.get("RANK", "0") == "0":  # of several processes the first one talks
        try:
            if find_graphs(file, model.config) is None:
                export(model, config.out, file)
        except ExportError as error:
            warnings.warn(f"the network runs with torch alone: {error}", stacklevel=2)
        print(f"the trained network is in {config.out}; other commands take it as --weights {config.out}")


def default_config(name: str) -> TrainConfig:
    """What `normmatch train NAME` does without options."""
    recipe = PAPER if name.startswith("paper") else TrainConfig(out=tyro.MISSING)
    return TrainConfig(**{**vars(recipe), "model": PRESETS[name]})


PRESET_COMMANDS: Any = Union[  # noqa: UP007 - one command for each preset, with its values as the defaults
    tuple(
        Annotated[
            TrainConfig,
            subcommand(
                name,
                default=default_config(name),
                description=f"{model.backbone} at {model.image_size} px.",
            ),
        ]
        for name, model in PRESETS.items()
    )
]
