"""Every setting of a training, and a command line made of them. Each hypothesis is a switch of its own."""

import argparse
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Self

FOLDS: dict[str, tuple[str, ...]] = {
    "": (),
    "A": ("boat", "cow", "motorbike", "tvmonitor"),
    "B": ("bird", "chair", "dog", "train"),
}
FOLDS["AB"] = FOLDS["A"] + FOLDS["B"]


@dataclass(frozen=True)
class Settings:
    """The defaults are the reference recipe."""

    name: str = "reference"  # of the run: its folder, and its row in the table
    data: str = "shards"  # what prepare.py wrote
    backbone_weights: str = "hub"  # of the start: hub (DINOv2's own), random, or a safetensors file
    out: str = "runs"
    seed: int = 0
    # how long
    steps: int = 1000
    minutes: float = 0.0  # 0 is no limit; the schedule ends with whichever comes first
    resume: bool = False
    save_minutes: float = 0.0  # between checkpoints, with one at the end; 0 makes none
    # what is shown
    leave_out: str = "A"  # a fold whose kinds are not trained on: A, B, AB or nothing
    kinds: int = 0  # train on so many kinds alone; 0 is all
    objects: int = 0  # train on so many of their objects alone; 0 is all
    size: int = 378  # pixels, a multiple of 14
    images: int = 96  # a step
    group: int = 2  # images of one kind that are shown together; all their pairs are learned from
    voc: float = 0.35  # share of the groups that are of PascalVOC
    self_pairs: float = 0.0  # share of the groups that are warped copies of one photograph, with random points
    others: float = 0.0  # share of the groups whose images are of different kinds: everything is absent
    strays: float = 0.0  # probability that the matching head sees a point which the other image lacks
    flip: float = 0.5
    rotation: float = 0.3  # radians
    # the network
    read: str = "9,12"  # the blocks that the dense head reads, counted from 1
    read_start: bool = False  # the dense head reads the untrained network's last map as well
    decoder: str = "plain"  # of descriptors: plain, or offset (places inside a cell are told apart)
    finer: int = 1  # the offset decoder's places along a side of a cell
    light: bool = False  # the dense head's convolution at 7 px goes channel by channel
    dim: int = 128  # of the descriptors
    together: int = 0  # layers in which the points of a source are found together
    drop_path: float = 0.1  # in the matching head
    # what is trained of the backbone, and how fast
    tune: str = "all"  # all, last4, lora, adapters or none
    rank: int = 16  # of LoRA
    lr: float = 1e-3  # of the heads
    backbone_lr: float = 8e-5  # of the backbone's own weights
    layer_decay: float = 0.8  # a block before the last learns at so much of the rate of the one behind it
    added_lr: float = 5e-4  # of what is added to the backbone: LoRA, adapters
    warmup: int = 150
    clip: float = 5.0  # of the heads' gradient
    average: float = 0.995  # of the weights
    # what is learned
    match: float = 1.0  # weight of the matching loss
    dense: float = 1.0  # weight of the locating loss
    subsets: bool = False  # ask for a random part of the source's points, down to one
    absent: float = 0.2  # weight of points that the other image lacks
    evenly: bool = False  # every pair counts alike in the locating loss; otherwise every point
    sigma: str = "1"  # of the target, in cells of 7 px; "3.5,1" narrows it over the first two thirds of a training
    # how
    compile: bool = False
    workers: int = 12
    measure: bool = True  # at the end

    def __post_init__(self) -> None:
        choices = {"leave_out": FOLDS, "tune": ("all", "last4", "lora", "adapters", "none")}
        for name, allowed in {**choices, "decoder": ("plain", "offset")}.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(map(repr, allowed))}")
        if self.size % 14 or self.images % self.group or self.group < 2:
            raise ValueError("expected a size that is a multiple of 14, and images in whole groups of two or more")

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks that the dense head reads, counted from 0."""
        return tuple(int(number) - 1 for number in self.read.split(","))

    @property
    def sigmas(self) -> tuple[float, float]:
        """The target's first and last deviation."""
        numbers = [float(number) for number in self.sigma.split(",")]
        return numbers[0], numbers[-1]

    @classmethod
    def from_command_line(cls, doc: str | None, arguments: list[str] | None = None) -> Self:
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        for field in fields(cls):
            assert field.default is not MISSING
            flag = f"--{field.name.replace('_', '-')}"
            if isinstance(field.default, bool):
                parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default)
            else:
                parser.add_argument(flag, type=type(field.default), default=field.default)
        return cls(**vars(parser.parse_args(arguments)))

    def changed(self) -> dict[str, Any]:
        """What differs from the reference recipe."""
        places = {"name", "data", "backbone_weights", "out", "resume", "save_minutes", "compile", "workers", "measure"}
        return {
            key: value for key, value in asdict(self).items() if key not in places and value != getattr(Settings, key)
        }
