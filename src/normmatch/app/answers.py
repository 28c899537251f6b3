"""What the page's server answers, as functions of what a browser sends: nothing is kept from one call to the next."""

import math
import time
from typing import TYPE_CHECKING, Any

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.native import as_entry
from normmatch.app.parcel import File
from normmatch.app.pictures import decode
from normmatch.errors import InputError
from normmatch.geometry import CropWithKeypoints
from normmatch.matching.decoding import low_scores
from normmatch.matching.record import result_values

if TYPE_CHECKING:
    from normmatch.matching.matcher import Matcher

MAX_POINTS_FILE = 50_000_000  # bytes of a points file
MAX_POINTS = 500  # of a picture: more cannot be looked at
SIDES = ("the first picture", "the second picture")


def check_points_file(file: File) -> list[Annotation]:
    """The objects of a points file of any format, if it is not too large."""
    name, data = file
    if len(data) > MAX_POINTS_FILE:
        raise InputError(f"{name} has {len(data) / 1e6:.1f} MB; expected at most {MAX_POINTS_FILE / 1e6:.0f} MB.")
    return annotations.read(name, data)


def read_points_file(file: File) -> dict[str, Any]:
    """The images of a points file, in the form of ours."""
    return {"images": [as_entry(item) for item in check_points_file(file)]}


def match_pictures(matcher: "Matcher", files: list[File], asked: dict[str, Any]) -> dict[str, Any]:
    """Match the points of two pictures. All matches are answered, weak ones too: the page's slider chooses.

    Args:
        matcher: the loaded network
        files: the two pictures
        asked: `sides`, two of {"keypoints": [[x, y], ...], "box": [x, y, width, height] or null}, and `one_to_one`
    """
    sides, one_to_one = _sides(asked)
    start = time.perf_counter()
    crops = _crop(matcher, files[0], sides[0], SIDES[0]), _crop(matcher, files[1], sides[1], SIDES[1])
    (result,) = matcher.match_crops([crops], one_to_one=one_to_one, min_score=0)
    return {
        **result_values(result),
        "similarity": result["similarity"].astype(float).round(3).tolist(),
        "min_score": matcher.backend.min_score,
        "low_scores": low_scores(result, matcher.backend.min_score),
        "seconds": round(time.perf_counter() - start, 3),
    }


def locate_picture(matcher: "Matcher", files: list[File], asked: dict[str, Any]) -> dict[str, Any]:
    """Find the points of one or more pictures in the last one.

    Args:
        matcher: the loaded network
        files: the references, and then the picture to search
        asked: `references`, of each {"keypoints": [[x, y] or null, ...], "box": [x, y, width, height] or null}, the
            `box` of the last picture, and how many `looks`
    """
    given, box, looks = asked.get("references"), asked.get("box"), asked.get("looks", 2)
    if not isinstance(given, list) or not all(map(_is_side, given)) or len(given) != len(files) - 1:
        expected = "`references`, of each `keypoints` and `box`, and a file for each and for the picture to search"
        raise InputError(f"The page sent a request that cannot be read; expected {expected}.")
    start, references = time.perf_counter(), []
    for number, (file, side) in enumerate(zip(files, given, strict=False)):
        which = f"reference {number + 1}"
        points = side["keypoints"] if isinstance(side["keypoints"], list) else []
        known = [point for point in points if point is not None]
        _check_keypoints(known, which.capitalize())
        _check_box(side["box"], which)
        places = [[math.nan, math.nan] if point is None else point for point in points]
        references.append((decode(file), places, side["box"]))
    _check_box(box, "the picture to search")
    (found,) = matcher.locate_many(references, [decode(files[-1])], [box], looks=looks)
    rounded = {key: getattr(found, key).round(4).tolist() for key in ("keypoints", "scores", "visible", "spread")}
    seconds = round(time.perf_counter() - start, 3)
    return {**rounded, "box": list(found.box), "shares": None, "seconds": seconds}


def _crop(matcher: "Matcher", file: File, side: dict[str, Any], which: str) -> CropWithKeypoints:
    """One picture with its points, as the network sees it."""
    try:
        return matcher.crop(decode(file), side["keypoints"], side["box"], which)
    except InputError as error:
        sentence = str(error)
        if sentence.startswith(which):
            sentence = sentence[0].upper() + sentence[1:]
        raise InputError(sentence) from None


def _sides(asked: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """The points and boxes that were asked for, checked but for where they lie, which the matcher does."""
    sides, one_to_one = asked.get("sides"), asked.get("one_to_one")
    if not (isinstance(sides, list) and all(map(_is_side, sides)) and isinstance(one_to_one, bool)):
        expected = "`sides`, each with `keypoints` and `box`, and `one_to_one`"
        raise InputError(f"The page sent a request that cannot be read; expected {expected}.")
    if len(sides) != len(SIDES):
        raise InputError(f"The page sent {len(sides)} sides; expected 2.")
    for side, which in zip(sides, SIDES, strict=True):
        _check_keypoints(side["keypoints"], which.capitalize())
        _check_box(side["box"], which)
    return sides, one_to_one


def _check_box(box: Any, which: str) -> None:
    if box is not None and not _numbers(box, 4):
        raise InputError(f"The box of {which} is none; expected x, y, width and height as numbers, or null.")


def _is_side(side: Any) -> bool:
    return isinstance(side, dict) and {"keypoints", "box"} <= side.keys()


def _check_keypoints(keypoints: Any, which: str) -> None:
    if not isinstance(keypoints, list) or not keypoints:
        raise InputError(f"{which} has no points; click on it to place some.")
    if len(keypoints) > MAX_POINTS:
        raise InputError(f"{which} has {len(keypoints):,} points; expected at most {MAX_POINTS} on this page.")
    if not all(_numbers(point, 2) for point in keypoints):
        raise InputError(f"{which} has points that are no pairs of numbers; expected x and y of each.")


def _numbers(values: Any, count: int) -> bool:
    """Whether these are so many finite numbers, of a size that a picture may have."""
    if not isinstance(values, list) or len(values) != count:
        return False
    return all(type(value) in (int, float) and math.isfinite(value) and abs(value) < 1e9 for value in values)
