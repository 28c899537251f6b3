"""Pictures of a whole project: a contact sheet of its photographs with their landmarks, and the mean shape."""

import colorsys
import io
import math
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from normmatch.annotations.project import Photograph, Project
from normmatch.annotations.shapes import Shapes
from normmatch.outputs import MADE_BY

COLUMNS, ROWS = 5, 7  # of a page
TILE, LINE, GAP = 300, 22, 14  # pixels: a photograph's side, a line of text, the space between
DOT = 4  # radius
PAPER, INK, GREY, EDGE = "#ffffff", "#14171c", "#596070", "#0b0d12"
SIDE, MARGIN = 1200, 120  # of the picture of the mean shape
Xy = tuple[float, float]


def colors_of(project: Project) -> dict[str, str]:
    """A colour for each landmark: its own, or one around the wheel."""
    found = {}
    for number, one in enumerate(project.landmarks):
        red, green, blue = colorsys.hls_to_rgb((0.55 + number * 0.618) % 1, 0.55, 0.85)
        found[one.name] = one.color or f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
    return found


def contact_sheet(
    project: Project, chosen: Sequence[Photograph], open_small: Callable[[str], bytes]
) -> list[Image.Image]:
    """Pages with all chosen photographs and their landmarks; `open_small` gives a photograph as a small JPEG."""
    colors, pages = colors_of(project), []
    legend = _legend(project, colors)
    per_page = COLUMNS * ROWS
    width = COLUMNS * (TILE + GAP) + GAP
    for start in range(0, max(len(chosen), 1), per_page):
        some = chosen[start : start + per_page]
        top = legend.height + GAP
        rows = math.ceil(len(some) / COLUMNS) or 1
        page = Image.new("RGB", (width, top + rows * (TILE + LINE + GAP)), PAPER)
        page.paste(legend, (GAP, GAP))
        for number, one in enumerate(some):
            left = GAP + number % COLUMNS * (TILE + GAP)
            _paste_tile(page, (left, top + number // COLUMNS * (TILE + LINE + GAP)), project, one, colors, open_small)
        pages.append(page)
    return pages


def _paste_tile(
    page: Image.Image, at: tuple[int, int], project: Project, one: Photograph, colors: dict[str, str],
    open_small: Callable[[str], bytes],
) -> None:  # fmt: skip
    """A photograph with its landmarks, and its name below."""
    draw, (left, top) = ImageDraw.Draw(page), at
    try:
        with Image.open(io.BytesIO(open_small(one.file))) as small:
            small.thumbnail((TILE, TILE))
            left, top = left + (TILE - small.width) // 2, top + TILE - small.height
            page.paste(small, (left, top))
            scale = small.width / max(one.width, 1)
    except (OSError, ValueError, KeyError):
        draw.rectangle((left, top, left + TILE, top + TILE), outline=GREY)
        scale = TILE / max(one.width, one.height, 1)
    places = {
        name: (left + p.xy[0] * scale, top + p.xy[1] * scale) for name, p in one.points.items() if p.xy and not p.absent
    }
    _draw_lines(draw, project, places)
    for name, (x, y) in places.items():
        draw.ellipse((x - DOT, y - DOT, x + DOT, y + DOT), fill=colors[name], outline=EDGE)
    absent = sum(point.absent for point in one.points.values())
    said = f"{absent} absent" if absent else "" if one.reviewed else "not reviewed"
    name = one.file if len(one.file) <= 30 else "…" + one.file[-29:]
    draw.text((at[0], at[1] + TILE + 3), name, INK, _font(14))
    draw.text((at[0] + TILE, at[1] + TILE + 3), said, GREY, _font(14), anchor="ra")


def mean_shape(project: Project, shapes: Shapes) -> Image.Image:
    """The mean shape, and around it the landmarks of the photographs, laid over each other."""
    picture = Image.new("RGB", (SIDE, SIDE), PAPER)
    draw, colors = ImageDraw.Draw(picture), colors_of(project)
    low, span = shapes.mean.min(0), np.ptp(shapes.mean, 0).max() or 1.0
    middle = (SIDE - (SIDE - 2 * MARGIN) * np.ptp(shapes.mean, 0) / span) / 2

    def place(xy: np.ndarray) -> Xy:
        x, y = ((xy - low) / span * (SIDE - 2 * MARGIN) + middle).tolist()
        return x, y

    for k, name in enumerate(project.names):
        for x, y in map(place, shapes.laid[shapes.known[:, k], k]):
            draw.ellipse((x - 2, y - 2, x + 2, y + 2), fill=colors[name])
    places = {name: place(shapes.mean[k]) for k, name in enumerate(project.names)}
    _draw_lines(draw, project, places)
    for name, (x, y) in places.items():
        draw.ellipse((x - 6, y - 6, x + 6, y + 6), fill=colors[name], outline=EDGE)
        draw.text((x + 10, y), name, INK, _font(16), anchor="lm", stroke_width=3, stroke_fill=PAPER)
    return picture


def encoded(pages: Sequence[Image.Image], kind: str) -> bytes:
    """Pages as a PDF, or below each other as a PNG."""
    file = io.BytesIO()
    if kind == "PDF":
        pages[0].save(file, "PDF", save_all=True, append_images=pages[1:], resolution=150, creator=MADE_BY)
        return file.getvalue()
    whole = Image.new("RGB", (pages[0].width, sum(page.height for page in pages)), PAPER)
    top = 0
    for page in pages:
        whole.paste(page, (0, top))
        top += page.height
    whole.save(file, "PNG")
    return file.getvalue()


def _legend(project: Project, colors: dict[str, str]) -> Image.Image:
    """The landmarks' names, each with its dot."""
    font, width = _font(14), COLUMNS * (TILE + GAP) - GAP
    rows: list[tuple[int, int, str]] = []
    x = y = 0
    for name in project.names:
        wide = round(font.getlength(name)) + 36
        x, y = (0, y + LINE) if x and x + wide > width else (x, y)
        rows.append((x, y, name))
        x += wide
    legend = Image.new("RGB", (width, y + LINE), PAPER)
    draw = ImageDraw.Draw(legend)
    for x, y, name in rows:
        draw.ellipse((x, y + 7, x + 2 * DOT, y + 7 + 2 * DOT), fill=colors[name], outline=EDGE)
        draw.text((x + 14, y + 2), name, INK, font)
    return legend


def _draw_lines(draw: ImageDraw.ImageDraw, project: Project, places: dict[str, Xy]) -> None:
    for a, b in project.skeleton:
        if a in places and b in places:
            draw.line((places[a], places[b]), fill=EDGE, width=3)
            draw.line((places[a], places[b]), fill=PAPER, width=1)


def _font(size: int) -> "ImageFont.FreeTypeFont":
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font
