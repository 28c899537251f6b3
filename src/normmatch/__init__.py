"""NormMatch: semantic keypoint matching with the Normalized Matching Transformer."""

from typing import TYPE_CHECKING, Any

from normmatch.config import PRESETS, ModelConfig
from normmatch.errors import NormMatchError

if TYPE_CHECKING:
    from normmatch.matching.matcher import Matcher
    from normmatch.matching.one_pair import match_pair
    from normmatch.model.network import NormMatch

__all__ = ["PRESETS", "Matcher", "ModelConfig", "NormMatch", "NormMatchError", "__version__", "match_pair"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load torch only when the network is asked for, so that `normmatch --help` answers at once."""
    if name == "NormMatch":
        from normmatch.model.network import NormMatch

        return NormMatch
    if name == "Matcher":
        from normmatch.matching.matcher import Matcher

        return Matcher
    if name == "match_pair":
        from normmatch.matching.one_pair import match_pair

        return match_pair
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
