"""Failure analysis: pictures of the worst pairs of the hardest classes, and how many errors swap left and right."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from normmatch import viz
from normmatch.annotations.names import swap_left_right
from normmatch.datasets.types import PreparedSplit
from normmatch.evaluation.predictions import Predictions
from normmatch.outputs import made_by_us, writing

HARDEST = 5  # classes that pictures are taken from, as in the paper


def swapped_sides(predictions: Predictions) -> np.ndarray:
    """(M,) whether a point was matched with its namesake of the other side, such as left_eye with right_eye."""
    other = np.array([predictions.words.index(w) if (w := swap_left_right(word)) != word and w in predictions.words
                      else -1 for word in predictions.words])  # fmt: skip
    matched = predictions.matches0 >= 0
    place = predictions.starts1[predictions.owner0] + np.maximum(predictions.matches0, 0)
    return matched & (predictions.names1[place] == other[predictions.names0])


def swapped_share(predictions: Predictions) -> float:
    """The share of the wrong matches that swap left and right."""
    wrong = (predictions.truth0 >= 0) & ~predictions.right0
    return float((swapped_sides(predictions) & wrong).sum() / max(wrong.sum(), 1))


def rank(predictions: Predictions) -> list[np.ndarray]:
    """Of each class, the hardest first, the numbers of its pairs: the worst first, each pair of objects once."""
    accuracy = predictions.correct / np.maximum(predictions.total, 1)  # (P,)
    _, first = np.unique(np.sort(predictions.pairs, axis=1), axis=0, return_index=True)
    first = first[predictions.total[first] > 0]
    classes = []
    for label in np.unique(predictions.label[first]):
        rows = np.flatnonzero(predictions.label == label)
        level = predictions.correct[rows].sum() / max(predictions.total[rows].sum(), 1)
        mine = first[predictions.label[first] == label]
        order = np.lexsort((mine, -predictions.total[mine], accuracy[mine]))  # of equals those with more points
        classes.append((level, int(label), mine[order]))
    return [mine for _, _, mine in sorted(classes, key=lambda row: row[:2])]


def worst_pairs(ranked: Sequence[np.ndarray], count: int) -> list[int]:
    """Up to `count` pairs: from the hardest classes in turn, the worst of each first."""
    hardest = [rows[: -(-count // HARDEST) * HARDEST].tolist() for rows in ranked[:HARDEST]]
    longest = max(map(len, hardest), default=0)
    turns = [rows[i] for i in range(longest) for rows in hardest if i < len(rows)]
    return turns[:count]


def draw_worst(predictions: Predictions, split: PreparedSplit, count: int, folder: Path) -> None:
    """Write pictures of the worst pairs into a folder; those of an earlier call are replaced."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for old in filter(made_by_us, folder.glob("[0-9][0-9]*-*.png")):
            old.unlink()
        for n, k in enumerate(worst_pairs(rank(predictions), count), start=1):
            draw_pair(predictions, split, k, folder / f"{n:02d}-{predictions.labels[k]}.png")


def draw_pair(predictions: Predictions, split: PreparedSplit, number: int, path: Path) -> None:
    """A picture of a pair as the network sees it: right matches green, wrong ones red."""
    images = [np.asarray(split.images[i]) for i in predictions.pairs[number].tolist()]  # (S, S, 3) each
    crops = [f"{width} x {height} px" for width, height in predictions.sizes[number].tolist()]
    right, total = predictions.correct[number], predictions.total[number]
    score = predictions.scores0[predictions.owner0 == number].mean()
    head = f"{predictions.labels[number]}, {right} of {total} right, mean score {score:.2f}"
    titles = [f"{head}; {crops[0]}", crops[1]]
    viz.save_plot(viz.plot_pair(images, **predictions.pair(number), titles=titles), path, dpi=110)
