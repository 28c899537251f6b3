"""How photographs are matched: the options that the commands have in common. Importing this loads nothing large."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from normmatch.config import BackendName

if TYPE_CHECKING:
    from normmatch.matching.matcher import Matcher


@dataclass(frozen=True)
class MatchOptions:
    """How every pair is matched."""

    weights: str = "small"
    """a bundled network, or a file or folder that training wrote"""
    device: str = "auto"
    """auto, cpu, cuda or mps"""
    backend: BackendName = "torch"
    """what runs the network; onnx needs what `normmatch export` wrote as its weights"""
    one_to_one: bool = False
    """use no point twice"""
    mutual: bool = False
    """keep only matches that are the best of both their points"""
    min_score: float | None = None
    """a match with a lower score, from 0 to 1, is none; the network's calibrated one if not given"""

    def open(self, cache: int = 32) -> "Matcher":
        """The network, which remembers `cache` images."""
        from normmatch.matching.matcher import Matcher

        return Matcher(self.weights, device=self.device, backend=self.backend, cache=cache)

    def choice(self) -> dict[str, Any]:
        """The options of `Matcher.match`."""
        return {"one_to_one": self.one_to_one, "mutual": self.mutual, "min_score": self.min_score}
