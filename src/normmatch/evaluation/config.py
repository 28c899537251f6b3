"""The settings of `normmatch eval`."""

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal

from normmatch.checks import check_ranges
from normmatch.config import ProtocolName
from normmatch.errors import ConfigError


@dataclass(frozen=True)
class EvalConfig:
    """What to measure, on what, and where to write it."""

    task: Literal["match", "locate"] = "match"
    """match given points, or locate points of one photograph, or of a few, in others"""
    references: tuple[int, ...] = ()
    """with locate: from so many annotated photographs of a class, such as 1 3 5 10; the dataset's pairs without it"""
    draws: int = 3
    """with locate and references: how often these are drawn"""
    queries: int = 80
    """with locate and references: the most photographs that are asked for each draw"""
    boxes: bool = False
    """with locate: the objects' boxes are known; whole photographs are searched without"""
    looks: Literal[1, 2] = 2
    """with locate: 1 or 2"""
    turned: bool = False
    """with locate: the things lie any way round"""
    every: int = 1
    """with locate: every so manieth landmark"""
    cache: Path | None = None
    """with locate: a folder where what the encoder says is kept for the next time"""
    root: Path = Path("data")
    """the folder that the dataset lies in"""
    protocol: tuple[ProtocolName, ...] = ("nmt",)
    """the rules to read the annotations and to score by; several give a table each"""
    split: str = "test"
    """train, val or test"""
    pairs: int = 1000
    """pairs per class; a dataset that comes with pairs uses those"""
    seed: int = 0
    """fixes the pairs and the jitter"""
    sampling: Literal["intersection", "inclusion", "all"] = "intersection"
    """points of a pair that are shown: those in both images; also the rest of image 1; or all, with F1 then"""
    jitter: tuple[float, ...] = ()
    """also measure with Gaussian noise of these deviations on the keypoints, in pixels of the network's image"""
    gray: bool = False
    """show the network gray pictures: what the places of the keypoints alone give away"""
    calibrate: bool = False
    """choose the score below which matches are dropped, by the best F1 on the split val; write it into the weights"""
    predictions: tuple[Path, ...] = ()
    """score these files of predictions, which --out wrote; no network is run"""
    worst: int = 0
    """draw this many of the worst pairs"""
    out: Path | None = None
    """a folder for the predictions and the pictures; pictures go to the current one without it"""
    json: Path | None = None
    """a file for the results; - is standard output"""
    markdown: Path | None = None
    """a file for the tables"""
    overwrite: bool = False
    """replace files that NormMatch did not write, too"""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """what to compute on"""
    precision: Literal["auto", "bf16-mixed", "16-mixed", "32-true"] = "auto"
    """arithmetic of the backbone: auto is bf16-mixed on cuda and 32-true elsewhere"""
    batch_size: int = 64
    """pairs that are matched at a time"""

    def __post_init__(self) -> None:
        check_ranges(self, "", {"pairs": (1, inf), "batch_size": (1, inf), "seed": (0, inf), "worst": (0, inf)})
        check_ranges(self, "", {"draws": (1, inf), "queries": (1, inf), "every": (1, inf), "references": (1, inf)})
        check_ranges(self, "", {"jitter": (1e-6, 1e6)})
        for name in ("protocol", "jitter", "predictions"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ConfigError(f"{name} names something twice, expected each once.")
        if not self.protocol:
            raise ConfigError("protocol is empty, expected one or several of nmt, bbgm and thinkmatch.")
        if self.calibrate and self.gray:
            raise ConfigError("calibrate needs pictures, but gray takes them away; expected one of them.")
        for name in ("calibrate", "jitter", "gray"):
            if self.task == "locate" and getattr(self, name):
                raise ConfigError(f"{name} is for matching; it does not go with the task locate.")
            if self.predictions and getattr(self, name):
                raise ConfigError(f"{name} needs a network, but only predictions are given.")
