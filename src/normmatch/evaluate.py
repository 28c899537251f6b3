"""Evaluation: predict once, then score. Every object goes through the backbone once, however many pairs it is in."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from torch import Tensor

from normmatch import __version__
from normmatch.data.batches import EvalBatches, read_images
from normmatch.data.pair_lists import PairList, sample_pair_list
from normmatch.data.pairs import PreparedSplit, Sampling
from normmatch.data.protocols import Protocol
from normmatch.errors import DataError
from normmatch.metrics import Average, accuracy_by_class, mean_accuracy
from normmatch.model.assignment import one_to_one
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
    hungarian: bool = False,
    batch_size: int = 256,
    progress: bool = True,
) -> Predictions:
    """Match every pair of the list, by the best column of each row or one to one by the Hungarian method."""
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
        matches0 = one_to_one(output["log_assignment"]) if hungarian else output["matches0"]
        known = data["matches0"] >= 0
        right = known & (matches0 == data["matches0"])
        rows = batch["pair"].numpy()
        correct[rows], total[rows] = right.sum(1).cpu().numpy(), known.sum(1).cpu().numpy()
    labels = tuple(split.objects[i].label for i in pair_list.pairs[:, 0])
    return Predictions(labels, correct, total)


def evaluate(
    model: NormMatch, split: PreparedSplit, dataset: str, protocol: Protocol, pairs: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Accuracy by class under a protocol, on `pairs` pairs a class drawn once from the seed; all shares of one."""
    pair_list = sample_pair_list(split, dataset, pairs, seed, protocol.fewest_shared, protocol.pairs, strict=False)
    by_class = predict(model, split, pair_list, hungarian=protocol.one_to_one).accuracy(protocol.average)
    return {
        "dataset": dataset,
        "protocol": protocol.name,
        "pairs": len(pair_list),
        "seed": seed,
        "mean": mean_accuracy(by_class),
        "classes": by_class,
        "left_out": sorted({item.label for item in split.objects} - by_class.keys()),
        "device": str(next(model.parameters()).device),
        "torch": torch.__version__,
        "normmatch": __version__,
    }


def print_accuracy(result: dict[str, Any]) -> None:
    """A table of the accuracy by class, in per cent."""
    table = Table(
        title=f"{result['dataset']}, protocol {result['protocol']}, {result['pairs']:,} pairs", show_footer=True
    )
    table.add_column("class", footer="mean of classes")
    table.add_column("accuracy", footer=f"{100 * result['mean']:.1f}", justify="right")
    for label, accuracy in result["classes"].items():
        table.add_row(escape(label), f"{100 * accuracy:.1f}")
    Console().print(table)
    if result["left_out"]:
        warnings.warn(f"no pair to evaluate in {', '.join(result['left_out'])}", stacklevel=2)


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
