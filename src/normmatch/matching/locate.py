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
    learn = check_flag(learn, "learn")
    fitted = Landmarks(references, Sight(encoder, REMEMBERED), looks, turned, mirrored, flip)
    fitted.calibrate()
    pairs = _paired(images, boxes)
    if learn and not (turned or mirrored) and isinstance(images, Sequence) and len(images) > 2:
        given = [None] * len(images) if boxes is None else list(boxes)
        if len(given) != len(images):
            raise InputError(f"There are {len(images)} images and {len(given)} boxes; expected as many of each.")
        chosen = choose_pool(range(len(images)))
        _teach(fitted, [Photograph.of(images[i], f"image {i}") for i in chosen], [given[i] for i in chosen])
        pairs = zip(images, given, strict=True)
    for number, (image, box) in enumerate(pairs):
        yield fitted.locate(Photograph.of(image, f"image {number}"), box)


def choose_pool(photographs: Sequence[Any]) -> list[Any]:
    """Evenly spread ones of many, to teach."""
    chosen = np.linspace(0, len(photographs) - 1, min(POOL, len(photographs))).round().astype(int)
    return [photographs[i] for i in np.unique(chosen)]


def _teach(fitted: Landmarks, photographs: Sequence[Photograph], boxes: Sequence[Any]) -> None:
    """Let photographs nobody has labelled teach: first in whole, then around what was found there."""
    pool: dict[Kind, list[Cells]] = {"drawn": [], "close": [], "whole": []}
    for photograph, box in zip(photographs, boxes, strict=True):
        crop = check_box(box, fitted.sight.size(photograph), photograph.name)
        pool[fitted.kind(box)].append(fitted.sight.see(photograph, crop))
    fitted.learn({"whole": pool["whole"]})
    for photograph in (one for one, box in zip(photographs, boxes, strict=True) if box is None):
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
