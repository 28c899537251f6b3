"""What the web page's server answers, as functions of what a browser sends: nothing is kept from one call to the next.

Pictures and points files come as bytes. They are read from a folder of their own that goes away with the call, so no
call can see another's data or any other file of the machine.
"""

import base64
import io
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from normmatch import annotations
from normmatch.annotations.native import as_entry
from normmatch.errors import InputError, NormMatchError
from normmatch.io import read_image
from normmatch.matching.decoding import low_scores

if TYPE_CHECKING:
    from normmatch.matching.matcher import Matcher

MAX_FILE = 25_000_000  # bytes of a picture
MAX_POINTS_FILE = 2_000_000  # bytes of a points file
MAX_PIXELS = 50_000_000  # of a picture: the page decodes two at a time
MAX_POINTS = 500  # of a picture: more cannot be looked at
PREVIEW = 1600  # pixels, the longer side of the copy that the browser shows
SIDES = ("The first picture", "The second picture")
DECODING = threading.BoundedSemaphore(2)  # bounds the memory for decoded pictures, whoever sends them


def describe_picture(data: bytes, name: str) -> dict[str, Any]:
    """Size of an uploaded picture, and a copy that every browser can show, as a data URL."""
    with DECODING:
        array = decode(data, name)  # (H, W, 3)
        height, width = array.shape[:2]
        image = Image.fromarray(array)
        image.thumbnail((PREVIEW, PREVIEW), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92)
    url = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    return {"name": file_name(name), "width": width, "height": height, "preview": url}


def decode(data: bytes, name: str) -> np.ndarray:
    """An uploaded picture as (H, W, 3) uint8, upright."""
    shown = file_name(name)
    if len(data) > MAX_FILE:
        raise InputError(f"{shown} has {len(data) / 1e6:.0f} MB; expected at most {MAX_FILE / 1e6:.0f} MB.")
    with _as_file(data, shown) as path:
        return read_image(path, max_pixels=MAX_PIXELS)


def read_points_file(data: bytes, name: str) -> dict[str, Any]:
    """The images of an uploaded points file (ours, COCO or CSV), in the form of ours."""
    shown = file_name(name)
    if len(data) > MAX_POINTS_FILE:
        raise InputError(f"{shown} has {len(data) / 1e6:.0f} MB; expected at most {MAX_POINTS_FILE / 1e6:.0f} MB.")
    with _as_file(data, shown) as path:
        return {"images": [as_entry(item) for item in annotations.read(path)]}


def match_pictures(matcher: "Matcher", pictures: tuple[bytes, bytes], request: str) -> dict[str, Any]:
    """Match the points of two pictures. All matches are answered, weak ones too: the page's slider chooses.

    Args:
        matcher: the loaded network
        pictures: the two files
        request: JSON with `sides`, two of {"name", "keypoints": [[x, y], ...], "box": [x, y, width, height] or null},
            and `one_to_one`
    """
    asked = _parsed(request)
    sides = asked["sides"]
    points = [_keypoints(side, which) for side, which in zip(sides, SIDES, strict=True)]
    with DECODING:
        arrays = [decode(data, side["name"]) for data, side in zip(pictures, sides, strict=True)]
        start = time.perf_counter()
        try:
            result = matcher.match(
                *arrays,
                *points,
                box0=sides[0]["box"],
                box1=sides[1]["box"],
                one_to_one=asked["one_to_one"],
                min_score=0,
            )
        except NormMatchError as error:
            sentence = str(error).replace("image0", "the first picture").replace("image1", "the second picture")
            raise InputError(sentence[0].upper() + sentence[1:]) from None
        seconds = time.perf_counter() - start
    return {
        **{key: result[key].tolist() for key in ("matches0", "matches1")},
        **{key: result[key].astype(float).round(4).tolist() for key in ("matching_scores0", "matching_scores1")},
        "similarity": result["similarity"].astype(float).round(3).tolist(),
        "min_score": matcher.backend.min_score,
        "low_scores": low_scores(result, matcher.backend.min_score),
        "seconds": round(seconds, 3),
    }


def file_name(name: str) -> str:
    """The last part of what a browser calls a file, short enough for a message."""
    last = PurePosixPath(PureWindowsPath(name).as_posix()).name
    kept = "".join(character for character in last if character.isprintable())
    return kept[-80:] or "the picture"


@contextmanager
def _as_file(data: bytes, name: str) -> Iterator[Path]:
    """The bytes as a file while the block runs; messages that name it are given the user's name for it."""
    with tempfile.TemporaryDirectory(prefix="normmatch-") as folder:
        path = Path(folder) / ("upload" + Path(name).suffix.lower()[:6])
        path.write_bytes(data)
        try:
            yield path
        except NormMatchError as error:
            raise InputError(str(error).replace(str(path), name).replace(path.name, name)) from None


def _parsed(request: str) -> dict[str, Any]:
    """The request as a dict with all its parts."""
    expected = "expected `sides` with `name`, `keypoints` and `box`, and `one_to_one`"
    try:
        asked = json.loads(request)
        sides = [
            {"name": str(side["name"]), "keypoints": side["keypoints"], "box": side["box"]} for side in asked["sides"]
        ]
        one_to_one = bool(asked["one_to_one"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"The page sent a request that cannot be read; {expected}.") from None
    if len(sides) != 2:
        raise InputError(f"The page sent {len(sides)} pictures; expected 2.")
    return {"sides": sides, "one_to_one": one_to_one}


def _keypoints(side: dict[str, Any], which: str) -> np.ndarray:
    """Checked keypoints (N, 2) of a side; the matcher checks where they lie."""
    count = len(side["keypoints"]) if isinstance(side["keypoints"], list) else 0
    if count == 0:
        raise InputError(f"{which} has no points; click on it to place some.")
    if count > MAX_POINTS:
        raise InputError(f"{which} has {count:,} points; expected at most {MAX_POINTS} on this page.")
    try:
        return np.array(side["keypoints"], dtype=np.float64).reshape(count, 2)
    except (TypeError, ValueError):
        raise InputError(f"{which} has points that are no pairs of numbers; expected x and y of each.") from None
