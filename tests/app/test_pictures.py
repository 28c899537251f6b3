"""Pictures from the network: shown upright and small, refused before they take memory."""

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from normmatch.app import pictures
from normmatch.app.parcel import File
from normmatch.app.pictures import decode, describe_picture
from normmatch.errors import InputError
from normmatch.io import FORMATS
from tests.app.conftest import encoded


def header_only(width: int, height: int) -> bytes:
    """A PNG that says how large it is and has no pixels."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return header + struct.pack(">I", 4) + b"IDAT" + b"none" + struct.pack(">I", zlib.crc32(b"IDATnone"))


def test_a_picture_is_shown_upright_and_small() -> None:
    image = Image.new("RGB", (4000, 100), "red")
    exif = image.getexif()
    exif[0x0112] = 6  # a quarter turn
    file = io.BytesIO()
    image.save(file, "JPEG", exif=exif)
    answer = describe_picture(File("tall.jpg", file.getvalue()))
    assert (answer["name"], answer["width"], answer["height"]) == ("tall.jpg", 100, 4000)
    with Image.open(io.BytesIO(base64.b64decode(answer["preview"]))) as shown:
        assert shown.size == (40, pictures.PREVIEW)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read(kind: str) -> None:
    if kind == "MPO":
        file = io.BytesIO()
        Image.new("RGB", (30, 20), "teal").save(file, kind, save_all=True, append_images=[Image.new("RGB", (30, 20))])
        data = file.getvalue()
    else:
        data = encoded(30, 20, kind=kind)
    array = decode(File("a", data))
    assert array.shape == (20, 30, 3)
    np.testing.assert_allclose(array[10, 15], (0, 128, 128), atol=6)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"hello", "own.jpg is not a readable image"),
        (b"", "own.jpg is empty"),
        (encoded(320, 240)[:200], "own.jpg is damaged or cut off"),
        (header_only(40_000, 30_000), "own.jpg has more than the 50,000,000 pixels"),
        (header_only(40_000, 1_500), "own.jpg has 40000 x 1500 pixels, more than the 50,000,000 that can be read"),
        (b"\x00" * (pictures.MAX_FILE + 1), "own.jpg has 25.0 MB; expected at most 25 MB"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "own.jpg is not a readable image"),
    ],
    ids=["text", "empty", "cut off", "huge", "40,000 pixels wide", "too large a file", "a program"],
)
def test_what_is_no_picture(data: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        describe_picture(File("own.jpg", data))
    assert str(error.value).startswith(sentence)
    assert "BytesIO" not in str(error.value)
