"""Predict with several networks: which pairs, with which points and which noise, and where it all comes from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from normmatch.config import DatasetName, ModelConfig
from normmatch.datasets.catalog import load_splits
from normmatch.datasets.pairs import PairList, sample_pair_list
from normmatch.datasets.protocols import Protocol, get_protocol
from normmatch.datasets.types import PreparedSplit, Sampling
from normmatch.errors import WeightsError
from normmatch.evaluation.config import EvalConfig
from normmatch.evaluation.features import FeatureCache
from normmatch.evaluation.predict import predict
from normmatch.evaluation.predictions import Predictions
from normmatch.evaluation.provenance import made_with
from normmatch.model.device import find_device
from normmatch.model.network import NormMatch
from normmatch.weights import find_weights, read_config

MAY_DIFFER: dict[str, Any] = {"backbone_weights": "", "drop_path": 0.0, "min_score": 0.0}  # between runs of a network


@dataclass(frozen=True, eq=False)
class Job:
    """Pairs of a split to be matched in one way."""

    name: str  # of the split
    split: PreparedSplit
    pair_list: PairList
    protocol: Protocol
    sampling: Sampling


def predict_all(weights: Sequence[str], name: DatasetName, config: EvalConfig) -> Iterator[list[Predictions]]:
    """One network after the other: its predictions for all jobs, see `make_jobs`."""
    files = [find_weights(item) for item in weights]
    configs = [read_config(file) for file in files]
    check_same_network(weights, configs)
    device = find_device(config.device)
    jobs = make_jobs(name, config, configs[0].image_size)
    for item, file in zip(weights, files, strict=True):
        model = NormMatch.from_pretrained(file).to(device)
        cache = FeatureCache(model, [(job.split, job.pair_list.pairs) for job in jobs], config.precision)
        yield [run_job(model, job, cache, item, config) for job in jobs]
        del cache  # before the next network fills its own


def check_same_network(weights: Sequence[str], configs: Sequence[ModelConfig]) -> None:
    """Mean and spread over several weights say something only if they are of one network, trained several times."""
    networks = [replace(config, **MAY_DIFFER) for config in configs]
    for item, network in zip(weights, networks, strict=True):
        if network != networks[0]:
            raise WeightsError(
                f"weights {item} are of another network than {weights[0]}; expected several trainings of one network."
            )


def make_jobs(name: DatasetName, config: EvalConfig, size: int) -> list[Job]:
    """Each protocol plain, then with jitter; for a calibration validation and test with all points, by the first."""
    jobs = []
    for number, protocol in enumerate(map(get_protocol, config.protocol)):
        calibrate = config.calibrate and number == 0
        needed = (config.split, "val") if calibrate else (config.split,)
        splits = load_splits(name, config.root, protocol.name, size, needed)  # type: ignore[arg-type]
        if config.gray:
            splits[config.split] = without_pictures(splits[config.split])
        pair_list = draw_pairs(splits[config.split], name, protocol, config)
        plain = Job(config.split, splits[config.split], pair_list, protocol, config.sampling)
        jobs += [plain] + [replace(plain, pair_list=replace(pair_list, jitter=sigma)) for sigma in config.jitter]
        if calibrate:
            shown: Sampling = "all" if config.sampling == "intersection" else config.sampling
            validation = draw_pairs(splits["val"], name, protocol, config)
            more = [Job("val", splits["val"], validation, protocol, shown), replace(plain, sampling=shown)]
            done = {(job.name, job.sampling) for job in jobs}
            jobs += [job for job in more if (job.name, job.sampling) not in done]
    return jobs


def without_pictures(split: PreparedSplit) -> PreparedSplit:
    """The same keypoints on gray."""
    return replace(split, images=np.broadcast_to(np.uint8(128), split.images.shape))


def draw_pairs(split: PreparedSplit, name: str, protocol: Protocol, config: EvalConfig) -> PairList:
    """The pairs of a split that the protocol asks for, the same for every network."""
    rules = protocol.fewest_shared, protocol.pairs
    return sample_pair_list(split, name, config.pairs, config.seed, *rules, strict=False)


def run_job(model: NormMatch, job: Job, cache: FeatureCache, weights: str, config: EvalConfig) -> Predictions:
    """The predictions of a network for a job, with an account of where they come from."""
    options: dict[str, Any] = {"hungarian": job.protocol.one_to_one, "batch_size": config.batch_size, "cache": cache}
    predictions = predict(model, job.split, job.pair_list, sampling=job.sampling, **options)
    meta = {
        "weights": weights,
        "split": job.name,
        "protocol": job.protocol.name,
        **predictions.meta,
        "gray": config.gray,
        "min_score": model.config.min_score,
        "precision": cache.precision,
        "left_out": sorted({item.label for item in job.split.objects} - set(predictions.labels)),
        "made_with": made_with(cache.device),
    }
    return replace(predictions, meta=meta)
