"""The same landmarks set twice: by several people, by one person again, or by a person and a program.

Files are joined by photograph, objects of a photograph by their order; one that is there several times in a file was
repeated, and is compared with itself. Distances are in pixels, shares of the object (the longer side of its landmarks'
box) and, where all photographs have a scale, millimetres.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from normmatch.annotations import Annotation
from normmatch.annotations.procrustes import align, line_of, plane_of
from normmatch.annotations.suspicions import stack
from normmatch.errors import InputError

Join = Literal["name", "order"]
Who = Literal["others", "themselves"]
WITHIN = (0.01, 0.02, 0.05)  # shares of the object
BADLY = 2.0  # times the scatter of half of the landmarks, from which one is badly defined


@dataclass(frozen=True, eq=False)
class Differences:
    """Pairs of settings of the same landmarks; NaN where one of the two has none."""

    names: tuple[str, ...]
    moves: np.ndarray  # (P, K, 2) from the first to the second, as shares of the object, turned like the mean shape
    pixels: np.ndarray  # (P, K) distances
    millimetres: np.ndarray  # (P, K), NaN where there is no scale
    mean: np.ndarray  # (K, 2) shape

    @property
    def shares(self) -> np.ndarray:
        """(P, K) distances as shares of the object."""
        return np.linalg.norm(self.moves, axis=2)

    @property
    def bias(self) -> np.ndarray:
        """(K, 2) how far the second are from the first on average, as shares of the object."""
        return _mean(self.moves)

    @property
    def scatter(self) -> np.ndarray:
        """(K,) root mean square of what is left over, as a share of the object."""
        return np.sqrt(_mean(((self.moves - self.bias) ** 2).sum(2)))

    @property
    def badly_defined(self) -> tuple[str, ...]:
        """Landmarks that scatter far more than half of them do."""
        usual = np.nanmedian(self.scatter)
        return tuple(n for n, value in zip(self.names, self.scatter, strict=True) if value > BADLY * usual)


def _mean(values: np.ndarray) -> np.ndarray:
    """Over the first axis, of what is known."""
    known = np.isfinite(values)
    return np.where(known, values, 0).sum(0) / np.maximum(known.sum(0), 1) + np.where(known.any(0), 0, np.nan)


def compare(files: Sequence[Sequence[Annotation]], join: Join = "name") -> dict[Who, Differences]:
    """Differences between files, and within files where they repeat photographs.

    Args:
        files: the objects of two or more files.
        join: take landmarks of the same name for the same, or those of the same place in the order.
    """
    if join == "order":
        files = [[_numbered(item) for item in items] for items in files]
    names = tuple(dict.fromkeys(name for items in files for item in items for name in (*item.order, *item.names)))
    shared = [name for name in names if sum(any(name in i.names for i in items) for items in files) > 1]
    groups = [_groups(items) for items in files]
    if not shared and len(files) > 1:
        raise InputError("The files have no landmark of the same name; expected some, or --join order.")
    pairs: dict[Who, list[tuple[Annotation, Annotation]]] = {"others": [], "themselves": []}
    for first, second in combinations(groups, 2):
        for key in first.keys() & second.keys():
            pairs["others"].append((first[key][0], second[key][0]))
    for group in groups:
        for objects in group.values():
            pairs["themselves"] += combinations(objects, 2)
    if not pairs["others"] and len(files) > 1:
        a, b = (next(iter(items)).image for items in files[:2])
        raise InputError(f"The files have no photograph in common, such as {a} and {b}; expected the same photographs.")
    if not any(pairs.values()):
        return {}
    every = [item for some in pairs.values() for pair in some for item in pair]
    mean, _, _, _ = align(stack(every, names))
    return {who: _differences(some, names, mean) for who, some in pairs.items() if some}


def _numbered(item: Annotation) -> Annotation:
    return replace(item, names=tuple(str(item.order.index(name) + 1) for name in item.names), landmarks=None)


def _groups(items: Sequence[Annotation]) -> dict[str, list[Annotation]]:
    """The objects of each photograph and class, called by its name without folders and ending."""
    groups: dict[str, list[Annotation]] = {}
    for item in items:
        if item.names:
            name = PurePosixPath(re.sub(r"\\", "/", item.image))
            groups.setdefault(f"{name.stem.lower()} {item.label}", []).append(item)
    return groups


def _differences(
    pairs: Sequence[tuple[Annotation, Annotation]], names: tuple[str, ...], mean: np.ndarray
) -> Differences:
    first, second = (stack([pair[k] for pair in pairs], names) for k in (0, 1))  # (P, K, 2)
    for (a, b), rows in zip(pairs, zip(first, second, strict=True), strict=True):
        if a.y_up != b.y_up:
            raise InputError(f"{a.source} and {b.source} count y from different ends; expected the photographs.")
        if not np.isfinite(rows[0] + rows[1]).any():
            raise InputError(f"{a.source} and {b.source} have no landmark in common.")
    size = np.nanmax(np.nanmax(first, 1) - np.nanmin(first, 1), 1)[:, None]  # (P, 1)
    apart = second - first
    _, _, turn, _ = align(np.concatenate([first, second]))
    turn = turn[: len(first)] / np.abs(turn[: len(first)])
    moves = plane_of(line_of(apart) * turn[:, None]) / size[..., None]
    pixels = np.linalg.norm(apart, axis=2)
    scale = np.array([a.scale or b.scale or np.nan for a, b in pairs])[:, None]
    return Differences(names, moves, pixels, pixels * scale, plane_of(mean))


def rows_of(found: Differences) -> Iterator[dict[str, float | str | int]]:
    """A row for each landmark, and one for all."""
    for k, name in [*enumerate(found.names), (-1, "all")]:
        chosen = slice(None) if k < 0 else slice(k, k + 1)
        shares, pixels, mm = found.shares[:, chosen], found.pixels[:, chosen], found.millimetres[:, chosen]
        known = np.isfinite(shares)
        if not known.any():
            continue
        row: dict[str, float | str | int] = {"landmark": name, "pairs": int(known.sum())}
        row |= {"pixels": float(pixels[known].mean()), "share": float(shares[known].mean())}
        row |= {"mm": float(mm[known].mean())} if np.isfinite(mm[known]).all() else {}
        row |= {f"within_{share:g}": float((shares[known] <= share).mean()) for share in WITHIN}
        if k >= 0:
            row |= {"bias": float(np.linalg.norm(found.bias[k])), "scatter": float(found.scatter[k])}
        yield row


def draw(path: Path, found: Differences) -> None:
    """A picture of the scatter on the mean shape: each difference a dot, its bias an arrow."""
    from matplotlib.figure import Figure

    from normmatch.viz import save_plot

    figure = Figure(figsize=(7, 7), layout="constrained")
    axes = figure.add_subplot()
    places = found.mean
    for k, name in enumerate(found.names):
        x, y = places[k]
        moves = found.moves[:, k][np.isfinite(found.moves[:, k]).all(1)]
        axes.scatter(x + moves[:, 0], y + moves[:, 1], s=5, color="#1f8fff", alpha=0.5, linewidths=0)
        axes.plot(x, y, "+", color="black", markersize=5)
        axes.annotate(name, (x, y), (5, 4), textcoords="offset points", fontsize=7).set_parse_math(False)
        if len(moves):
            axes.annotate("", (x + found.bias[k, 0], y + found.bias[k, 1]), (x, y), arrowprops={"arrowstyle": "->"})
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.set_axis_off()
    axes.set_title("differences, as they are, on the mean shape", fontsize=9)
    save_plot(figure, path)
