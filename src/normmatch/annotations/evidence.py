"""A sheet of crops for what is suspected: the landmark, the place where it should be, and two good examples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from normmatch.annotations import Annotation
from normmatch.annotations.reading import Photographs
from normmatch.annotations.suspicions import Findings, Kind, Suspicion
from normmatch.errors import InputError
from normmatch.io import read_image
from normmatch.outputs import whole_file

TILE, GAP, LINE = 220, 8, 15  # pixels
CLOSE = 0.35  # of the object: what a crop shows around a landmark
WHOLE = 1.2  # the same of what concerns all of an object
WRONG, RIGHT = "#ff3b30", "#34c759"
EXAMPLES = 2


def draw_sheet(
    path: Path, annotations: Sequence[Annotation], findings: Findings, photographs: Photographs, most: int = 24
) -> int:
    """Write a PNG with a row for each of the worst suspicions whose photographs are there; how many that are."""
    rows = []
    for one in findings.suspicions[:most]:
        file = photographs.find(annotations[one.item].image)
        if file is not None:
            rows.append((one, file))
    if not rows:
        raise InputError(
            f"None of the photographs is in {photographs.images or photographs.folder}: there is no sheet."
        )
    height = TILE + 3 * LINE + GAP
    sheet = Image.new("RGB", ((1 + EXAMPLES) * (TILE + GAP) + GAP, len(rows) * height + GAP), "white")
    kinds = {number: kind for kind in findings.kinds for number in kind.items}
    for index, (one, file) in enumerate(rows):
        _draw_row(sheet, GAP + index * height, one, file, annotations, kinds.get(one.item), photographs)
    with whole_file(path) as temporary:
        sheet.save(temporary)
    return len(rows)


def _draw_row(
    sheet: Image.Image, top: int, one: Suspicion, file: Path, annotations: Sequence[Annotation], kind: Kind | None,
    photographs: Photographs,
) -> None:  # fmt: skip
    item = annotations[one.item]
    names = one.landmarks or item.names
    places = np.array([xy for name, xy in zip(item.names, item.keypoints, strict=True) if name in names])
    shown = [*places, *([one.expected] if one.expected else [])]
    extent = float(np.ptp(item.keypoints, axis=0).max()) or 1.0
    side = max(
        (CLOSE if len(names) <= 2 else WHOLE) * extent, 1.3 * float(np.ptp(shown, axis=0).max()) if shown else 1.0
    )
    tile, scale, corner = crop(file, np.mean(shown, 0) if shown else np.mean(item.keypoints, 0), side)
    draw = ImageDraw.Draw(tile)
    for place in places:
        _cross(draw, (place - corner) * scale, WRONG)
    if one.expected:
        _ring(draw, (np.array(one.expected) - corner) * scale, RIGHT)
    sheet.paste(tile, (GAP, top))
    text = [f"{one.kind}: {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}", Path(item.image).name, one.why]
    pen = ImageDraw.Draw(sheet)
    for number, line in enumerate(text):
        pen.text((GAP, top + TILE + number * LINE), line[:115], fill="black")
    if kind is None or len(names) > 2:
        return
    for number, (good, where) in enumerate(_examples(kind, names[0], one.item, annotations, photographs)):
        k = annotations[good].names.index(names[0])
        place = annotations[good].keypoints[k]
        tile, scale, corner = crop(where, place, CLOSE * float(np.ptp(annotations[good].keypoints, axis=0).max() or 1))
        _cross(ImageDraw.Draw(tile), (place - corner) * scale, RIGHT)
        sheet.paste(tile, (GAP + (1 + number) * (TILE + GAP), top))


def _examples(
    kind: Kind, name: str, item: int, annotations: Sequence[Annotation], photographs: Photographs
) -> list[tuple[int, Path]]:
    """The objects that look most alike of those that have the landmark where it should be."""
    k, own = kind.names.index(name), kind.items.index(item)
    laid = kind.shapes.laid
    apart = np.nanmean(np.where(kind.shapes.known[own][:, None], np.abs(laid - laid[own]), np.nan), axis=(1, 2))
    good = []
    for thing in np.argsort(np.nan_to_num(apart, nan=np.inf)):
        number = kind.items[thing]
        fine = kind.shapes.known[thing, k] and kind.shapes.doubt[thing, k] < 0 and thing != own
        file = photographs.find(annotations[number].image) if fine and name in annotations[number].names else None
        good += [(number, file)] if file else []
        if len(good) == EXAMPLES:
            break
    return good


def crop(file: Path, middle: np.ndarray, side: float) -> tuple[Image.Image, float, np.ndarray]:
    """A square of a photograph (TILE, TILE), its scale, and its corner (2,) in the photograph's pixels."""
    corner = np.asarray(middle) - side / 2
    picture = Image.fromarray(read_image(file))
    box = (*corner.tolist(), *(corner + side).tolist())
    tile = picture.transform((TILE, TILE), Image.Transform.EXTENT, box, Image.Resampling.BICUBIC, fillcolor="#888888")
    return tile, TILE / side, corner


def _cross(draw: ImageDraw.ImageDraw, place: np.ndarray, color: str) -> None:
    x, y = place.tolist()
    for width, ink in ((4, "white"), (2, color)):
        draw.line((x - 8, y, x + 8, y), fill=ink, width=width)
        draw.line((x, y - 8, x, y + 8), fill=ink, width=width)


def _ring(draw: ImageDraw.ImageDraw, place: np.ndarray, color: str) -> None:
    x, y = place.tolist()
    draw.ellipse((x - 9, y - 9, x + 9, y + 9), outline="white", width=4)
    draw.ellipse((x - 8, y - 8, x + 8, y + 8), outline=color, width=2)
