"""Attacks by what a request brings along: requests that cannot be read, bombs, files that are none."""

import gzip
import io
import json
import struct
import zlib
from typing import Any

from PIL import Image

from tests.app.attack import PNG, Attack, sent
from tests.app.client import parcel, question

ONE = [[1, 1]]


def matching(name: str, asked: dict[str, Any] | str, *files: bytes) -> Attack:
    if isinstance(asked, str):  # JSON that `json.dumps` would not write
        line = asked.replace("FILES", json.dumps([{"name": "a.png", "size": len(PNG)}] * 2))
        return sent(name, line.encode() + b"\n" + PNG + PNG)
    return sent(name, parcel(asked, *(files or (PNG, PNG))))


def sides(keypoints: Any, box: Any = None, **more: Any) -> dict[str, Any]:
    return {"sides": [{"keypoints": keypoints, "box": box}] * 2, "one_to_one": False, **more}


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG that says how large it is and has only these chunks."""
    first = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    parts = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in (first, *chunks)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + b"," + bytes(9) + b"\x02\x00;"


def shrunk(kind: str, width: int, height: int) -> bytes:
    """A small file of a picture with many pixels."""
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, kind, compression="group4" if kind == "TIFF" else None)
    return file.getvalue()


NAN = '{"sides": [{"keypoints": [[NaN, 1]], "box": null}], "one_to_one": false, "files": FILES}'
BOMB = gzip.compress(bytes(10_000_000))
BODIES = [
    sent("an empty body", b""),
    sent("a body without JSON", PNG),
    sent("JSON cut off", b'{"files": ['),
    sent("JSON of a list", b"[]\n"),
    sent("JSON of nothing", b"null\n"),
    sent("JSON without files", b"{}\n"),
    sent("JSON of 100,000 brackets", b"[" * 100_000 + b"\n"),
    sent("JSON of 100,000 nested objects", b'{"files":' * 100_000 + b"\n"),
    sent("JSON of 2 MB", b'{"files": "' + b"x" * 2_000_000 + b'"}\n'),
    sent("JSON in no encoding", b'\xff\xfe{"files": []}\n'),
    sent("compressed JSON", BOMB),
    *(
        sent(f"a file of {size} bytes", b'{"files": [{"name": "a", "size": %s}]}\n' % size.encode() + PNG, "/picture")
        for size in ("-1", "1e9", "true", '"5"', "null", "99999999999", "NaN", "Infinity", "9" * 5000, "[5]")
    ),
    sent("files that overlap", b'{"files": [{"name": "a", "size": 9}, {"name": "b", "size": -3}]}\nabcdef'),
    sent("no name", b'{"files": [{"size": 0}]}\n', "/picture"),
    sent("three files", parcel(question(ONE, ONE), PNG, PNG, PNG)),
    sent("a thousand files", parcel(question(ONE, ONE), *[b"x"] * 1000)),
    matching("sides that are none", {"sides": "two", "one_to_one": False}),
    matching("one side", {"sides": sides(ONE)["sides"][:1], "one_to_one": False}),
    matching("a choice that is none", sides(ONE, one_to_one="abc")),
    matching("no points", sides([])),
    matching("2,000 points", sides(ONE * 2000)),
    matching("points of three numbers", sides([[1, 1, 1]])),
    matching("points of text", sides([["1", "1"]])),
    matching("points of truth", sides([[True, False]])),
    matching("points of lists", sides([[[1], [1]]])),
    matching("points far outside", sides([[1e8, 1]])),
    matching("points of NaN", NAN),
    matching("points of 1e999", NAN.replace("NaN", "1e999")),
    matching("points of 300 digits", sides([[10**300, 1]])),
    matching("a box of text", sides(ONE, "x" * 5000)),
    matching("a box of three", sides(ONE, [1, 2, 3])),
    matching("a box of nothing", sides(ONE, [1, 1, 0, 0])),
    matching("a box of 1e300", sides(ONE, [0, 0, 1e300, 1e300])),
    matching("a picture that is none", sides(ONE), PNG, b"hello"),
    matching("a huge picture to match", sides(ONE), PNG, png(50_000, 50_000)),
]

PICTURES = [
    *(
        sent(f"a picture: {name}", parcel(None, data), "/picture")
        for name, data in {
            "empty": b"",
            "text": b"hello",
            "cut off": PNG[:40],
            "50,000 x 50,000": png(50_000, 50_000, (b"IDAT", zlib.compress(bytes(1000)))),
            "2 billion wide": png(2**31 - 1, 1),
            "no size": png(0, 0),
            "8,000 x 8,000 in 100 KB": shrunk("PNG", 8000, 8000),
            "30,000 x 30,000 in a TIFF": shrunk("TIFF", 30_000, 30_000),
            "65,535 x 65,535 in a GIF": gif(65_535, 65_535),
            "a comment of 1 GB": png(
                9, 9, (b"zTXt", b"x\0\0" + zlib.compress(bytes(100_000_000), 9)), (b"IDAT", zlib.compress(bytes(9)))
            ),
            "a program": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
            "a drawing with a file in it": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="/etc/passwd"/></svg>',
            "an entity": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
            "a page": b"<html><script>alert(1)</script></html>",
            "an address": b"http://127.0.0.1:22/",
            "a playlist": b"#EXTM3U\n/etc/passwd",
        }.items()
    ),
    sent("a picture of 26 MB", parcel(None, bytes(26_000_000)), "/picture"),
    sent("the name of another file", parcel(None, b"x", name="../../../etc/passwd"), "/picture"),
    sent("a name of 5,000 letters", parcel(None, b"x", name="n" * 5000), "/picture"),
    sent("a name of control characters", parcel(None, b"x", name="\x1b[31m\r\nSet-Cookie: a=b\0"), "/picture"),
    sent("a name of half a letter", parcel(None, b"x", name="\ud800.png"), "/picture"),
]

POINTS = [
    sent(f"points: {what}", parcel(None, data, name=name), "/points")
    for what, data, name in (
        ("cut off", b"{", "p.json"),
        ("empty", b"", "p.json"),
        ("nested deep", b"[" * 200_000, "p.json"),
        ("NaN", b'{"images": [{"image": "a", "keypoints": [{"name": "n", "x": NaN, "y": 1}]}]}', "p.json"),
        ("endless", b'{"images": [{"image": "a", "keypoints": [{"name": "n", "x": 1e999, "y": 1}]}]}', "p.json"),
        ("5,000 digits", b'{"images": [{"image": "a", "keypoints": [{"x": %s, "y": 1}]}]}' % (b"9" * 5000), "p.json"),
        ("no columns", b"1,2,3,4\n5,6,7,8\n", "p.csv"),
        ("a field of 1 MB", b"image,name,x,y\n" + b"a" * 1_000_000 + b",n,x,2\n", "p.csv"),
        ("too many bytes", b" " * 3_000_000, "p.json"),
        ("another file's name", b"x", "/etc/passwd"),
        ("a long key", b'{"' + b"k" * 100_000 + b'": 1}', "p.json"),
    )
]

ATTACKS = [*BODIES, *PICTURES, *POINTS]
