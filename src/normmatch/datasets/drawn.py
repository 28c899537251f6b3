"""A dataset made by code: figures drawn in any number, for tests, a first training and the demo.

Every figure is a function of (seed, label, size) alone. Pose, place, scale, rotation, colour, background and occluder
are drawn at random; the background is drawn the same way for every class and view, so it tells nothing.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.datasets.figures import FIGURES, INK, Color, Part, Point, Sketch, sketch
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import DataError, InputError

MARKER = "drawn-by-normmatch.txt"  # tells a folder of figures from one of the user's

SplitName = Literal["train", "val"]
LABELS = tuple(FIGURES)

# How hard the task is.
TURN = 20.0  # largest rotation in the plane either way, in degrees
HEADINGS = {"beetle": (0.0, 180.0)}  # added to it: ways that the figure may point; elsewhere upright
EXTENT = (0.70, 0.90)  # range of the longer side of a figure's keypoints, as a share of the image
OCCLUSION = 0.3  # probability of a shape in front of the figure
COVER = (0.08, 0.15)  # range of that shape's radius, as a share of the image
CLUTTER = 4  # largest number of shapes behind the figure
GRAIN = 5.0  # standard deviation of the pixel noise, in grey levels

MIN_VISIBLE = 6  # an occluder that would leave fewer keypoints is not drawn
MARGIN = 0.04  # keypoints stay this far from the border, as a share of the image
SUPERSAMPLE = 2
OUTLINE = 0.022  # width of the outlines, in units of the figure
MIN_SIZE = 32


def draw_figure(seed: int, label: str, size: int) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
    """Draw one figure.

    Returns:
        the image (size, size, 3) uint8, the names of its K visible keypoints in the order of their class, and their
        coordinates (K, 2) float32 in pixels, centres at +0.5. Covered keypoints are left out.
    """
    if label not in FIGURES:
        raise InputError(f"There is no synthetic class {label!r}; expected one of {', '.join(LABELS)}.")
    if size < MIN_SIZE or seed < 0:
        raise InputError(
            f"size is {size} and seed is {seed}; expected a size of {MIN_SIZE} or more and no negative seed."
        )
    streams = np.random.SeedSequence([LABELS.index(label), seed]).spawn(4)
    pose, place, scene, cover = (np.random.default_rng(stream) for stream in streams)
    figure = sketch(label, pose)
    canvas = size * SUPERSAMPLE
    transform = placement(figure, label, canvas, place)
    keypoints = to_canvas(transform, tuple(figure.keypoints.values()))  # (K, 2)

    image = background(canvas, scene)
    draw, scale = ImageDraw.Draw(image), float(np.hypot(*transform[:, 0]))
    for part in figure.parts:  # from back to front
        draw_part(draw, to_canvas(transform, part.points), part, scale)
    visible = occlude(image, keypoints, cover)  # (K,)
    small = np.asarray(image.reduce(SUPERSAMPLE), dtype=np.float32)  # (S, S, 3)
    noisy = small + GRAIN * scene.standard_normal(small.shape, dtype=np.float32)
    names = tuple(name for name, seen in zip(figure.keypoints, visible, strict=True) if seen)
    return noisy.clip(0, 255).astype(np.uint8), names, (keypoints[visible] / SUPERSAMPLE).astype(np.float32)


def make(count_per_class: int, size: int, seed: int, split: SplitName = "train") -> PreparedSplit:
    """Draw figures into memory, class after class; no figure of one split is ever in the other."""
    images, objects = zip(*draw_split(count_per_class, size, seed, split), strict=True)
    return PreparedSplit(np.stack(images), objects)


def write(root: Path, count_per_class: int, size: int, seed: int) -> None:
    """Write figures for training and a quarter as many for validation into a new or empty folder, all or nothing.

    Validation has at least two of a class, so that they make a pair.
    Images are named in `annotations.csv`, which `folder.load` reads.
    """
    root = Path(root).resolve()
    try:
        if root.exists() and (held := next(root.iterdir(), None)):
            raise DataError(f"{root} holds {held.name}; expected a new or empty folder for the synthetic figures.")
        try:
            write_figures(root, count_per_class, size, seed)
        except BaseException:
            shutil.rmtree(root / "images", ignore_errors=True)
            (root / "annotations.csv").unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DataError(f"The synthetic figures cannot be written to {root}: {error.strerror}.") from error


def is_drawn(root: Path) -> bool:
    """Whether the folder is one that `write` has made."""
    return (Path(root) / MARKER).is_file()


def write_figures(root: Path, count_per_class: int, size: int, seed: int) -> None:
    """Write the images of both splits and their CSV, one figure at a time; at last the marker: the folder is whole."""
    counts: dict[SplitName, int] = {"train": count_per_class, "val": max(2, count_per_class // 4)}
    items = []
    for split, count in counts.items():
        (root / "images" / split).mkdir(parents=True)
        for image, item in draw_split(count, size, seed, split):
            Image.fromarray(image).save(root / item.image)
            items.append(replace(item, keypoints=item.keypoints.astype(np.float64).round(3)))
    annotations.write(root / "annotations.csv", items)
    sentence = f"Drawn by NormMatch: {count_per_class} training figures a class of {size} pixels, seed {seed}.\n"
    (root / MARKER).write_text(sentence, encoding="utf-8")


def draw_split(count_per_class: int, size: int, seed: int, split: SplitName) -> Iterator[tuple[np.ndarray, Annotation]]:
    """Draw the figures of a split one after the other."""
    if count_per_class < 1 or seed < 0:
        raise InputError(f"count_per_class is {count_per_class} and seed is {seed}; expected at least 1 and 0.")
    if split not in ("train", "val"):
        raise InputError(f"split is {split!r}; expected train or val.")
    for label in LABELS:
        for index in range(count_per_class):
            # Even seeds for training, odd ones for validation: disjoint, however many are drawn.
            image, names, keypoints = draw_figure(2 * ((seed << 32) + index) + (split == "val"), label, size)
            yield image, Annotation(f"images/{split}/{label}_{index:05d}.png", names, keypoints, None, label, split)


def placement(figure: Sketch, label: str, canvas: int, rng: np.random.Generator) -> np.ndarray:
    """A random rotation, scale and shift (2, 3) that keeps every keypoint inside the canvas."""
    angle = np.deg2rad(rng.choice(HEADINGS.get(label, (0.0,))) + rng.uniform(-TURN, TURN))
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turned = np.array(list(figure.keypoints.values())) @ rotation.T  # (K, 2)
    low, high = turned.min(axis=0), turned.max(axis=0)
    scale = canvas * rng.uniform(*EXTENT) / (high - low).max()
    border = MARGIN * canvas
    shift = rng.uniform(border - scale * low, canvas - border - scale * high)
    return np.concatenate([scale * rotation, shift[:, None]], axis=1)


def to_canvas(transform: np.ndarray, points: tuple[Point, ...]) -> np.ndarray:
    """Points of a sketch as points of the canvas (K, 2)."""
    return np.asarray(points, dtype=np.float64) @ transform[:, :2].T + transform[:, 2]


def background(canvas: int, rng: np.random.Generator) -> Image.Image:
    """A pale gradient or soft noise, with shapes of any colour upon it."""
    cells = 2 if rng.random() < 0.5 else 7
    base = rng.uniform(150, 225, 3) + rng.uniform(-35, 35, (cells, cells, 1)) + rng.uniform(-14, 14, (cells, cells, 3))
    image = Image.fromarray(base.clip(0, 255).astype(np.uint8)).resize((canvas, canvas), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(CLUTTER + 1)):
        draw.polygon(outline(canvas, rng.uniform(0.06, 0.22) * canvas, rng), fill=pale(rng))
    return image


def pale(rng: np.random.Generator) -> Color:
    """A random colour for what is not a figure."""
    r, g, b = rng.integers(110, 240, 3).tolist()
    return r, g, b


def outline(canvas: int, radius: float, rng: np.random.Generator, center: np.ndarray | None = None) -> list[Point]:
    """A random closed shape: triangle, box, more corners, or nearly round."""
    corners = int(rng.choice((3, 4, 5, 24)))
    middle = rng.uniform(0, canvas, 2) if center is None else center
    t = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.arange(corners) / corners
    stretch = rng.uniform(0.7, 1.3)
    return list(zip(middle[0] + stretch * radius * np.cos(t), middle[1] + radius / stretch * np.sin(t), strict=True))


def draw_part(draw: ImageDraw.ImageDraw, xy: np.ndarray, part: Part, scale: float) -> None:
    """One part with its outline: a polygon, or a chain of discs joined by straight sides."""
    line = OUTLINE * scale
    if not part.radii:
        corners = [tuple(point) for point in xy.tolist()]
        draw.polygon(corners, fill=part.color)
        draw.line([*corners, corners[0], corners[1]], fill=INK, width=max(1, round(line)), joint="curve")
        return
    radii = scale * np.array(part.radii)
    for color, grow in ((INK, line / 2), (part.color, -line / 2)):
        for (x, y), r in zip(xy, radii + grow, strict=True):
            draw.ellipse((x - r, y - r, x + r, y + r), fill=color)
        for a, b, ra, rb in zip(xy[:-1], xy[1:], radii[:-1] + grow, radii[1:] + grow, strict=True):
            across = np.array([a[1] - b[1], b[0] - a[0]]) / max(np.hypot(*(b - a)), 1e-6)  # unit, at a right angle
            sides = np.stack([a + ra * across, b + rb * across, b - rb * across, a - ra * across])
            draw.polygon([tuple(point) for point in sides.tolist()], fill=color)


def occlude(image: Image.Image, keypoints: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cover the place of one keypoint, sometimes; return which keypoints (K,) are still seen."""
    everything = np.ones(len(keypoints), dtype=bool)
    if rng.random() >= OCCLUSION:
        return everything
    canvas = image.size[0]
    center = keypoints[rng.integers(len(keypoints))] + rng.uniform(-0.05, 0.05, 2) * canvas
    mask = Image.new("1", image.size)
    ImageDraw.Draw(mask).polygon(outline(canvas, rng.uniform(*COVER) * canvas, rng, center), fill=1)
    x, y = keypoints.astype(int).T  # a keypoint at x lies in pixel floor(x)
    visible = ~np.asarray(mask)[y, x]  # (K,)
    if visible.sum() < MIN_VISIBLE:
        return everything
    image.paste(pale(rng), mask=mask)
    return visible
