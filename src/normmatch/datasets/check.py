"""Looking at a dataset before training on it: what it holds, and what is missing."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from normmatch.datasets.pairs import class_pairs
from normmatch.datasets.types import Dataset, Split


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


@dataclass(frozen=True)
class Summary:
    """The counts of a dataset, and what it lacks."""

    name: str
    protocol: str
    counts: tuple[ClassCount, ...]
    missing: tuple[Path, ...]  # image files that do not exist
    skipped: Counter[str]  # annotations that were left out, by reason


def summarize(dataset: Dataset, fewest_shared: int = 2) -> Summary:
    """Count objects, images, keypoints and pairs by split and class; a possible pair shares `fewest_shared` names."""
    counts = []
    for split_name, split in dataset.splits.items():
        pairs = _count_pairs(split, fewest_shared)
        for label in sorted({item.label for item in split.objects}):
            items = [item for item in split.objects if item.label == label]
            names = {name for item in items for name in item.names}
            images = len({item.image for item in items})
            points = sum(len(item.names) for item in items)
            counts.append(ClassCount(split_name, label, len(items), images, points, len(names), pairs[label]))
    files = sorted({item.path for split in dataset.splits.values() for item in split.objects})
    missing = tuple(file for file in files if not file.is_file())
    return Summary(dataset.name, dataset.protocol, tuple(counts), missing, dataset.skipped)


def print_summary(summary: Summary, console: Console | None = None, shown: int = 10) -> None:
    """Print a table for each split, then what was skipped and why, and the first `shown` missing files."""
    console = console or Console()
    for split in dict.fromkeys(count.split for count in summary.counts):
        rows = [count for count in summary.counts if count.split == split]
        table = Table(title=f"{summary.name} ({summary.protocol}), {split}", title_justify="left", show_footer=True)
        table.add_column("class", footer=f"{len(rows)} classes")
        for column in ("objects", "images", "keypoints", "names", "pairs"):
            total = sum(getattr(row, column) for row in rows)
            table.add_column(column, footer="" if column == "names" else f"{total:,}", justify="right")
        for row in rows:
            numbers = (row.objects, row.images, row.keypoints, row.names, row.pairs)
            table.add_row(escape(row.label), *(f"{number:,}" for number in numbers))
        console.print(table)
    for reason, count in summary.skipped.most_common():
        console.print(f"left out: {count:,} x {reason}", markup=False, highlight=False)
    if summary.missing:
        console.print(f"missing: {len(summary.missing):,} image files, the first:", highlight=False)
        for file in summary.missing[:shown]:
            console.print(f"  {file}", markup=False, highlight=False, soft_wrap=True)
    if not summary.skipped and not summary.missing:
        console.print("nothing is missing, nothing was left out")


def _count_pairs(split: Split, fewest_shared: int) -> Counter[str]:
    """By class: the pairs that the split lists, or those that are possible where it lists none."""
    if split.pairs is None:
        return Counter({label: len(pairs) for label, pairs in class_pairs(split, fewest_shared).items()})
    return Counter(split.objects[first].label for first in np.asarray(split.pairs).reshape(-1, 2)[:, 0].tolist())
