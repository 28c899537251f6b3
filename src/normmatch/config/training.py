"""The settings of a training. Field comments become the command line's help."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from normmatch.checks import check_ranges, shown
from normmatch.config.network import ABOVE_0, BELOW_1, LIMITS, MAX_WORKERS, DatasetName, ModelConfig, ProtocolName
from normmatch.errors import ConfigError


@dataclass(frozen=True)
class AugmentConfig:
    """Training augmentation. Each has its own probability; 0 switches it off."""

    affine: float = 1.0
    """probability of an affine jitter of an image and its keypoints"""
    rotation: float = 14.0
    """largest rotation, in degrees"""
    scale: tuple[float, float] = (0.85, 1.2)
    """range of the scale of each axis"""
    shift: float = 0.08
    """largest shift, as a share of the image"""
    photometric: float = 1.0
    """probability of a photometric jitter"""
    gain: float = 0.3
    """largest relative change of brightness, and of contrast"""
    flip: float = 0.0
    """probability of mirroring an image; left and right in its keypoints' names are swapped with it"""
    mirror: float = 0.0
    """probability of mirroring both images of a pair whose names tell no left from right: they stay as they are"""
    self_pairs: float = 0.0
    """share of a step's pairs that are two warps of one photograph, with random points, for locating"""
    strays: float = 0.0
    """probability that a pair shows all its points, also those that the other image lacks"""
    sizes: tuple[int, ...] = ()
    """sides that images are resized to, one for all of a step, drawn as often as it is listed; else model.image_size"""
    mixup: float = 0.3
    """probability of blending an image with another one"""
    mixup_share: tuple[float, float] = (0.5, 0.8)
    """range of the own image's share in the blend"""
    cutmix: float = 0.0
    """probability of covering a rectangle with a piece of another image; covered keypoints leave both images"""
    erase: float = 0.0
    """probability of erasing a rectangle; erased keypoints leave both images"""
    cover_area: tuple[float, float] = (0.02, 0.2)
    """range of the share of the image that cutmix or erasing covers"""
    noise: float = 0.0
    """largest standard deviation of the noise on keypoints, in pixels of the network's image; each image has its own"""

    def __post_init__(self) -> None:
        names = ("affine", "photometric", "flip", "mirror", "self_pairs", "strays", "mixup", "cutmix", "erase")
        check_ranges(
            self, "augment.", dict.fromkeys(names, (0, 1)) | {"sizes": (8, LIMITS["image_size"][1])}
            | {"rotation": (0, 180), "shift": (0, 1), "gain": (0, 1), "noise": (0, 100)}
            | {"scale": (ABOVE_0, 10), "mixup_share": (ABOVE_0, 1), "cover_area": (ABOVE_0, 1)},
        )  # fmt: skip
        for name in ("scale", "mixup_share", "cover_area"):
            low, high = getattr(self, name)
            if low > high:
                raise ConfigError(f"augment.{name} is {low} to {high}, expected the smaller number first")


@dataclass(frozen=True)
class DataConfig:
    """What to train and validate on."""

    names: tuple[DatasetName, ...] = ("pascal-voc",)
    """which datasets; of several, classes stay apart, and photographs of their test splits are left out"""
    shares: tuple[float, ...] = ()
    """how often each of them is shown; all classes alike if not given"""
    exclude: tuple[DatasetName, ...] = ()
    """benchmarks of the same folder whose validation and test photographs are left out too"""
    exclude_classes: tuple[str, ...] = ()
    """classes that are left out, by their names in any of the datasets"""
    root: Path = Path("data")
    """the folder that holds them"""
    protocol: ProtocolName = "nmt"
    """the rules to read its annotations by"""
    sampling: Literal["intersection", "inclusion", "all"] = "intersection"
    """which keypoints of a pair are shown: those in both images; also the rest of image 1; or all"""
    validation_split: bool = True
    """keep the validation objects out of training; without, they are trained on too, and can measure nothing"""
    workers: int = 4
    """processes that prepare batches, at most one a core; 0 prepares them in the training process"""

    @property
    def name(self) -> str:
        """The dataset, or the mixture, in a word."""
        return "+".join(self.names)

    @property
    def plain(self) -> bool:
        """Whether it is one dataset as it is."""
        return len(self.names) == 1 and not self.exclude and not self.exclude_classes

    @property
    def needed_splits(self) -> tuple[str, ...]:
        """What a training reads."""
        return ("train", "val") if self.validation_split else ("train",)

    def __post_init__(self) -> None:
        check_ranges(self, "data.", {"workers": (0, MAX_WORKERS), "shares": (ABOVE_0, 1e6)})
        if not self.names or len(set(self.names)) < len(self.names):
            raise ConfigError(f"data.names are {shown(self.names)}, expected one dataset or several different ones")
        if self.shares and len(self.shares) != len(self.names):
            raise ConfigError(f"data.shares are {shown(self.shares)}, expected a number for each of data.names")


@dataclass(frozen=True)
class LossConfig:
    """The training losses; the switches are the paper's ablations."""

    temperature: float = 0.1
    """where InfoNCE's temperature starts"""
    learn_temperature: bool = True
    """whether it is learned"""
    layer_loss: bool = True
    """the layer-wise hyperspherical loss"""
    contrastive: bool = True
    """InfoNCE and hyperspherical losses; False replaces them by plain cross-entropy"""
    names: float = 1.0
    """weight of the name loss: each descriptor against a learned vector for each name of its class (not the paper's)"""
    layer_match: float = 1.0
    """weight of InfoNCE after the earlier layers (not the paper's)"""
    locate: float = 1.0
    """weight of the locating loss, for a network with model.locate_dim (not the paper's)"""

    def __post_init__(self) -> None:
        weights = dict.fromkeys(("names", "layer_match", "locate"), (0, 1e6))
        check_ranges(self, "loss.", {"temperature": (ABOVE_0, 1e6), **weights})


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    out: Path
    """folder of the run: checkpoints, logs, the final model"""
    init: str = ""
    """trained weights to start from: small or another bundled name, a folder, a file, or owner/name on a hub"""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    steps: int = 3000
    """length of the run and of its schedule"""
    batch_size: int = 64
    """pairs a step"""
    lr: float = 7e-4
    """learning rate of everything after the backbone"""
    backbone_lr: float = 4e-5
    """learning rate of the backbone; 0 freezes it"""
    layer_decay: float = 1.0
    """what the backbone's rate is multiplied with from layer to layer, from the last one back; 1 is the same for all"""
    frozen_copies: int = 0
    """with a frozen backbone, augmented copies of each object to encode once, before training: fast without a GPU"""
    betas: tuple[float, float] = (0.9, 0.98)
    """AdamW's momenta"""
    weight_decay: float = 0.0
    """of the backbone's matrices"""
    warmup: int = 200
    """steps in which the learning rate rises"""
    schedule: Literal["cosine", "steps"] = "cosine"
    """how it falls: to zero by half a cosine, or to a tenth after 2/6 and again after 5/6 of the run (the paper)"""
    clip: float = 5.0
    """largest norm of the head's gradient; 0 does not clip"""
    average: float = 0.99
    """decay of the running average of the weights, which is what is evaluated and kept"""
    seed: int = 0
    """of everything random"""
    precision: Literal["auto", "bf16-mixed", "32-true"] = "auto"
    """arithmetic of the forward pass: auto is bf16-mixed on cuda and 32-true elsewhere; weights are always float32"""
    compile: bool = True
    """compile the network; pays from a few hundred steps on"""
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """what to train on"""
    devices: int = 1
    """how many of them, a process each; under torchrun it says how many, on how many machines"""
    log_every: int = 20
    """steps between lines of the log"""
    tensorboard: bool = True
    """write curves and matched validation pairs for TensorBoard, where it is installed"""
    validate_every: int = 500
    """steps between validations; the last step is always followed by one"""
    validation_pairs: int = 100
    """pairs a class in a validation; a dataset that comes with pairs uses those"""
    save_every: int = 500
    """steps between checkpoints"""
    keep: int = 2
    """how many checkpoints are kept"""
    minutes: float = 0.0
    """stop after so many minutes with a checkpoint to resume from; 0 does not stop"""
    resume: bool = False
    """continue the run in `out` exactly where its last checkpoint stands"""

    @property
    def crop_size(self) -> int:
        """The side of the crops in the cache, and of what is validated: the largest that is trained on."""
        return max((self.model.image_size, *self.augment.sizes))

    def __post_init__(self) -> None:
        counts = ("steps", "batch_size", "devices", "log_every", "validate_every", "validation_pairs", "save_every")
        rates = ("lr", "backbone_lr", "weight_decay", "warmup", "clip", "minutes", "seed", "frozen_copies")
        check_ranges(self, "", dict.fromkeys((*counts, "keep"), (1, math.inf)) | dict.fromkeys(rates, (0, math.inf)))
        check_ranges(self, "", {"layer_decay": (ABOVE_0, 1), "average": (0, BELOW_1), "betas": (0, BELOW_1)})
        if self.frozen_copies and self.backbone_lr:
            raise ConfigError(
                f"frozen_copies is {self.frozen_copies}, but that needs a frozen backbone; expected backbone_lr 0"
            )
        if self.frozen_copies and self.model.locate_dim:
            raise ConfigError(
                f"model.locate_dim is {self.model.locate_dim}, but frozen copies keep no maps to locate in; expected 0"
            )
