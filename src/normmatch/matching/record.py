"""Showing matches: a record for JSON, a table for the terminal, a picture."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from normmatch.annotations import Annotation
from normmatch.matching.crops import load_image
from normmatch.matching.decoding import Result

TABLE_ROWS = 100  # more would scroll away; the JSON file has them all
PICTURE_SIDE = 1600  # pixels of an image in a picture: a photograph of 100 megapixels is no better there
DIGITS = 6  # of scores in files: the rest is noise of the arithmetic


def make_record(first: Annotation, second: Annotation, result: Result) -> dict[str, Any]:
    """What files tell about a matched pair, as plain JSON values.

    `matches` lists the matched points; matches0 and the rest are as in `Matcher.match`.
    """
    scores = result["scores"].astype(float).round(DIGITS).tolist()
    pairs = zip(result["matches"].tolist(), scores, strict=True)
    return {
        "image0": first.image,
        "image1": second.image,
        "names0": list(first.names),
        "names1": list(second.names),
        "keypoints0": first.keypoints.tolist(),
        "keypoints1": second.keypoints.tolist(),
        "matches": [{"name0": first.names[i], "name1": second.names[j], "score": score} for (i, j), score in pairs],
        **{key: result[key].tolist() for key in ("matches0", "matches1")},
        **{key: result[key].astype(float).round(DIGITS).tolist() for key in ("matching_scores0", "matching_scores1")},
    }


def print_matches(first: Annotation, second: Annotation, result: Result) -> None:
    """A table of the points of image 0 with their partners and scores, and how many there are."""
    table = Table(title=escape(f"{Path(first.image).name} and {Path(second.image).name}"))
    for column, justify in (("point", "left"), ("at", "left"), ("partner", "left"), ("at", "left"), ("score", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for i, j in list(enumerate(result["matches0"].tolist()))[:TABLE_ROWS]:
        partner = (escape(second.names[j]), _place(second.keypoints[j])) if j >= 0 else ("-", "")
        score = f"{result['matching_scores0'][i]:.2f}"
        table.add_row(escape(first.names[i]), _place(first.keypoints[i]), *partner, score)
    console = Console()
    console.print(table)
    count = len(first.names)
    if count > TABLE_ROWS:
        console.print(f"... and {count - TABLE_ROWS:,} points more; --json writes them all")
    console.print(f"{len(result['matches']):,} of {count:,} points have a partner")
    shared = {name for name in first.names if name in second.names and not name.isdecimal()}  # 0, 1 ... are no names
    right = sum(first.names[i] == second.names[j] in shared for i, j in result["matches"].tolist())
    if shared:
        console.print(f"{right:,} of the {len(shared):,} points with a namesake were matched with it")


def draw_matches(path: Path, first: Annotation, second: Annotation, result: Result) -> None:
    """Write a picture of both images with lines coloured by score."""
    from normmatch import viz

    (small0, points0), (small1, points1) = _shrunk(first), _shrunk(second)
    figure = viz.plot_images([small0, small1])
    scores = result["matching_scores0"]
    viz.plot_matches(figure, points0, points1, result["matches0"], scores, names=first.names, names1=second.names)
    viz.save_plot(figure, path)


def _place(point: np.ndarray) -> str:
    return f"{point[0]:.0f}, {point[1]:.0f}"


def _shrunk(item: Annotation) -> tuple[np.ndarray, np.ndarray]:
    """The image of a set and its keypoints, made small enough for a picture."""
    array, keypoints = load_image(item.image), item.keypoints
    scale = min(1.0, PICTURE_SIDE / max(array.shape[:2]))
    if scale == 1:
        return array, keypoints
    height, width = (max(1, round(side * scale)) for side in array.shape[:2])
    small = Image.fromarray(array).resize((width, height), Image.Resampling.BOX, reducing_gap=2.0)
    return np.asarray(small), keypoints * (width / array.shape[1], height / array.shape[0])
