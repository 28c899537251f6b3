"""Pictures that came over the network: decoded in memory, within limits that hold before a pixel is decoded."""

import base64
import functools
import io
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from normmatch.app.parcel import File
from normmatch.errors import InputError, first_line
from normmatch.io import EXPECTED, FORMATS, QUIET, rgb_array

MAX_FILE = 25_000_000  # bytes of a picture
MAX_PIXELS = 50_000_000  # of a picture
PREVIEW = 1600  # pixels, the longer side of the copy that the browser shows


def describe_picture(file: File) -> dict[str, Any]:
    """Size of a picture, and a copy that every browser can show: a JPEG in base64."""
    array = decode(file)  # (H, W, 3)
    height, width = array.shape[:2]
    image = Image.fromarray(array)
    image.thumbnail((PREVIEW, PREVIEW), Image.Resampling.LANCZOS)
    copy = io.BytesIO()
    image.save(copy, "JPEG", quality=92)
    return {
        "name": file.name, "width": width, "height": height, "preview": base64.b64encode(copy.getvalue()).decode()
    }  # fmt: skip


def decode(file: File) -> np.ndarray:
    """A picture as (H, W, 3) uint8, upright."""
    name, data = file
    if not data:
        raise InputError(f"{name} is empty (0 bytes); expected {EXPECTED}.")
    if len(data) > MAX_FILE:
        raise InputError(f"{name} has {len(data) / 1e6:.1f} MB; expected at most {MAX_FILE / 1e6:.0f} MB.")
    with QUIET:
        try:
            with Image.open(io.BytesIO(data), formats=_formats()) as image:
                _check_size(name, *image.size)
                ImageOps.exif_transpose(image, in_place=True)
                return rgb_array(image)
        except InputError:
            raise
        except UnidentifiedImageError:
            raise InputError(f"{name} is not a readable image; expected {EXPECTED}.") from None
        except Image.DecompressionBombError:
            raise InputError(f"{name} has more than the {MAX_PIXELS:,} pixels that can be read.") from None
        except Exception as error:  # the decoders raise whatever they stumble on
            reason = first_line(error).rstrip(".")[:80]
            raise InputError(f"{name} is damaged or cut off ({reason}); expected {EXPECTED}.") from None


@functools.cache
def _formats() -> tuple[str, ...]:
    """What we read, as this Pillow calls it: a format that it is not told of is never looked for."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)  # without MPO, which its JPEG reader reads


def _check_size(name: str, width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise InputError(f"{name} has {width} x {height} pixels; expected at most {MAX_PIXELS:,} in all.")
    if width * height == 0:
        raise InputError(f"{name} has {width} x {height} pixels; expected at least one.")
