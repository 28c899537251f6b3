"""Predict once: every pair of a list through a network; `score.py` makes numbers of it."""

import numpy as np
import torch
from rich.progress import track

from normmatch.data.batches import EvalBatches
from normmatch.data.pair_lists import PairList
from normmatch.data.pairs import PreparedSplit, Sampling
from normmatch.errors import DataError
from normmatch.evaluation.bank import FeatureBank
from normmatch.evaluation.predictions import Predictions, ask
from normmatch.model.assignment import match_scores, one_to_one
from normmatch.model.matcher import NormMatch


@torch.inference_mode()
def predict(
    model: NormMatch,
    split: PreparedSplit,
    pair_list: PairList,
    *,
    sampling: Sampling = "intersection",
    hungarian: bool = False,
    batch_size: int = 256,
    progress: bool = True,
    bank: FeatureBank | None = None,
) -> Predictions:
    """Match every pair of the list, by the best column of each row or one to one by the Hungarian method.

    The images are those in the `bank`; without one they are encoded here.
    """
    device = next(model.parameters()).device
    if not len(pair_list):
        raise DataError("there is no pair to evaluate; expected a pair list with at least one")
    bank = bank or FeatureBank(model, [(split, pair_list.pairs)], progress=progress)
    batches = EvalBatches(split, pair_list, batch_size, sampling)
    matches, scores = [], []
    for k in track(range(len(batches)), "matching", disable=not progress, transient=True):
        data = {key: value.to(device, non_blocking=True) for key, value in batches[k].items()}
        seen = {f"features{i}": bank.nodes(split, data[f"index{i}"], data[f"keypoints{i}"]) for i in "01"}
        output = model.match({**data, **seen})
        matches0, scores0 = output["matches0"], output["matching_scores0"]
        if hungarian:
            matches0 = one_to_one(output["log_assignment"])
            chosen = match_scores(output["log_assignment"], output["similarity"])  # (B, N, N)
            chosen = chosen.gather(2, matches0.clamp_min(0).unsqueeze(2)).squeeze(2)  # (B, N)
            scores0 = chosen.masked_fill(matches0 < 0, 0.0)
        matches.append(matches0[data["mask0"]].cpu().numpy().astype(np.int32))
        scores.append(scores0[data["mask0"]].float().cpu().numpy())
    meta = {
        "dataset": pair_list.dataset,
        "objects": pair_list.objects,
        "seed": pair_list.seed,
        "jitter": pair_list.jitter,
        "sampling": sampling,
        "one_to_one": hungarian,
        "image_size": int(split.images.shape[1]),
    }
    asked = ask(split, pair_list, sampling)
    return Predictions(**asked, matches0=np.concatenate(matches), scores0=np.concatenate(scores), meta=meta)
