"""Every setting of NormMatch as frozen dataclasses, and the presets."""

from normmatch.config.network import (
    LIMITS,
    MAX_NAME,
    MAX_PARAMETERS,
    MAX_WORKERS,
    PRESETS,
    BackendName,
    DatasetName,
    Format,
    LocateOptions,
    MatchOptions,
    ModelConfig,
    ProtocolName,
    Vertical,
)
from normmatch.config.training import AugmentConfig, DataConfig, LossConfig, TrainConfig

__all__ = [
    "LIMITS", "MAX_NAME", "MAX_PARAMETERS", "MAX_WORKERS", "PRESETS", "AugmentConfig", "BackendName", "DataConfig",
    "DatasetName", "Format", "LocateOptions", "LossConfig", "MatchOptions", "ModelConfig", "ProtocolName",
    "TrainConfig", "Vertical",
]  # fmt: skip
