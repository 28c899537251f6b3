"""Pictures of images, keypoints, matches and similarities, as matplotlib figures without any global state.

    figure = plot_pair([image0, image1], keypoints0, keypoints1, matches0, scores)
    save_plot(figure, "matches.png")

Images are (H, W, 3) uint8 or (3, H, W) floats in [0, 1]; everything may be a numpy array or a torch tensor. The axes
have pixel centres at +0.5, so keypoints are drawn as they are. matplotlib comes with the extra `viz`. No torch here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from normmatch.checks import check_count, check_list, check_number, check_path, shown
from normmatch.errors import InputError, first_line
from normmatch.extras import require
from normmatch.io import MAX_PIXELS, as_numbers
from normmatch.labels import fineness, spread_names, write_names
from normmatch.outputs import MARK, PICTURES, whole_file, writing
from normmatch.plot_inputs import check_color, read_image, read_indices, read_list, read_points, read_texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = Any  # of numpy or torch

RIGHT, WRONG, UNMATCHED = "#12a150", "#e5243b", "#8a8f98"
POINT = "#1f8fff"
COLORMAP = "viridis"
ROW_HEIGHT, MAX_WIDTH, GAP, STRIP = 4.2, 14.0, 0.12, 0.5  # inches; the strip below holds the colour bar or the legend


def plot_pair(images: Sequence[Array], *matches: Array, titles: Sequence[str] | None = None, **more: Any) -> "Figure":
    """Show two images and join their matched keypoints; the other arguments are those of `plot_matches`."""
    figure = plot_images(images, titles)
    plot_matches(figure, *matches, **more)
    return figure


def plot_images(images: Sequence[Array], titles: Sequence[str] | None = None, columns: int | None = None) -> "Figure":
    """Show images side by side at one height, in rows of `columns` if given."""
    arrays = [read_image(image, f"image {index}") for index, image in enumerate(check_list(images, "images"))]
    if not arrays:
        raise InputError("There is no image to plot; expected at least one.")
    titles = read_texts("titles", titles, len(arrays), "images")
    if columns is not None:
        check_count(columns, "columns", 1, 1000)
    rows = [arrays[start : start + (columns or len(arrays))] for start in range(0, len(arrays), columns or len(arrays))]
    widest = max(sum(array.shape[1] / array.shape[0] for array in row) for row in rows)
    gaps = GAP * (len(rows[0]) - 1)
    side = min(ROW_HEIGHT, (MAX_WIDTH - gaps) / widest)  # the height of an image
    head = 0.35 if titles else 0.05
    width, height = side * widest + gaps, len(rows) * (head + side) + (len(rows) - 1) * GAP + STRIP
    figure = _new_figure(width, height)
    names, bottom = iter(titles or [""] * len(arrays)), height
    for row in rows:
        left, bottom = 0.0, bottom - head - side
        for array in row:
            wide = side * array.shape[1] / array.shape[0]
            _add_panel(figure, array, (left / width, bottom / height, wide / width, side / height), next(names))
            left += wide + GAP
        bottom -= GAP
    return figure


def plot_keypoints(
    figure: "Figure",
    keypoints: Sequence[Array],
    names: Sequence[Sequence[str] | None] | None = None,
    colors: Sequence[Any] | None = None,
) -> None:
    """Mark the keypoints (N, 2) of every image; `colors` is one colour, or a list of N, for each image.

    Names stand where they cover the least, tied to their dots by a line where those are not close by.
    """
    keypoints = check_list(keypoints, "keypoints")
    places = _panels(figure, len(keypoints))
    names, colors = (
        read_list(what, values, len(keypoints), "images") for what, values in (("names", names), ("colors", colors))
    )
    for index, axes in enumerate(places):
        points = read_points(keypoints[index], f"keypoints of image {index}")
        color = POINT if colors is None else check_color(colors[index], len(points))
        _dots(axes, points, color)
        words = read_texts(f"names of image {index}", names and names[index], len(points), "keypoints")
        if words:
            spread_names(axes, points, words, [color] * len(points) if isinstance(color, str) else color)


def plot_matches(
    figure: "Figure",
    keypoints0: Array,
    keypoints1: Array,
    matches0: Array,
    scores: Array | None = None,
    truth: Array | None = None,
    names: Sequence[str] | None = None,
    names1: Sequence[str] | None = None,
) -> None:
    """Join the matched keypoints of the two images of a figure that `plot_images` made.

    Args:
        figure: of two images.
        keypoints0: (M, 2) in pixels of the first image; keypoints1: (N, 2) of the second.
        matches0: (M,) index into keypoints1, -1 where a keypoint is unmatched.
        scores: (M,) in [0, 1]; they colour the lines where the truth is not known.
        truth: (M,) as matches0; right matches become green, wrong ones red and dashed.
        names: M names of keypoints0.
        names1: N names of keypoints1; without them a keypoint there gets the name that it is matched with.
    """
    left, right = _panels(figure, 2)
    points0, points1 = read_points(keypoints0, "keypoints0"), read_points(keypoints1, "keypoints1")
    matches = read_indices(matches0, "matches0", len(points0), len(points1))
    names = read_texts("names", names, len(points0), "keypoints")
    names1 = read_texts("names1", names1, len(points1), "keypoints")
    colors, dashed = _line_colors(figure, matches, scores, truth, len(points1))
    matched = np.flatnonzero(matches >= 0)
    _dots(left, points0, [colors[i] if matches[i] >= 0 else UNMATCHED for i in range(len(points0))])
    owner = {int(matches[i]): colors[i] for i in matched}
    _dots(right, points1, [owner.get(j, UNMATCHED) for j in range(len(points1))])
    width = 2.2 * fineness(len(points0))
    for i in matched.tolist():
        line = _line((left, right), (points0[i], points1[matches[i]]), colors[i], dashed[i], width)
        line.set_gid(f"match {i}")
        figure.add_artist(line)
    if names is not None:
        write_names(left, points0, names, left=True)
    if names1 is not None:
        write_names(right, points1, names1, left=False)
    elif names is not None:
        write_names(right, points1[matches[matched]], [names[i] for i in matched.tolist()], left=False)


def plot_located(
    image: Array, keypoints: Array, scores: Array, names: Sequence[str] | None = None, visible: Array | None = None,
    title: str = "",
) -> "Figure":  # fmt: skip
    """Show where landmarks were located, coloured by certainty; those that are hardly there are named above instead."""
    points = read_points(keypoints, "keypoints")
    names = read_texts("names", names, len(points), "keypoints") or list(map(str, range(len(points))))
    there = np.ones(len(points), bool) if visible is None else as_numbers(visible, "visible") >= 0.5
    shown, absent = (np.flatnonzero(some).tolist() for some in (there, ~there))
    words = [f"perhaps not in the picture: {', '.join(names[i] for i in absent)}"] if absent else []
    figure = plot_images([image], ["; ".join([*([title] if title else []), *words])])
    colors = _score_colors(figure, scores, len(points))
    plot_keypoints(figure, [points[shown]], [[names[i] for i in shown]], [[colors[i] for i in shown]])
    return figure


def plot_similarity(
    similarity: Array, names0: Sequence[str] | None = None, names1: Sequence[str] | None = None
) -> "Figure":
    """Show a similarity (M, N) as a heat map, with a ring around the largest of each row."""
    values = as_numbers(similarity, "The similarities")
    if values.ndim != 2 or 0 in values.shape or not np.isfinite(values).all():
        raise InputError(f"similarity has the shape {values.shape}; expected (M, N), finite and not empty.")
    rows, columns = values.shape
    names0, names1 = read_texts("names0", names0, rows, "rows"), read_texts("names1", names1, columns, "columns")
    cell = float(np.clip(8 / max(rows, columns), 0.16, 0.5))  # inches
    figure = _new_figure(max(cell * columns, 1.5), max(cell * rows, 1.5))
    axes = figure.add_axes((0, 0, 1, 1))
    picture = axes.imshow(values, cmap=COLORMAP, aspect="auto", interpolation="nearest")
    look: dict[str, Any] = {"fontsize": float(np.clip(28 * cell, 4.5, 9.5)), "parse_math": False}
    axes.set_yticks(range(rows), names0 or list(map(str, range(rows))), **look)
    axes.set_xticks(range(columns), names1 or list(map(str, range(columns))), rotation=90, **look)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.scatter(values.argmax(axis=1), range(rows), s=(25 * cell) ** 2, facecolors="none", edgecolors=WRONG)
    bar = figure.colorbar(picture, cax=figure.add_axes((1.03, 0, 0.15 / figure.get_figwidth(), 1)))
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(labelsize=8)
    return figure


def panels(figure: "Figure") -> "list[Axes]":
    """The axes of each image, in its pixels, to draw more on."""
    require("matplotlib")
    from matplotlib.figure import Figure

    if not isinstance(figure, Figure):
        raise InputError(f"The figure is {shown(figure)}; expected what plot_images made.")
    return [axes for axes in figure.axes if axes.get_gid() == "marks"]


def save_plot(figure: "Figure", path: Path | str, dpi: int = 200) -> None:
    """Write the figure without empty borders, whole or not at all; the ending of `path` chooses the format."""
    path = check_path(path, "The picture")
    check_format(path)
    panels(figure)
    check_number(dpi, "dpi", 1, max(1, int((MAX_PIXELS / np.prod(figure.get_size_inches())) ** 0.5)), "dots per inch")
    look: dict[str, Any] = {"dpi": dpi, "bbox_inches": "tight", "pad_inches": 0.05, "facecolor": "white"}
    with writing(path), whole_file(path) as temporary:
        try:
            figure.savefig(temporary, **look, **_signature(path.suffix.lower()))
        except OSError:
            raise
        except Exception as error:  # matplotlib draws what it was given no sooner than here
            raise InputError(f"The figure cannot be drawn: {first_line(error)}") from error


def check_format(path: Path) -> None:
    """Refuse what `save_plot` could not write: before the work, not after it."""
    require("matplotlib")
    suffix = path.suffix.lower()
    if suffix not in PICTURES:
        raise InputError(f"{path} has the ending {suffix!r}; expected one of {', '.join(PICTURES)}.")


# ---- what the functions above share ----


def _signature(suffix: str) -> dict[str, Any]:
    """Where each format says who made the file: so we know it when it is to be replaced, see `outputs`."""
    if suffix == ".webp":
        exif = Image.Exif()
        exif[0x0131] = MARK  # Software
        return {"pil_kwargs": {"exif": exif}}
    if suffix in (".jpg", ".jpeg"):
        return {"pil_kwargs": {"comment": MARK}}
    return {"metadata": {"Software" if suffix == ".png" else "Creator": MARK}}


def _new_figure(width: float, height: float) -> "Figure":
    require("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _add_panel(figure: "Figure", image: np.ndarray, place: tuple[float, float, float, float], title: str) -> None:
    """Add axes for an image, and clear ones over them for its dots and names: lines come between the two."""
    height, width = image.shape[:2]
    below, above = figure.add_axes(place, zorder=0), figure.add_axes(place, zorder=2, gid="marks")
    below.imshow(image, extent=(0, width, height, 0), aspect="auto", interpolation="bicubic")
    below.set_title(title, fontsize=11, pad=6, parse_math=False)
    above.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    for axes in (below, above):
        axes.set_axis_off()


def _panels(figure: "Figure", count: int) -> "list[Axes]":
    found = panels(figure)
    if len(found) != count:
        raise InputError(f"The figure shows {len(found)} images; expected {count}.")
    return found


def _dots(axes: "Axes", points: np.ndarray, color: Any) -> None:
    fine = fineness(len(points))
    axes.scatter(
        points[:, 0], points[:, 1], s=52 * fine**1.5, c=color, edgecolors="white", linewidths=1.3 * fine, zorder=6
    )


def _line(axes: "tuple[Axes, Axes]", ends: tuple[Any, Any], color: Any, dashed: bool, width: float) -> Any:
    """A line from a point of the first panel to one of the second."""
    from matplotlib.patches import ConnectionPatch
    from matplotlib.patheffects import withStroke

    line = ConnectionPatch(*ends, "data", "data", axesA=axes[0], axesB=axes[1])
    line.set(color=color, linewidth=width, linestyle=(0, (4, 2)) if dashed else "-", zorder=1)
    line.set_path_effects([withStroke(linewidth=1.7 * width, foreground="white", alpha=0.5)])
    return line


def _line_colors(
    figure: "Figure", matches: np.ndarray, scores: Array | None, truth: Array | None, limit: int
) -> tuple[list[Any], np.ndarray]:
    """The colour of each match and whether it is known to be wrong; explains the colours below the images."""
    if truth is not None:
        right = matches == read_indices(truth, "truth", len(matches), limit)
        matched = matches >= 0
        _legend(figure, int((right & matched).sum()), int((~right & matched).sum()), int((~matched).sum()))
        return [RIGHT if good else WRONG for good in right], ~right
    if scores is None:
        return [POINT] * len(matches), np.zeros(len(matches), dtype=bool)
    return _score_colors(figure, scores, len(matches)), np.zeros(len(matches), dtype=bool)


def _score_colors(figure: "Figure", scores: Array, count: int) -> list[Any]:
    """Colours from 0 to 1, explained below the images."""
    values = as_numbers(scores, "scores")
    if values.shape != (count,) or not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"scores has the shape {values.shape}; expected {count} values from 0 to 1.")
    return list(_color_bar(figure)(values))


def _color_bar(figure: "Figure") -> Any:
    """Draw a small bar from 0 to 1 below the images; return its colour map."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable

    height = figure.get_figheight()
    bar = figure.colorbar(
        ScalarMappable(cmap=colormaps[COLORMAP]),
        cax=figure.add_axes((0.4, 0.27 / height, 0.2, 0.1 / height)),
        orientation="horizontal",
        ticks=[0, 0.5, 1],
    )
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(labelsize=8, length=2, pad=2)
    bar.ax.set_ylabel("score", rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
    return colormaps[COLORMAP]


def _legend(figure: "Figure", right: int, wrong: int, unmatched: int) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=RIGHT, lw=2.2, label=f"{right} right")]
    handles.append(Line2D([], [], color=WRONG, lw=2.2, ls=(0, (4, 2)), label=f"{wrong} wrong"))
    if unmatched:
        handles.append(Line2D([], [], color=UNMATCHED, lw=0, marker="o", label=f"{unmatched} unmatched"))
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False, fontsize=10)
