"""Every setting of NormMatch as frozen dataclasses, and the presets. Field comments become the command line's help."""

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from normmatch.checks import check_ranges, shown
from normmatch.errors import ConfigError

BELOW_1, ABOVE_0 = 1 - 1e-6, 1e-6

# What a network may have, so that a file that asks for more is refused before anything is made.
LIMITS = {
    "image_size": (1, 4096), "dim": (1, 16_384), "num_layers": (1, 256), "num_heads": (1, 1024), "mlp_ratio": (1, 64),
    "spline_kernel": (2, 64), "sinkhorn_epsilon": (1e-4, 1e4), "sinkhorn_rounds": (1, 10_000), "min_score": (0, 1),
    "drop_path": (0, BELOW_1),
}  # fmt: skip
MAX_PARAMETERS = 1 << 30  # after the backbone
MAX_NAME = 100  # characters of a backbone
MAX_WORKERS = 1000  # processes

DatasetName = Literal["pascal-voc", "spair-71k", "willow", "hpatches", "synthetic", "folder"]
ProtocolName = Literal["nmt", "bbgm", "thinkmatch"]
BackendName = Literal["auto", "torch", "onnx"]
Format = Literal[  # of keypoints files that can be written
    "native", "coco", "csv", "wide", "tps", "nts", "deeplabcut", "yolo", "cvat", "labelstudio", "labelme"
]
Vertical = Literal["file", "up", "down"]  # from where y counts: as a format says, from the bottom, from the top


@dataclass(frozen=True)
class ModelConfig:
    """The network. The defaults are the preset `small`."""

    backbone: str = "vit_small_patch14_dinov2"
    """a timm model by name (ViT, Swin, SwinV2, ConvNeXt, ResNet), or vgg16"""
    backbone_weights: str = "hub"
    """where the backbone starts from: hub, random, or the path of a safetensors file"""
    backbone_layers: tuple[int, int] = (8, 11)
    """the two feature maps: blocks of a ViT, stages of the others, counted from 0; layers of vgg16's features"""
    image_size: int = 378
    """side of the square that images are resized to; a multiple of a ViT's patch"""
    dim: int = 320
    """D, the width of everything after the backbone"""
    num_layers: int = 4
    """L, the number of two-stream layers"""
    num_heads: int = 5
    """attention heads; they divide D"""
    mlp_ratio: int = 4
    """hidden width of the MLP, in multiples of D"""
    transformer: Literal["normalized", "vanilla"] = "normalized"
    """normalized is the paper's; vanilla is its ablation, a pre-norm transformer"""
    shared_streams: bool = True
    """one set of weights for both images; this makes matching symmetric"""
    drop_path: float = 0.0
    """probability of skipping a residual step of an image, in training"""
    spline_kernel: int = 5
    """knots of the B-spline kernel along each axis"""
    sinkhorn_epsilon: float = 0.035
    """temperature of the Sinkhorn iteration"""
    sinkhorn_rounds: int = 27
    """rounds of the Sinkhorn iteration"""
    min_score: float = 0.0
    """a match with a lower score is taken for none when photographs are matched; calibrated on unmatched points"""

    def __post_init__(self) -> None:
        for item in fields(self):
            value, kind = getattr(self, item.name), type(item.default)
            if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool) != (
                kind is bool
            ):
                raise ConfigError(
                    f"model.{item.name} is {shown(value)}, expected a {kind.__name__} such as {item.default!r}"
                )
        check_ranges(self, "model.", LIMITS)
        if self.dim % self.num_heads:
            raise ConfigError(f"model.num_heads is {self.num_heads}, expected a divisor of model.dim, {self.dim}")
        if len(self.backbone) > MAX_NAME:  # alike ones are looked for
            raise ConfigError(f"model.backbone is {shown(self.backbone)}, expected the name of a timm model, or vgg16")
        if self.parameters > MAX_PARAMETERS:
            raise ConfigError(f"model has {self.parameters:,} parameters, expected at most {MAX_PARAMETERS:,}")
        if self.transformer not in ("normalized", "vanilla"):
            raise ConfigError(f"model.transformer is {shown(self.transformer)}, expected 'normalized' or 'vanilla'")
        first, last = self.backbone_layers if len(self.backbone_layers) == 2 else (0, 0)
        if not (isinstance(first, int) and isinstance(last, int) and 0 <= first < last):
            raise ConfigError(
                f"model.backbone_layers is {shown(self.backbone_layers)}, expected two rising layer numbers"
            )

    @property
    def parameters(self) -> int:
        """At least so many numbers are learned after the backbone."""
        return self.dim**2 * (self.num_layers * (8 + 3 * self.mlp_ratio) + self.spline_kernel**2)


PRESETS: dict[str, ModelConfig] = {
    "small": ModelConfig(),
    "vgg16": ModelConfig(backbone="vgg16", backbone_layers=(20, 25), image_size=256, dim=648, num_heads=12),
    "paper": ModelConfig(
        backbone="swinv2_base_window12to24_192to384", backbone_layers=(2, 3), image_size=384,
        dim=648, num_heads=12, shared_streams=False,
    ),
    "paper-large": ModelConfig(
        backbone="swinv2_large_window12to24_192to384", backbone_layers=(2, 3), image_size=384,
        dim=648, num_heads=12, shared_streams=False,
    ),
    "tiny": ModelConfig(
        backbone="test_resnet", backbone_weights="random", backbone_layers=(2, 3), image_size=96,
        dim=32, num_layers=2, num_heads=4, mlp_ratio=2,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class MatchOptions:
    """How photographs are matched: what `Matcher` and its `match` take."""

    weights: str = "small"
    """a bundled network, or a file or folder that training wrote"""
    device: str = "auto"
    """auto, cpu, cuda or mps"""
    backend: BackendName = "auto"
    """what runs the network: torch, or onnx, which needs no torch; auto is torch where it is installed with a GPU"""
    compile: bool = False
    """compile the network: minutes, which thousands of pairs on a GPU pay back"""
    one_to_one: bool = False
    """use no point twice"""
    mutual: bool = False
    """keep only matches that are the best of both their points"""
    min_score: float | None = None
    """matches below this score, from 0 to 1, are dropped; the network's calibrated one if not given"""


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
        chances = dict.fromkeys(("affine", "photometric", "flip", "mixup", "cutmix", "erase"), (0, 1))
        check_ranges(
            self, "augment.", chances | {"rotation": (0, 180), "shift": (0, 1), "gain": (0, 1), "noise": (0, 100)}
        )
        check_ranges(
            self, "augment.", {"scale": (ABOVE_0, 10), "mixup_share": (ABOVE_0, 1), "cover_area": (ABOVE_0, 1)}
        )
        for name in ("scale", "mixup_share", "cover_area"):
            low, high = getattr(self, name)
            if low > high:
                raise ConfigError(f"augment.{name} is {low} to {high}, expected the smaller number first")


@dataclass(frozen=True)
class DataConfig:
    """What to train and validate on."""

    name: DatasetName = "pascal-voc"
    """which dataset"""
    root: Path = Path("data")
    """the folder that holds it"""
    protocol: ProtocolName = "nmt"
    """the rules to read its annotations by"""
    sampling: Literal["intersection", "inclusion", "all"] = "intersection"
    """which keypoints of a pair are shown: those in both images; also the rest of image 1; or all"""
    validation_split: bool = True
    """keep the validation objects out of training; without, they are trained on too, and can measure nothing"""
    workers: int = 4
    """processes that prepare batches, at most one a core; 0 prepares them in the training process"""

    @property
    def needed_splits(self) -> tuple[str, ...]:
        """What a training reads."""
        return ("train", "val") if self.validation_split else ("train",)

    def __post_init__(self) -> None:
        check_ranges(self, "data.", {"workers": (0, MAX_WORKERS)})


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

    def __post_init__(self) -> None:
        check_ranges(self, "loss.", {"temperature": (ABOVE_0, 1e6), "names": (0, 1e6), "layer_match": (0, 1e6)})


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

    def __post_init__(self) -> None:
        counts = ("steps", "batch_size", "devices", "log_every", "validate_every", "validation_pairs", "save_every")
        rates = ("lr", "backbone_lr", "weight_decay", "warmup", "clip", "minutes", "seed", "frozen_copies")
        check_ranges(self, "", dict.fromkeys((*counts, "keep"), (1, math.inf)) | dict.fromkeys(rates, (0, math.inf)))
        check_ranges(self, "", {"layer_decay": (ABOVE_0, 1), "average": (0, BELOW_1), "betas": (0, BELOW_1)})
        if self.frozen_copies and self.backbone_lr:
            raise ConfigError(
                f"frozen_copies is {self.frozen_copies}, but that needs a frozen backbone; expected backbone_lr 0"
            )
