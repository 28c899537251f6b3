"""A sheet of random crops with their named keypoints: whether a dataset was read right shows at a glance."""

import colorsys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from normmatch import viz
from normmatch.datasets.crops import read_crop
from normmatch.datasets.types import AnnotatedObject, Dataset
from normmatch.errors import DataError, NormMatchError
from normmatch.geometry import crop_keypoints, resize_crop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TILE, MARGIN = 480, 28  # pixels: side of a tile, and the space around its crop, for dots on the edge
MOST_NAMES = 40  # with more points than this, names would hide the picture
MOST_LETTERS = 32  # of a file's name
FRAME, GREY, RED = 238, "#8a8f98", "#b3261e"
Chosen = tuple[str, AnnotatedObject]  # the name of a split, and an object of it


def contact_sheet(dataset: Dataset, path: Path, seed: int = 0, columns: int = 5, rows: int = 4) -> None:
    """Draw random crops with their named keypoints, classes in turn, as a picture."""
    viz.check_format(path)
    chosen = choose(dataset, columns * rows, seed)
    if not chosen:
        raise DataError(f"The dataset {dataset.name} has no objects to draw.")
    viz.save_plot(draw(chosen, name_colors(dataset), min(columns, len(chosen))), path, dpi=150)


def choose(dataset: Dataset, count: int, seed: int) -> list[Chosen]:
    """Up to `count` random objects with the name of their split, one of each class, then another of each ..."""
    rng = np.random.default_rng(seed)
    classes: dict[str, list[Chosen]] = {}
    for split_name, split in dataset.splits.items():
        for item in split.objects:
            classes.setdefault(item.label, []).append((split_name, item))
    order = [
        (turn, label, index)
        for label in sorted(classes)
        for turn, index in enumerate(rng.permutation(len(classes[label])))
    ]
    return [classes[label][index] for _, label, index in sorted(order)[:count]]


def name_colors(dataset: Dataset) -> dict[tuple[str, str], str]:
    """A colour for each keypoint name of a class, the same on all its tiles."""
    names: dict[str, set[str]] = {}
    for split in dataset.splits.values():
        for item in split.objects:
            names.setdefault(item.label, set()).update(item.names)
    colors = {}
    for label, of_class in names.items():
        for i, name in enumerate(sorted(of_class)):
            red, green, blue = (round(255 * c) for c in colorsys.hls_to_rgb(i / len(of_class), 0.5, 0.9))
            colors[label, name] = f"#{red:02x}{green:02x}{blue:02x}"
    return colors


def draw(chosen: list[Chosen], colors: dict[tuple[str, str], str], columns: int) -> "Figure":
    """The sheet: a tile for each object, or the sentence why it has none."""
    tiles, keypoints, names, notes = [], [], [], []
    for _, item in chosen:
        try:
            tile, points = make_tile(item)
            inside = np.all((points >= 0) & (points <= TILE), axis=1)  # (K,)
            note = f"{np.sum(~inside)} outside" if not inside.all() else ""
        except NormMatchError as error:
            tile, points, inside = np.full((TILE, TILE, 3), FRAME, np.uint8), np.zeros((0, 2)), np.zeros(0, bool)
            note = textwrap.fill(str(error), 44)
        tiles.append(tile)
        keypoints.append(points[inside])
        names.append([name for name, shown in zip(item.names, inside, strict=False) if shown])
        notes.append(note)
    figure = viz.plot_images(tiles, titles=[""] * len(tiles), columns=columns)
    hues = [[colors[item.label, name] for name in shown] for (_, item), shown in zip(chosen, names, strict=True)]
    viz.plot_keypoints(figure, keypoints, [shown if len(shown) <= MOST_NAMES else None for shown in names], hues)
    caption(figure, chosen, notes)
    return figure


def make_tile(item: AnnotatedObject) -> tuple[np.ndarray, np.ndarray]:
    """The crop in the middle of a tile (TILE, TILE, 3), and its keypoints (K, 2) there."""
    image, crop = read_crop(item)
    scale = (TILE - 2 * MARGIN) / max(crop[2], crop[3])
    width, height = (max(round(side * scale), 1) for side in crop[2:])
    left, top = (TILE - width) // 2, (TILE - height) // 2
    tile = np.full((TILE, TILE, 3), FRAME, np.uint8)
    tile[top : top + height, left : left + width] = np.asarray(resize_crop(image, crop, (width, height)))
    return tile, crop_keypoints(item.keypoints, crop, (width, height)) + np.array([left, top], np.float32)


def caption(figure: "Figure", chosen: list[Chosen], notes: list[str]) -> None:
    """Class, split and file above each tile; below it, what is missing."""
    for axes, (split, item), note in zip(viz.panels(figure), chosen, notes, strict=True):
        axes.text(0, -10, item.label, fontsize=10, weight="bold", parse_math=False)
        file = f"{item.image.parent.name}/{item.image.name}"
        file = f"{split}  {file if len(file) <= MOST_LETTERS else '…' + file[-MOST_LETTERS:]}"
        axes.text(TILE, -10, file, fontsize=7, color=GREY, ha="right", parse_math=False)
        middle = {"x": TILE / 2, "y": TILE / 2, "va": "center"} if "\n" in note else {"x": TILE / 2, "y": TILE - 8}
        axes.text(**middle, s=note, fontsize=7, color=RED, ha="center", parse_math=False)
