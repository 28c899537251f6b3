"""Locate: landmarks of one or a few annotated photographs, found in others, with probabilities. No torch here.

found = locate("mine.jpg", "other.jpg", keypoints0, encoder=backend)
for found in locate_many([Reference("a.jpg", points_a), Reference("b.jpg", points_b)], files, encoder=backend):
    found.keypoints, found.scores

Any kind of thing: nothing is trained. The references' features give one filter a landmark (`references.py`), their
places a shape (`shape.py`), and each landmark is looked at twice (`looks.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat, zip_longest
from typing import Any, Literal

import numpy as np

from normmatch.checks import check_flag, check_iterator
from normmatch.errors import InputError
from normmatch.matching.given import Reference, check_box, whole_box
from normmatch.matching.landmarks import Kind, Landmarks, Located
from normmatch.matching.looks import FEW
from normmatch.matching.references import Cells
from normmatch.matching.sight import Encoder, Photograph, Sight

POOL = 40  # photographs without labels that teach, where there are few references: 60 gained 2 points more than 20
REMEMBERED = 4 * POOL  # crops


def locate(
    image0: Any, image1: Any, keypoints0: Any, box0: Any = None, box1: Any = None, *,
    encoder: Encoder, looks: Literal[1, 2] = 2,
) -> Located:  # fmt: skip
    """Find the points of one photograph in another. `locate_many` says what the arguments are."""
    many = locate_many([Reference(image0, keypoints0, box0)], [image1], [box1], encoder=encoder, looks=looks)
    return next(many)


def locate_many(
    references: Sequence[Reference],
    images: Iterable[Any],
    boxes: Iterable[Any] | None = None,
    *,
    encoder: Encoder,
    looks: Literal[1, 2] = 2,
    learn: bool = True,
    turned: bool = False,
    mirrored: bool = False,
    flip: Sequence[int] | None = None,
) -> Iterator[Located]:
    """Find the landmarks of annotated photographs in many others, one after the other.

    Args:
        references: one or more of any kind of thing.
        images: paths, PIL images, arrays (H, W, 3) of uint8 or floats in [0, 1], or tensors (3, H, W).
        boxes: of each image the object's xmin, ymin, width and height, or None: the whole image is searched.
        encoder: what runs the network, such as a `Matcher`'s backend.
        looks: 2 looks at each landmark's surroundings once more, in more detail; 1 is faster.
        learn: with fewer than ten references some of the images, if they are a sequence, teach how the landmarks look.
        turned: the things lie any way round; takes eight first looks more for each image.
        mirrored: they may be seen from the other side; twice as many.
        flip: the number that each landmark has in a mirrored thing, where left and right exchange their names.
    """
    if not isinstance(images, list | tuple):
        images = check_iterator(images, "images")
    if boxes is not None and not isinstance(boxes, list | tuple):
        boxes = check_iterator(boxes, "boxes")
    learn, pool = check_flag(learn, "learn"), []
    if learn and isinstance(images, Sequence) and len(images) > 2:
        given = [None] * len(images) if boxes is None else list(boxes)
        if len(given) != len(images):
            raise InputError(f"There are {len(images)} images and {len(given)} boxes; expected as many of each.")
        chosen = choose_evenly(range(len(images)), POOL)
        pool = [(Photograph.of(images[i], f"image {i}"), given[i]) for i in chosen]
        boxes = given
    options: dict[str, Any] = {"looks": looks, "turned": turned, "mirrored": mirrored, "flip": flip}
    fitted = prepare(references, Sight(encoder, REMEMBERED), pool, **options)
    for number, (image, box) in enumerate(_paired(images, boxes)):
        yield fitted.locate(Photograph.of(image, f"image {number}"), box)


def prepare(
    references: Sequence[Reference], sight: Sight, pool: Sequence[tuple[Photograph, Any]], **options: Any
) -> Landmarks:
    """What references say, ready to find landmarks; photographs that nobody has labelled, with their boxes, teach."""
    fitted = Landmarks(references, sight, **options)
    if len(pool) > 2 and len(references) < FEW and not (options["turned"] or options["mirrored"]):
        _teach(fitted, pool)
    fitted.calibrate()
    return fitted


def choose_references(
    references: Sequence[Reference], pool: Sequence[Photograph], sight: Sight, most: int
) -> list[int]:
    """The numbers of so many references at most, of which every photograph of the pool has one that is like it.

    One by one that one is taken that shows landmarks which nobody has shown yet, and then that which makes the
    photographs most like the nearest of those taken.
    """
    if len(references) <= most:
        return list(range(len(references)))
    known = [Photograph.of(one.image, f"reference {i}") for i, one in enumerate(references)]
    first, second = (np.stack([_summary(one, sight) for one in some]) for some in (known, pool or known))
    alike = first @ second.T  # (R, U)
    shows = np.stack([np.isfinite(np.asarray(one.keypoints, float)).all(1) for one in references])  # (R, K)
    chosen: list[int] = []
    nearest, shown = np.full(alike.shape[1], -1.0), np.zeros(shows.shape[1], bool)
    while len(chosen) < most:
        gain = np.maximum(alike, nearest).mean(1) + 10 * (shows & ~shown).sum(1)
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
        nearest, shown = np.maximum(nearest, alike[chosen[-1]]), shown | shows[chosen[-1]]
    return sorted(chosen)


def choose_evenly(things: Sequence[Any], most: int) -> list[Any]:
    """Evenly spread ones of many."""
    return [things[i] for i in np.unique(np.linspace(0, len(things) - 1, min(most, len(things))).round().astype(int))]


def _summary(photograph: Photograph, sight: Sight) -> np.ndarray:
    """What a photograph is like, as a unit vector."""
    mean = sight.see(photograph, whole_box(sight.size(photograph))).features.mean(0)
    found: np.ndarray = mean / np.linalg.norm(mean)
    return found


def _teach(fitted: Landmarks, photographs: Sequence[tuple[Photograph, Any]]) -> None:
    """Let photographs nobody has labelled teach: first in whole, then around what was found there."""
    pool: dict[Kind, list[Cells]] = {"drawn": [], "close": [], "whole": []}
    for photograph, box in photographs:
        crop = check_box(box, fitted.sight.size(photograph), photograph.name)
        pool[fitted.kind(box)].append(fitted.sight.see(photograph, crop))
    fitted.learn({"whole": pool["whole"]})
    for photograph in (photograph for photograph, box in photographs if box is None):
        whole = whole_box(fitted.sight.size(photograph))
        pool["close"].append(fitted.sight.see(photograph, fitted.found_box(photograph, whole)))
    fitted.learn(pool)


def _paired(images: Iterable[Any], boxes: Iterable[Any] | None) -> Iterator[tuple[Any, Any]]:
    """Images, each with its box."""
    if boxes is None:
        yield from zip(images, repeat(None), strict=False)
        return
    nothing = object()
    for image, box in zip_longest(images, boxes, fillvalue=nothing):
        if image is nothing or box is nothing:
            raise InputError("There are not as many boxes as images; expected a box, or None, for each.")
        yield image, box
