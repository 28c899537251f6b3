"""The settings of a network and of matching with it, and the presets. Field comments become the command line's help."""

import itertools
from dataclasses import dataclass, fields
from typing import Literal

from normmatch.checks import check_ranges, shown
from normmatch.errors import ConfigError

BELOW_1, ABOVE_0 = 1 - 1e-6, 1e-6

# What a network may have, so that a file that asks for more is refused before anything is made.
LIMITS = {
    "image_size": (1, 4096), "dim": (1, 16_384), "num_layers": (1, 256), "num_heads": (1, 1024), "mlp_ratio": (1, 64),
    "spline_kernel": (2, 64), "locate_dim": (0, 4096), "sinkhorn_epsilon": (1e-4, 1e4),
    "sinkhorn_rounds": (1, 10_000), "min_score": (0, 1), "drop_path": (0, BELOW_1),
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
    locate_dim: int = 0
    """width of the descriptors that find points anywhere in an image; 0 is for matching given points alone"""
    sinkhorn_epsilon: float = 0.035
    """temperature of the Sinkhorn iteration"""
    sinkhorn_rounds: int = 27
    """rounds of the Sinkhorn iteration"""
    min_score: float = 0.0
    """a match with a lower score is taken for none when photographs are matched; calibrated on unmatched points"""
    calibration: tuple[float, ...] = ()
    """rising raw scores, then the probabilities that they stand for; nothing leaves scores as they are"""
    locate_calibration: tuple[float, ...] = ()
    """the same for the scores of points that are located"""

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
        for name in ("calibration", "locate_calibration"):
            knots = getattr(self, name)
            halves = knots[: len(knots) // 2], knots[len(knots) // 2 :]
            numbers = len(knots) % 2 == 0 and all(isinstance(p, int | float) for p in knots)
            if not numbers or not all(0 <= p <= q <= 1 for half in halves for p, q in itertools.pairwise(half)):
                raise ConfigError(f"model.{name} is {shown(knots)}, expected rising scores, then their probabilities")
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
    size: int | None = None
    """side that photographs are resized to, such as 518 for more precision; the network's own if not given"""
    one_to_one: bool = False
    """use no point twice"""
    mutual: bool = False
    """keep only matches that are the best of both their points"""
    min_score: float | None = None
    """matches below this score, from 0 to 1, are dropped; the network's calibrated one if not given, which leaves a
    quarter unanswered where every point of two whole photographs has a partner; 0 answers all"""


@dataclass(frozen=True)
class LocateOptions:
    """How landmarks are located."""

    weights: str = "small"
    """a bundled network, or a file or folder that training wrote"""
    device: str = "auto"
    """auto, cpu, cuda or mps"""
    backend: BackendName = "auto"
    """what runs the network: torch, or onnx, which needs no torch; auto is torch where it is installed with a GPU"""
    looks: Literal[1, 2] = 2
    """2 looks at each landmark's surroundings once more, in more detail; 1 is several times faster"""
    references: int = 30
    """of more annotated photographs than these, those are used that are most like the others"""
    any_way_round: bool = False
    """the things lie any way round; mirrored, too, where the landmarks' names have a left and a right"""
