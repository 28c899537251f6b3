"""How well a network in training does on pairs that it is not trained on."""

from dataclasses import dataclass

from normmatch.config import TrainConfig
from normmatch.datasets.pairs import PairList, sample_pair_list
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import PreparedSplit
from normmatch.evaluation.features import FeatureCache
from normmatch.evaluation.predict import predict
from normmatch.evaluation.predictions import Predictions
from normmatch.model.network import NormMatch

SEED = 1000  # of the pairs, the same for every run


@dataclass
class Validation:
    """The pairs of a run's validations."""

    split: PreparedSplit
    pairs: PairList
    features: FeatureCache | None = None  # of a frozen backbone, kept after the first time


def make_validation(config: TrainConfig, split: PreparedSplit) -> Validation:
    fewest = get_protocol(config.data.protocol).fewest_shared
    pairs = sample_pair_list(split, config.data.name, config.validation_pairs, SEED, fewest, strict=False)
    return Validation(split, pairs)


def validate(model: NormMatch, validation: Validation, config: TrainConfig) -> Predictions:
    """The matches of a network on the validation pairs."""
    split, pairs = validation.split, validation.pairs
    features = validation.features or FeatureCache(model, [(split, pairs.pairs)], progress=False)
    if not config.backbone_lr:
        validation.features = features
    return predict(model, split, pairs, sampling=config.data.sampling, progress=False, cache=features)
