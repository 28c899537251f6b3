"""Evaluation: predict once, then score. Every object goes through the backbone once, however many pairs it is in."""

from dataclasses import dataclass

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from normmatch.data.batches import EvalBatches, read_images
from normmatch.data.pair_lists import PairList
from normmatch.data.pairs import PreparedSplit, Sampling
from normmatch.errors import DataError
from normmatch.metrics import Average, accuracy_by_class
from normmatch.model.backbone import Features
from normmatch.model.matcher import NormMatch

ENCODE_BATCH = 64


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model said about the pairs of a list: counts suffice for accuracy."""

    labels: tuple[str, ...]  # P classes
    correct: np.ndarray  # (P,) true matches that were found
    total: np.ndarray  # (P,) true matches

    def accuracy(self, average: Average = "keypoints") -> dict[str, float]:
        return accuracy_by_class(self.correct, self.total, self.labels, average)


@torch.inference_mode()
def predict(
    model: NormMatch,
    split: PreparedSplit,
    pair_list: PairList,
    *,
    sampling: Sampling = "intersection",
    batch_size: int = 256,
    progress: bool = True,
) -> Predictions:
    """Match every pair of the list by row arg-max."""
    device = next(model.parameters()).device
    if not len(pair_list):
        raise DataError("there is no pair to evaluate; expected a pair list with at least one")
    features = FeatureBank(model, split, np.unique(pair_list.pairs), progress)
    batches = EvalBatches(split, pair_list, batch_size, sampling)
    correct = np.zeros(len(pair_list), np.int64)
    total = np.zeros(len(pair_list), np.int64)
    for k in track(range(len(batches)), "matching", disable=not progress, transient=True):
        batch = batches[k]
        data = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
        output = model.match({**data, "features0": features[data["index0"]], "features1": features[data["index1"]]})
        known = data["matches0"] >= 0
        right = known & (output["matches0"] == data["matches0"])
        rows = batch["pair"].numpy()
        correct[rows], total[rows] = right.sum(1).cpu().numpy(), known.sum(1).cpu().numpy()
    labels = tuple(split.objects[i].label for i in pair_list.pairs[:, 0])
    return Predictions(labels, correct, total)


class FeatureBank:
    """The encoded images of the objects that a pair list uses, in bf16 on the model's device."""

    def __init__(self, model: NormMatch, split: PreparedSplit, wanted: np.ndarray, progress: bool) -> None:
        device = next(model.parameters()).device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.place = torch.full((len(split.objects),), -1, dtype=torch.long, device=device)
        self.place[torch.from_numpy(wanted).to(device)] = torch.arange(len(wanted), device=device)
        parts = []
        chunks = [wanted[i : i + ENCODE_BATCH] for i in range(0, len(wanted), ENCODE_BATCH)]
        for chunk in track(chunks, "encoding", disable=not progress, transient=True):
            images = read_images(split, chunk).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                found = model.encode(images.float() / 255)
            parts.append((found.maps[0].to(dtype), found.maps[1].to(dtype), found.pooled.float()))
        self.size = found.size
        self.first, self.second, self.pooled = (torch.cat(p) for p in zip(*parts, strict=True))

    def __getitem__(self, index: Tensor) -> Features:
        """The features of objects index (B,)."""
        place = self.place[index]
        return Features((self.first[place].float(), self.second[place].float()), self.pooled[place], self.size)
