"""`normmatch train`: train a network, starting from one of the presets."""

from typing import Annotated, Any, Union

import tyro
from tyro.conf import subcommand

from normmatch.config import PRESETS, TrainConfig


def train(config: TrainConfig) -> None:
    """Train; the dataset is prepared first where that has not been done."""
    from normmatch.data.catalog import load_splits
    from normmatch.training.trainer import train as run

    data = config.data
    run(config, load_splits(data.name, data.root, data.protocol, config.model.image_size))


PRESET_COMMANDS: Any = Union[  # noqa: UP007 - one command for each preset, with its values as the defaults
    tuple(
        Annotated[
            TrainConfig,
            subcommand(
                name,
                default=TrainConfig(out=tyro.MISSING, model=model),
                description=f"{model.backbone} at {model.image_size} px.",
            ),
        ]
        for name, model in PRESETS.items()
    )
]
