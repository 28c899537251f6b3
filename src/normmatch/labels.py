"""Names beside the points of a picture, and where they stand among many so that they can be read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def fineness(count: int) -> float:
    """1 for a few points, less for many: 60 lines as thick as 3 would hide the images."""
    return float(np.clip((10 / max(count, 1)) ** 0.5, 0.3, 1.0))


def write_names(axes: "Axes", points: np.ndarray, names: Sequence[str], left: bool) -> None:
    """Write names beside their points, on the side that the lines do not go to."""
    from matplotlib.patheffects import withStroke

    size = max(9.0 * fineness(len(points)), 4.0)
    halo = [withStroke(linewidth=size / 4, foreground="white")]
    for point, name in zip(points, names, strict=True):
        text = axes.annotate(name, point, (-0.6 * size if left else 0.6 * size, 0.3 * size), textcoords="offset points")
        text.set(fontsize=size, ha="right" if left else "left", va="center", path_effects=halo, zorder=6)
        text.set_parse_math(False)  # dollars in a name are dollars


def spread_names(axes: "Axes", points: np.ndarray, names: Sequence[str], colors: Sequence[Any]) -> None:
    """Write names near their points: where they cover the least of each other and of the dots."""
    from matplotlib.patheffects import withStroke

    size = max(8.0 * fineness(len(points)), 5.0)
    (_, width), (height, _) = axes.get_xlim(), axes.get_ylim()
    figure: Any = axes.get_figure()
    unit = width / (72 * axes.get_position().width * figure.get_figwidth())  # pixels of the image per point of the font
    widths = [0.56 * len(name) * size * unit for name in names]
    boxes = place(points, widths, 1.25 * size * unit, np.array([width, height]))
    halo = [withStroke(linewidth=size / 4, foreground="white")]
    for point, (left, bottom, right, top), name, color in zip(points, boxes, names, colors, strict=True):
        nearest = np.clip(point, (left, bottom), (right, top))
        if np.linalg.norm(point - nearest) > size * unit:  # the name is not right beside its dot
            axes.plot(*np.stack([point, nearest], 1), color=color, linewidth=size / 6, path_effects=halo, zorder=5)
        middle = (left + right) / 2, (bottom + top) / 2
        axes.text(*middle, name, fontsize=size, ha="center", va="center", path_effects=halo, parse_math=False, zorder=7)


def place(points: np.ndarray, widths: Sequence[float], height: float, extent: np.ndarray) -> np.ndarray:
    """Boxes (N, 4) for labels near their points (N, 2): x0, y0, x1, y1, inside of the `extent` (2,) of an image.

    Each in turn takes, of places around its point, the one that covers the least of the boxes before it and of dots.
    """
    radius = height / 2
    taken = np.concatenate([points - radius, points + radius], 1)  # (N, 4), the dots
    angles = np.arange(16) * (np.pi / 8)
    around = np.stack([np.cos(angles), np.sin(angles)], 1)  # (16, 2)
    for point, width in zip(points, widths, strict=True):
        half = np.array([width, height]) / 2
        distance = np.repeat(height * np.array([0.6, 1.3, 2.2, 3.4, 5.0]), len(around))[:, None]  # (80, 1)
        middle = point + np.tile(around, (5, 1)) * (distance + half)  # (80, 2)
        middle = np.clip(middle, half, np.maximum(extent - half, half))
        boxes = np.concatenate([middle - half, middle + half], 1)  # (80, 4)
        cost = overlap(boxes, taken).sum(1) + distance[:, 0] * height / 16
        taken = np.concatenate([taken, boxes[[cost.argmin()]]])
    return taken[len(points) :]


def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The areas (A, B) that boxes (A, 4) share with boxes (B, 4)."""
    low = np.maximum(first[:, None, :2], second[:, :2])
    high = np.minimum(first[:, None, 2:], second[:, 2:])
    return (high - low).clip(0).prod(2)
