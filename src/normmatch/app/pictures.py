"""Pictures that came over the network: decoded in memory, within limits that hold before a pixel is decoded."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from normmatch.app.parcel import File
from normmatch.errors import InputError
from normmatch.io import EXPECTED, read_image

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
    return read_image(io.BytesIO(data), MAX_PIXELS, name)
