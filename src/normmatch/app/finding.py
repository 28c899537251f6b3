"""Where the points of some pictures are in another one: what the page of two pictures asks after every click."""

import math
import time
from typing import TYPE_CHECKING, Any

from normmatch.app.answers import MAX_POINTS, are_numbers
from normmatch.app.parcel import File
from normmatch.app.pictures import decode
from normmatch.errors import InputError

if TYPE_CHECKING:
    from normmatch.matching.matcher import Matcher

MAX_REFERENCES = 12
EXPECTED = "expected `references`, each with `keypoints` and `box`, `box` and `looks`"
NOT_SHOWN = [math.nan, math.nan]


def locate_pictures(matcher: "Matcher", files: list[File], asked: dict[str, Any]) -> dict[str, Any]:
    """Locate the points of the references in the last picture.

    Args:
        matcher: the loaded network
        files: the references' pictures, and then the one that is searched
        asked: `references`, of each {"keypoints": [[x, y] or null, ...], "box": [x, y, width, height] or null};
            `box` of the picture that is searched, or null; `looks`, 1 or 2
    """
    given, looks = asked.get("references"), asked.get("looks", 2)
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given) or type(looks) is not int:
        raise InputError(f"The page sent a request that cannot be read; {EXPECTED}.")
    if not 1 <= len(given) <= MAX_REFERENCES or len(files) != len(given) + 1:
        count = f"{len(files)} pictures with points on {len(given)}"
        raise InputError(f"The page sent {count}; expected 1 to {MAX_REFERENCES} references and one picture more.")
    references = [
        (decode(file), _keypoints(one.get("keypoints"), file.name), _box(one.get("box"), file.name))
        for file, one in zip(files, given, strict=False)
    ]
    start = time.perf_counter()
    box = _box(asked.get("box"), files[-1].name)
    found = next(matcher.locate_many(references, [decode(files[-1])], [box], looks=looks))
    return {
        "keypoints": found.keypoints.round(2).tolist(),
        "scores": found.scores.round(4).tolist(),
        "visible": found.visible.round(4).tolist(),
        "spread": found.spread.round(2).tolist(),
        "box": list(found.box),
        "shares": None,  # how much each reference counted is not known
        "seconds": round(time.perf_counter() - start, 3),
    }


def _keypoints(keypoints: Any, name: str) -> list[list[float]]:
    """Points with NaN for those that a reference does not show."""
    if not isinstance(keypoints, list) or not any(keypoints):
        raise InputError(f"{name} has no points; click on it to place some.")
    if len(keypoints) > MAX_POINTS:
        raise InputError(f"{name} has {len(keypoints):,} points; expected at most {MAX_POINTS} on this page.")
    if not all(point is None or are_numbers(point, 2) for point in keypoints):
        raise InputError(f"{name} has points that are no pairs of numbers; expected x and y of each, or null.")
    return [NOT_SHOWN if point is None else point for point in keypoints]


def _box(box: Any, name: str) -> Any:
    if box is not None and not are_numbers(box, 4):
        raise InputError(f"The box of {name} is none; expected x, y, width and height as numbers, or null.")
    return box
