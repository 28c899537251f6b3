"""A sheet of random crops with their named keypoints: whether a dataset was read right shows at a glance."""

import colorsys
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from normmatch.annotations import Annotation
from normmatch.datasets.crops import read_crop
from normmatch.datasets.types import Dataset
from normmatch.errors import DataError, NormMatchError
from normmatch.geometry import crop_keypoints, resize_crop
from normmatch.io import whole_file

TILE, TITLE, GAP = 340, 40, 14  # pixels: side of a picture, height of its title, space between tiles
MARGIN = 20  # around the crop, in pixels of the enlarged tile, for dots on its edge
SHARP = 2  # tiles are drawn larger by this and reduced, which smooths dots and lines
MOST_LABELS = 40  # with more points than this, names would hide the picture
INK, PAPER, FRAME = "#1c1e21", "#ffffff", "#eceef1"
Color = tuple[int, int, int]
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


def contact_sheet(dataset: Dataset, path: Path, seed: int = 0, columns: int = 5, rows: int = 4) -> None:
    """Draw random crops with their named keypoints, classes in turn, as a PNG."""
    chosen = _choose(dataset, columns * rows, seed)
    if not chosen:
        raise DataError(f"The dataset {dataset.name} has no objects to draw.")
    columns = min(columns, len(chosen))
    rows = -(-len(chosen) // columns)
    hues = _hues(dataset)
    sheet = Image.new("RGB", (GAP + columns * (TILE + GAP), GAP + rows * (TITLE + TILE + GAP)), PAPER)
    for number, (split, item) in enumerate(chosen):
        row, column = divmod(number, columns)
        tile = _draw_tile(split, item, hues[item.label])
        sheet.paste(tile, (GAP + column * (TILE + GAP), GAP + row * (TITLE + TILE + GAP)))
    try:
        with whole_file(path) as temporary:
            sheet.save(temporary, format="PNG")
    except OSError as error:
        raise DataError(f"The contact sheet {path} cannot be written: {error.strerror or error}.") from error


def _choose(dataset: Dataset, count: int, seed: int) -> list[tuple[str, Annotation]]:
    """Up to `count` random objects with the name of their split, one of each class, then another of each ..."""
    rng = np.random.default_rng(seed)
    classes: dict[str, list[tuple[str, Annotation]]] = {}
    for split_name, split in dataset.splits.items():
        for item in split.objects:
            classes.setdefault(item.label, []).append((split_name, item))
    order = [
        (turn, label, index)
        for label in sorted(classes)
        for turn, index in enumerate(rng.permutation(len(classes[label])))
    ]
    return [classes[label][index] for _, label, index in sorted(order)[:count]]


def _hues(dataset: Dataset) -> dict[str, dict[str, Color]]:
    """A colour for each keypoint name of a class, the same on all its tiles."""
    names: dict[str, set[str]] = {}
    for split in dataset.splits.values():
        for item in split.objects:
            names.setdefault(item.label, set()).update(item.names)
    colours = {}
    for label, of_class in names.items():
        wheel = [colorsys.hls_to_rgb(i / len(of_class), 0.62, 0.95) for i in range(len(of_class))]
        colours[label] = {
            name: (round(255 * r), round(255 * g), round(255 * b))
            for name, (r, g, b) in zip(sorted(of_class), wheel, strict=True)
        }
    return colours


def _draw_tile(split: str, item: Annotation, colours: dict[str, Color]) -> Image.Image:
    """A titled picture of the object with its keypoints, or the sentence why it has none."""
    tile = Image.new("RGB", (TILE * SHARP, (TITLE + TILE) * SHARP), PAPER)
    draw = ImageDraw.Draw(tile)
    draw.text((0, 0), item.label, INK, font=_font(17))
    draw.text((TILE * SHARP, 0), split, "#8a8f98", font=_font(12), anchor="ra")
    draw.text((0, 21 * SHARP), _shorten(f"{item.path.parent.name}/{item.path.name}", 52), "#8a8f98", font=_font(11))
    picture = Image.new("RGB", (TILE * SHARP, TILE * SHARP), FRAME)
    try:
        _draw_object(picture, item, colours)
    except NormMatchError as error:
        _draw_sentence(picture, str(error))
    tile.paste(picture, (0, TITLE * SHARP))
    return tile.resize((TILE, TITLE + TILE), Image.Resampling.LANCZOS)


def _draw_object(picture: Image.Image, item: Annotation, colours: dict[str, Color]) -> None:
    """Fit the crop into the picture, and its keypoints over it."""
    image, crop = read_crop(item)
    scale = (picture.width - 2 * MARGIN) / max(crop[2], crop[3])
    size = (max(round(crop[2] * scale), 1), max(round(crop[3] * scale), 1))
    corner = ((picture.width - size[0]) // 2, (picture.height - size[1]) // 2)
    picture.paste(resize_crop(image, crop, size), corner)
    points = crop_keypoints(item.keypoints, crop, size) + np.array(corner, dtype=np.float32)  # (K, 2)
    inside = np.all((points >= 0) & (points <= picture.width), axis=1)  # (K,)
    names = [name for name, is_in in zip(item.names, inside.tolist(), strict=True) if is_in]
    notes = [f"{len(names)} points"] if len(names) > MOST_LABELS else []
    notes += [f"{len(item.names) - len(names)} outside"] if len(names) < len(item.names) else []
    draw = ImageDraw.Draw(picture)
    _draw_points(draw, points[inside], names, colours, picture.width)
    _write(draw, 6, picture.height - 6, ", ".join(notes))


def _draw_points(
    draw: ImageDraw.ImageDraw, points: np.ndarray, names: Sequence[str], colours: dict[str, Color], side: int
) -> None:
    """Leaders first, then dots (K, 2), then names, so that nothing hides a name."""
    shown = names if len(names) <= MOST_LABELS else []
    labels = _place_labels(points, [_font(12).getbbox(name)[2] for name in shown], 15 * SHARP, side)
    for (x, y), (left, top, right, bottom), name in zip(points.tolist(), labels, names, strict=False):
        nearest = (min(max(x, left), right), min(max(y, top), bottom))
        if math.dist((x, y), nearest) > 10 * SHARP:  # the name is not right beside its dot
            draw.line([(x, y), nearest], fill=INK, width=2 * SHARP)
            draw.line([(x, y), nearest], fill=colours[name], width=SHARP)
    for (x, y), name in zip(points.tolist(), names, strict=True):
        for radius, colour in ((5 * SHARP, INK), (4 * SHARP, colours[name])):
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    for (left, _, _, bottom), name in zip(labels, shown, strict=True):
        _write(draw, left, bottom, name)


def _write(draw: ImageDraw.ImageDraw, left: float, bottom: float, text: str) -> None:
    draw.text((left, bottom), text, PAPER, _font(12), anchor="ld", stroke_width=SHARP + 1, stroke_fill=INK)


def _place_labels(points: np.ndarray, widths: Sequence[float], height: float, side: float) -> list[Rectangle]:
    """A place for each label near its point (K, 2): where it covers the least of other labels, dots and the edge."""
    dots = [(x - 10, y - 10, x + 10, y + 10) for x, y in points.tolist()]
    placed: list[Rectangle] = []
    for (x, y), width in zip(points.tolist(), widths, strict=False):
        best, least = (x, y, x + width, y + height), float("inf")
        for distance in (15.0, 34.0, 58.0, 90.0, 130.0):
            for angle in np.arange(16) * (np.pi / 8):
                # The label's centre goes around the point on an ellipse that keeps its edge `distance` away.
                middle_x = x + np.cos(angle) * (distance + width / 2)
                middle_y = y + np.sin(angle) * (distance + height / 2)
                left = min(max(middle_x - width / 2, 2), max(side - width - 2, 2))
                top = min(max(middle_y - height / 2, 2), side - height - 2)
                label = (left, top, left + width, top + height)
                cost = sum(_overlap(label, other) for other in (*placed, *dots)) + distance * height / 16
                if cost < least:
                    best, least = label, cost
        placed.append(best)
    return placed


def _overlap(a: Rectangle, b: Rectangle) -> float:
    """The area that two rectangles share."""
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0.0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)


def _draw_sentence(picture: Image.Image, sentence: str) -> None:
    words = textwrap.fill(sentence, 44)
    middle = (picture.width / 2, picture.height / 2)
    ImageDraw.Draw(picture).multiline_text(middle, words, "#b3261e", _font(13), anchor="mm", align="center")


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SHARP)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else "\u2026" + text[-length + 1 :]
