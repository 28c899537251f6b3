"""What a network predicted for a list of pairs, and the truth: enough to score it without network or images.

In a file of predictions (safetensors) the points of all pairs lie one after the other, and `counts` says how many each
pair has. Classes and names of keypoints are numbers into `words`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from normmatch.datasets.types import KeypointPair, PreparedSplit
from normmatch.errors import DataError
from normmatch.evaluation.metrics import Average, accuracy_by_class
from normmatch.outputs import whole_file

NUMBERS = ("label", "names0", "names1")  # arrays of numbers of words
VERSION = 1  # of the file's format
ARRAYS = {  # dimensions of what a file holds: P pairs, M and N points of all images 0 and of all images 1
    "label": "P", "pairs": "P2", "sizes": "P22", "counts": "P2", "names0": "M", "names1": "N",
    "keypoints0": "M2", "keypoints1": "N2", "truth0": "M", "matches0": "M", "scores0": "M",
}  # fmt: skip
META = ("dataset", "objects", "split", "protocol", "sampling", "seed", "jitter", "image_size", "weights")


@dataclass(frozen=True, eq=False)
class Predictions:
    """Pairs as they were shown to a network, the truth, and the matches that it predicted."""

    words: tuple[str, ...]
    label: np.ndarray  # (P,) class of each pair, a word
    pairs: np.ndarray  # (P, 2) objects of the split
    sizes: np.ndarray  # (P, 2, 2) width and height of both crops before they were resized
    counts: np.ndarray  # (P, 2) points of both images
    names0: np.ndarray  # (M,) words
    names1: np.ndarray  # (N,)
    keypoints0: np.ndarray  # (M, 2) in pixels of the resized crop
    keypoints1: np.ndarray  # (N, 2)
    truth0: np.ndarray  # (M,) index into the pair's points of image 1, -1 where there is no partner
    matches0: np.ndarray  # (M,) what the network predicted
    scores0: np.ndarray  # (M,) in [0, 1]
    meta: Mapping[str, Any]  # where it all comes from, see META

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The class of each pair."""
        return tuple(self.words[i] for i in self.label.tolist())

    @cached_property
    def owner0(self) -> np.ndarray:
        """(M,) the pair that each point of image 0 belongs to."""
        return np.repeat(np.arange(len(self.counts)), self.counts[:, 0])

    @cached_property
    def right0(self) -> np.ndarray:
        """(M,) whether the point has a partner and was given it."""
        return (self.truth0 >= 0) & (self.matches0 == self.truth0)

    @cached_property
    def correct(self) -> np.ndarray:
        """(P,) true matches that were found."""
        return np.bincount(self.owner0, self.right0, len(self.counts)).astype(np.int64)

    @cached_property
    def total(self) -> np.ndarray:
        """(P,) true matches."""
        return np.bincount(self.owner0, self.truth0 >= 0, len(self.counts)).astype(np.int64)

    @cached_property
    def starts1(self) -> np.ndarray:
        """(P,) where the points of each image 1 begin in keypoints1."""
        return np.cumsum(self.counts[:, 1]) - self.counts[:, 1]

    def pair(self, number: int) -> dict[str, Any]:
        """The points of one pair, by the names of the arguments of `viz.plot_pair`."""
        (start0, start1), (count0, count1) = self.counts[:number].sum(0), self.counts[number]
        rows0, rows1 = slice(start0, start0 + count0), slice(start1, start1 + count1)
        return {
            "keypoints0": self.keypoints0[rows0],
            "keypoints1": self.keypoints1[rows1],
            "matches0": self.matches0[rows0],
            "truth": self.truth0[rows0],
            "names": [self.words[i] for i in self.names0[rows0].tolist()],
        }

    def accuracy(self, average: Average = "keypoints") -> dict[str, float]:
        """Accuracy per class."""
        return accuracy_by_class(self.correct, self.total, self.labels, average)


def record(split: PreparedSplit, shown: Sequence[KeypointPair]) -> dict[str, Any]:
    """All of `Predictions` that is known before a network is asked about these pairs."""
    words: dict[str, int] = {}

    def numbers(texts: list[str]) -> np.ndarray:
        return np.array([words.setdefault(text, len(words)) for text in texts], np.int32)

    pairs = np.array([(pair.index0, pair.index1) for pair in shown], np.int32)  # (P, 2)
    sizes = split.crop_sizes().astype(np.int32)  # (n, 2)
    columns = {
        "label": numbers([pair.label for pair in shown]),
        "pairs": pairs,
        "sizes": sizes[pairs],
        "counts": np.array([(len(pair.names0), len(pair.names1)) for pair in shown], np.int32),
        "names0": numbers([name for pair in shown for name in pair.names0]),
        "names1": numbers([name for pair in shown for name in pair.names1]),
        "keypoints0": np.concatenate([pair.keypoints0 for pair in shown]),
        "keypoints1": np.concatenate([pair.keypoints1 for pair in shown]),
        "truth0": np.concatenate([pair.gt_matches0 for pair in shown]).astype(np.int32),
    }
    return {"words": tuple(words), **columns}


def save_predictions(predictions: Predictions, path: Path) -> None:
    """Write a file of predictions, whole or not at all."""
    arrays = {name: np.ascontiguousarray(getattr(predictions, name)) for name in ARRAYS}
    about = {"version": VERSION, "words": predictions.words, **predictions.meta}
    try:
        with whole_file(path) as temporary:
            save_file(arrays, temporary, metadata={"predictions": json.dumps(about)})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"the predictions {path} cannot be written: {reason}.") from error


def load_predictions(path: Path) -> Predictions:
    """Read a file of predictions and make sure that it is one."""
    try:
        with safe_open(path, "np") as file:
            about = json.loads((file.metadata() or {}).get("predictions", "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise DataError(f"the predictions {path} do not exist; expected a file that normmatch eval wrote.") from None
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is no file of predictions: {error}") from error
    if not isinstance(about, dict) or about.get("version") != VERSION or not {"words", *META} <= about.keys():
        raise DataError(f"{path} is no file of predictions: expected format {VERSION} of normmatch eval.")
    if not _is_whole(arrays, len(about["words"])):
        raise DataError(f"{path} is no whole file of predictions: its arrays do not fit each other.")
    meta = {key: value for key, value in about.items() if key not in ("version", "words")}
    return Predictions(words=tuple(about["words"]), meta=meta, **arrays)


def _is_whole(arrays: Mapping[str, np.ndarray], words: int) -> bool:
    """Whether all arrays are there, in shapes that fit, and point at what there is."""
    if arrays.keys() != ARRAYS.keys():
        return False
    length = {"P": len(arrays["pairs"]), "M": len(arrays["names0"]), "N": len(arrays["names1"]), "2": 2}
    if any(arrays[name].shape != tuple(length[d] for d in dimensions) for name, dimensions in ARRAYS.items()):
        return False
    counts = arrays["counts"]
    if tuple(counts.sum(0)) != (length["M"], length["N"]) or counts.min(initial=0) < 0:
        return False
    candidates = np.repeat(counts[:, 1], counts[:, 0])  # (M,)
    indices = {"truth0": (-1, candidates), "matches0": (-1, candidates), **dict.fromkeys(NUMBERS, (0, words))}
    return all(((arrays[k] >= low) & (arrays[k] < high)).all() for k, (low, high) in indices.items())
