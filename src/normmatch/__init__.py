"""NormMatch: semantic keypoint matching with the Normalized Matching Transformer."""

from normmatch.config import PRESETS, ModelConfig
from normmatch.errors import NormMatchError
from normmatch.model.matcher import NormMatch

__all__ = ["PRESETS", "ModelConfig", "NormMatch", "NormMatchError", "__version__"]
__version__ = "0.1.0"
