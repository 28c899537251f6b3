"""Predict the matches of every pair of a list, once; `score.py` makes numbers of them."""

import numpy as np
import torch
from rich.progress import track

from normmatch.datasets.batches import collate
from normmatch.datasets.pairs import PairList
from normmatch.datasets.types import KeypointPair, PreparedSplit, Sampling
from normmatch.errors import DataError
from normmatch.evaluation.features import FeatureCache
from normmatch.evaluation.predictions import Predictions, record
from normmatch.model.assignment import match_scores, one_to_one
from normmatch.model.network import NormMatch

MOST_EDGES = 2**18  # of a batch, all points joined with all: bounds the memory where there are many points


@torch.inference_mode()
def predict(
    model: NormMatch,
    split: PreparedSplit,
    pair_list: PairList,
    *,
    sampling: Sampling = "intersection",
    hungarian: bool = False,
    batch_size: int = 64,
    progress: bool = True,
    cache: FeatureCache | None = None,
) -> Predictions:
    """Match every pair of the list, by row arg-max or, one to one, by the Hungarian method.

    The features come from the `cache`; without one the images are encoded here.
    """
    if not len(pair_list):
        raise DataError("there is no pair to evaluate; expected a pair list with at least one.")
    cache = cache or FeatureCache(model, [(split, pair_list.pairs)], progress=progress)
    shown = [pair_list.pair(split, k, sampling) for k in range(len(pair_list))]
    sizes = [max(len(pair.names0), len(pair.names1)) for pair in shown]
    parts = _parts(sizes, batch_size)
    matches, scores = [np.empty(0)] * len(shown), [np.empty(0)] * len(shown)
    for part in track(parts, "matching", disable=not progress, transient=True):
        found = _match(model, cache, split, [shown[k] for k in part], sizes[part[-1]], hungarian)
        for k, matches0, scores0 in zip(part, *found, strict=True):
            count = len(shown[k].names0)
            matches[k], scores[k] = matches0[:count], scores0[:count]
    meta = {
        "dataset": pair_list.dataset,
        "objects": pair_list.objects,
        "seed": pair_list.seed,
        "jitter": pair_list.jitter,
        "sampling": sampling,
        "one_to_one": hungarian,
        "image_size": int(split.images.shape[1]),
    }
    known = record(split, shown)
    return Predictions(**known, matches0=np.concatenate(matches), scores0=np.concatenate(scores), meta=meta)


def _parts(sizes: list[int], batch_size: int) -> list[list[int]]:
    """Batches of pairs with about as many points each, so that little is padded; smaller where there are many."""
    order = np.argsort(sizes, kind="stable").tolist()
    parts = []
    while order:
        part = order[:batch_size]
        part = part[: max(1, MOST_EDGES // max(sizes[part[-1]], 1) ** 2)]
        parts.append(part)
        order = order[len(part) :]
    return parts


def _match(
    model: NormMatch, cache: FeatureCache, split: PreparedSplit, pairs: list[KeypointPair], points: int, hungarian: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Matches and scores (B, N) of some pairs, padded to N points."""
    data = {key: value.to(cache.device, non_blocking=True) for key, value in collate(pairs, points).items()}
    features = {f"features{i}": cache.nodes(split, data[f"index{i}"], data[f"keypoints{i}"]) for i in "01"}
    output = model.match({**data, **features})
    matches0, scores0 = output["matches0"], output["matching_scores0"]
    if hungarian:
        matches0 = one_to_one(output["log_assignment"])
        scores = match_scores(output["log_assignment"], output["similarity"])  # (B, N, N)
        chosen = scores.gather(2, matches0.clamp_min(0).unsqueeze(2)).squeeze(2)  # (B, N)
        scores0 = chosen.masked_fill(matches0 < 0, 0.0)
    return matches0.cpu().numpy().astype(np.int32), scores0.float().cpu().numpy()
