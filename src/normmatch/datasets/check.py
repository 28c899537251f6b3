"""Looking at a dataset before training on it: what it holds, what is missing, and a sheet of random crops."""

import textwrap
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from normmatch import viz
from normmatch.annotations import Annotation
from normmatch.datasets.crops import read_crop
from normmatch.datasets.pairs import class_pairs
from normmatch.datasets.types import Dataset, Split
from normmatch.errors import DataError, NormMatchError
from normmatch.geometry import crop_keypoints, resize_crop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TILE = 480  # pixels, of a side
MOST_NAMES = 40  # with more points than this, names would hide the picture
MOST_LETTERS = 44  # of a title's line
Chosen = tuple[str, Annotation]  # the name of a split, and an object of it


@dataclass(frozen=True)
class ClassCount:
    """What one class of one split holds."""

    split: str
    label: str
    objects: int
    images: int
    keypoints: int
    names: int  # distinct keypoint names
    pairs: int  # listed, or possible where the split lists none


def count_classes(split_name: str, split: Split, fewest_shared: int = 2) -> list[ClassCount]:
    """Objects, images, keypoints and pairs of each class; a possible pair shares `fewest_shared` names."""
    if split.pairs is None:
        pairs = {label: len(found) for label, found in class_pairs(split, fewest_shared).items()}
    else:
        pairs = Counter(split.objects[first].label for first in np.asarray(split.pairs).reshape(-1, 2)[:, 0].tolist())
    counts = []
    for label in sorted({item.label for item in split.objects}):
        items = [item for item in split.objects if item.label == label]
        names = [name for item in items for name in item.names]
        images = len({item.image for item in items})
        counts.append(ClassCount(split_name, label, len(items), images, len(names), len(set(names)), pairs[label]))
    return counts


def print_summary(dataset: Dataset, fewest_shared: int = 2, console: Console | None = None, shown: int = 10) -> None:
    """Print a table for each split, then what was skipped and why, and the first `shown` missing files."""
    console = console or Console()
    for split_name, split in dataset.splits.items():
        rows = count_classes(split_name, split, fewest_shared)
        table = Table(
            title=f"{dataset.name} ({dataset.protocol}), {split_name}", title_justify="left", show_footer=True
        )
        table.add_column("class", footer=f"{len(rows)} classes")
        for column in ("objects", "images", "keypoints", "names", "pairs"):
            total = sum(getattr(row, column) for row in rows)
            table.add_column(column, footer="" if column == "names" else f"{total:,}", justify="right")
        for row in rows:
            numbers = (row.objects, row.images, row.keypoints, row.names, row.pairs)
            table.add_row(escape(row.label), *(f"{number:,}" for number in numbers))
        console.print(table)
    for reason, count in dataset.skipped.most_common():
        console.print(f"left out: {count:,} x {reason}", markup=False, highlight=False)
    files = sorted({item.path for split in dataset.splits.values() for item in split.objects})
    missing = [file for file in files if not file.is_file()]
    if missing:
        console.print(f"missing: {len(missing):,} image files, the first:", highlight=False)
        for file in missing[:shown]:
            console.print(f"  {file}", markup=False, highlight=False, soft_wrap=True)
    if not dataset.skipped and not missing:
        console.print("nothing is missing, nothing was left out")


def contact_sheet(dataset: Dataset, path: Path, seed: int = 0, columns: int = 5, rows: int = 4) -> None:
    """Draw random crops with their named keypoints, classes in turn: whether a dataset was read right shows at once."""
    viz.check_format(path)
    chosen = choose(dataset, columns * rows, seed)
    if not chosen:
        raise DataError(f"The dataset {dataset.name} has no objects to draw.")
    viz.save_plot(draw(chosen, min(columns, len(chosen))), path, dpi=150)


def choose(dataset: Dataset, count: int, seed: int) -> list[Chosen]:
    """Up to `count` random objects with the name of their split, one of each class, then another of each ..."""
    rng = np.random.default_rng(seed)
    classes: dict[str, list[Chosen]] = {}
    for split_name, split in dataset.splits.items():
        for item in split.objects:
            classes.setdefault(item.label, []).append((split_name, item))
    shuffled = [[classes[label][i] for i in rng.permutation(len(classes[label]))] for label in sorted(classes)]
    return [item for turn in zip_longest(*shuffled) for item in turn if item][:count]


def draw(chosen: list[Chosen], columns: int) -> "Figure":
    """A tile for each object, as the network sees it, or a grey one with the sentence why it cannot be used."""
    tiles, keypoints, names, titles = [], [], [], []
    for split, item in chosen:
        tile, points, title = np.full((TILE, TILE, 3), 238, np.uint8), np.zeros((0, 2)), ""
        try:
            image, crop = read_crop(item)
            tile = np.asarray(resize_crop(image, crop, (TILE, TILE)))  # (TILE, TILE, 3)
            points = crop_keypoints(item.keypoints, crop, (TILE, TILE))  # (K, 2)
            title = f"{item.label}, {split}: {item.path.name}"[:MOST_LETTERS]
        except NormMatchError as error:
            title = textwrap.fill(str(error), MOST_LETTERS)
        inside = np.all((points >= 0) & (points <= TILE), axis=1)  # (K,)
        tiles.append(tile)
        titles.append(title)
        keypoints.append(points[inside])
        names.append([name for name, seen in zip(item.names, inside, strict=False) if seen])
    figure = viz.plot_images(tiles, titles, columns)
    viz.plot_keypoints(figure, keypoints, [shown if len(shown) <= MOST_NAMES else None for shown in names])
    return figure
