"""Attacks on a real server, one a line: each is refused, in one sentence of JSON, and the page goes on as before."""

import gzip
import io
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from PIL import Image

from normmatch.app.guard import HEADERS, MAX_SENTENCE
from normmatch.app.serving import Listening
from tests.app.client import head, parcel, post, question, talk
from tests.app.conftest import encoded

FOREIGN = "http://evil.example"
ME = "http://127.0.0.1:{port}"
PNG = encoded(32, 24)
ONE = [[1, 1]]


class Attack(NamedTuple):
    name: str
    statuses: str  # one of these is right; 0 is a connection that was closed without an answer
    data: Callable[[int], bytes]


def get(name: str, statuses: str, path: str, *headers: str, host: str | None = None, method: str = "GET") -> Attack:
    def data(port: int) -> bytes:
        filled = [header.format(port=port) for header in headers]
        return head(port, f"{method} {path}", *filled, host=None if host is None else host.format(port=port))

    return Attack(name, statuses, data)


def raw(name: str, statuses: str, data: bytes) -> Attack:
    return Attack(name, statuses, lambda port: data.replace(b"PORT", str(port).encode()))


def sent(name: str, body: bytes, path: str = "/match", statuses: str = "400") -> Attack:
    """A body that is asked as the page would ask."""
    return Attack(name, statuses, lambda port: post(port, path, body))


def from_page(name: str, statuses: str, *more: str, origin: str = ME, kind: str = "application/octet-stream") -> Attack:
    """A good question with other headers."""

    def data(port: int) -> bytes:
        filled = [header.format(port=port) for header in more]
        body = parcel(None, PNG)
        return post(port, "/picture", body, *filled, origin=origin.format(port=port), kind=kind)

    return Attack(name, statuses, data)


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


def chunked(*chunks: bytes) -> bytes:
    lines = f"Origin: {ME}", "Content-Type: application/octet-stream", "Transfer-Encoding: chunked"
    start = "\r\n".join(["POST /picture HTTP/1.1", "Host: 127.0.0.1:PORT", *lines, "", ""]).replace("{port}", "PORT")
    return start.encode() + b"".join(chunks)


HOSTS = [
    get("a foreign host", "403", "/", host="evil.example"),
    get("a foreign host with our port", "403", "/", host="evil.example:{port}"),
    get("our name inside a foreign one", "403", "/", host="localhost.evil.example:{port}"),
    get("a name that resolves to us", "403", "/", host="127.0.0.1.nip.io:{port}"),
    get("our address without the port", "403", "/", host="127.0.0.1"),
    get("our address with another port", "403", "/", host="127.0.0.1:1"),
    get("our address as a user", "403", "/", host="127.0.0.1:{port}@evil.example"),
    get("a dot after our name", "403", "/", host="localhost.:{port}"),
    get("all addresses", "403", "/", host="0.0.0.0:{port}"),
    get("our address as a number", "403", "/", host="2130706433:{port}"),
    get("another address of loopback", "403", "/", host="127.0.0.2:{port}"),
    get("no host in it", "400 403", "/", host=""),
    get("our address as forwarded", "403", "/", "X-Forwarded-Host: 127.0.0.1:{port}", host="evil.example"),
    get("a whole foreign address", "403", "http://evil.example/", host="evil.example"),
    get("a whole foreign address under our host", "404", "http://evil.example/"),
    raw("two hosts", "400", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: evil.example\r\n\r\n"),
    raw("no host", "400", b"GET / HTTP/1.1\r\n\r\n"),
    raw("no host, as of 1996", "403", b"GET / HTTP/1.0\r\n\r\n"),
    get("a host of 10,000 letters", "403", "/", host="x" * 10_000),
    Attack(
        "a name that was pointed at us",
        "403",
        lambda port: post(port, "/picture", parcel(None, PNG), "Sec-Fetch-Site: same-origin").replace(
            b"127.0.0.1", b"evil.example"
        ),
    ),
]

ORIGINS = [
    from_page("a foreign origin", "403", origin=FOREIGN),
    from_page("no origin to speak of", "403", origin="null"),
    from_page("another scheme", "403", origin="https://127.0.0.1:{port}"),
    from_page("another port", "403", origin="http://127.0.0.1:1"),
    from_page("another of our names", "403", origin="http://localhost:{port}"),
    from_page("our origin inside a foreign one", "403", origin=ME + ".evil.example"),
    from_page("our origin as a user", "403", origin=ME + "@evil.example"),
    from_page("neither origin nor site", "403", origin=""),
    from_page("another site", "403", "Sec-Fetch-Site: cross-site", origin=""),
    from_page("another port of this machine", "403", "Sec-Fetch-Site: same-site", origin=""),
    from_page("no page at all", "403", "Sec-Fetch-Site: none", origin=""),
    from_page("our origin, but another site", "403", "Sec-Fetch-Site: cross-site"),
    from_page("our site, but a foreign origin", "403", "Sec-Fetch-Site: same-origin", origin=FOREIGN),
    from_page("two origins", "400", f"Origin: {FOREIGN}"),
    from_page("a form of text", "415", kind="text/plain"),
    from_page("a form", "415", kind="application/x-www-form-urlencoded"),
    from_page("a form with files", "415", kind="multipart/form-data; boundary=x"),
    from_page("compressed", "415", "Content-Encoding: gzip"),
    get("a picture in a foreign page", "403", "/samples/0", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"),
    get("a script in a foreign page", "403", "/samples", "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: script"),
    get(
        "a frame in a foreign page",
        "403",
        "/",
        *("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
    ),
    get("asking for leave", "405", "/match", f"Origin: {FOREIGN}", method="OPTIONS"),
]

LENGTHS = [
    from_page("two lengths", "400", "Content-Length: 5"),
    from_page("a length and chunks", "400", "Transfer-Encoding: chunked"),
    *(
        Attack(f"a length of {length[:12]}", status, lambda port, length=length: head(
            port, "POST /picture", f"Origin: http://127.0.0.1:{port}", "Content-Type: application/octet-stream",
            f"Content-Length: {length}",
        ) + b"x")  # fmt: skip
        for length, status in (
            ("51000001", "413"), ("9" * 30, "400 413"), ("-1", "400"), ("0x10", "400"), ("+5", "400"), ("1e3", "400"),
            ("5, 5000000000", "400"), ("\xb2", "400"),
        )  # fmt: skip
    ),
    raw("chunks of 60 MB", "413 0", chunked(*[b"%x\r\n" % 1_000_000 + bytes(1_000_000) + b"\r\n"] * 60)),
    raw("a chunk of no size", "400 0", chunked(b"zz\r\nabc\r\n")),
    raw("a chunk of negative size", "400 0", chunked(b"-5\r\nabc\r\n")),
    raw("a chunk of 2**80 bytes", "400 0", chunked(b"%x\r\nabc\r\n" % 2**80)),
    raw("a chunk with a long remark", "400 0", chunked(b"5;" + b"x" * 100_000 + b"\r\nabcde\r\n0\r\n\r\n")),
    raw("chunks of gzip", "400 501", chunked(b"0\r\n\r\n").replace(b": chunked", b": gzip, chunked")),
    get("a body with a GET", "400", "/", "Content-Length: 5"),
    get("chunks with a GET", "400", "/", "Transfer-Encoding: chunked"),
    get("leave to send what is foreign", "405", "/picture", "Expect: 100-continue", method="PUT"),
]

PATHS = [
    get(f"the path {path[:40]}", "404", path)
    for path in (
        "/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static/%252e%252e/server.py",
        "/static/..%5cserver.py", "/static/%c0%ae%c0%ae/server.py", "//etc/passwd", "/static//etc/passwd",
        "/static/%2fetc%2fpasswd", "/../../../../etc/passwd", "/static/main.js%00.html", "/%00", "/static/", "/static",
        "/samples/-1", "/samples/99", "/samples/0/", "/samples/x", "/samples/0%2f..%2fpoints.json", "/SAMPLES",
        "/samples/cat.jpg", "/gradio_api/file=/etc/passwd", "/gradio_api/upload", "/file=/etc/passwd", "/config",
        "/docs", "/openapi.json", "/.git/config", "/server.py", "/match/..", "/" + "x" * 10_000, "/%f0%9f%98%80",
        "/?/../server.py"[:1] + "index.html", "/static/main.js/", "/static/main.js;x=1", "/~root",
    )  # fmt: skip
]

METHODS = [
    *(
        get(f"the method {method}", "405", "/match", method=method)
        for method in ("PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "X" * 500)
    ),
    get("reading what is asked", "405", "/match"),
    get("a method in a header", "405", "/picture", "X-HTTP-Method-Override: POST"),
    *(sent(f"asking {path}", parcel(None, PNG), path, "405") for path in ("/", "/samples", "/static/main.js")),
    sent("asking nothing", parcel(None, PNG), "/nothing", "404"),
]

SOCKET = "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"
PROTOCOL = [
    get("a websocket", "400", "/", "Upgrade: websocket", *SOCKET),
    get("a websocket of ours", "400", "/match", "Upgrade: websocket", "Origin: " + ME, *SOCKET),
    get("another protocol", "400", "/", "Upgrade: h2c", "Connection: Upgrade"),
    raw("HTTP/2", "400 505", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    raw("TLS", "400", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n"),
    raw("no HTTP", "400", b"hello\r\n\r\n"),
    raw("an unknown version", "400 505", b"GET / HTTP/9.9\r\nHost: 127.0.0.1:PORT\r\n\r\n"),
    raw("HTTP/0.9", "400", b"GET /\r\n\r\n"),
    get("a header of 100 KB", "400 431", "/", "X-Long: " + "x" * 100_000),
    get("5,000 headers", "400 431", "/", *[f"X-{k}: {k}" for k in range(5000)]),
    get("a header without end", "400 431", "/", "X-Long: " + "x" * 1_000_000),
    get("a space before the colon", "400", "/", "X-Odd : 1"),
    get("a header over two lines", "403 400", "/", " evil.example", host="127.0.0.1:{port}"),
    get("a null byte in a header", "400", "/", "X-Odd: \0"),
    raw("a second request inside", "403", b"GET / HTTP/1.1\r\nHost: evil\r\n\r\nGET / HTTP/1.1\r\nHost: evil\r\n\r\n"),
]

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
    matching("points of NaN", '{"sides": [{"keypoints": [[NaN, 1]], "box": null}], "one_to_one": false, "files": FILES}'),
    matching("points of 1e999", json.dumps({**sides([["BIG", 1]]), "files": "F"}).replace('"BIG"', "1e999").replace(
        '"F"', "FILES")),  # fmt: skip
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

ATTACKS = [*HOSTS, *ORIGINS, *LENGTHS, *PATHS, *METHODS, *PROTOCOL, *BODIES, *PICTURES, *POINTS]


def test_there_are_enough() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_it_is_refused(page_server: Listening, attack: Attack, capfd: pytest.CaptureFixture[str]) -> None:
    reply = talk(page_server.door.port, attack.data(page_server.door.port))
    assert str(reply.status) in attack.statuses.split(), reply
    if reply.status:
        assert reply.json.keys() == {"error"}
        assert 10 < len(reply.error) <= MAX_SENTENCE
        assert reply.error.endswith(".")
        assert not any(secret in reply.error for secret in ("\n", "Traceback", "/tmp", "root:", ".py"))
        assert reply.headers["content-type"] == "application/json"
        assert "server" not in reply.headers
        assert "access-control-allow-origin" not in reply.headers
        assert {name.decode(): value.decode() for name, value in HEADERS.items()}.items() <= reply.headers.items()
    assert capfd.readouterr() == ("", "")  # and the log is not filled
    assert talk(page_server.door.port, head(page_server.door.port)).status == 200
