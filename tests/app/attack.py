"""What an attack on the page's server is, and short ways to write one down."""

from collections.abc import Callable
from typing import NamedTuple

from tests.app.client import head, parcel, post
from tests.app.conftest import encoded

FOREIGN = "http://evil.example"
ME = "http://127.0.0.1:{port}"
PNG = encoded(32, 24)


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


def length(said: str, statuses: str) -> Attack:
    """An upload that says how long it is, and then does not come."""

    def data(port: int) -> bytes:
        lines = f"Origin: {ME}".format(port=port), "Content-Type: application/octet-stream", f"Content-Length: {said}"
        return head(port, "POST /picture", *lines) + b"x"

    return Attack(f"a length of {said[:12]}", statuses, data)


def chunked(*chunks: bytes) -> bytes:
    lines = f"Origin: {ME}", "Content-Type: application/octet-stream", "Transfer-Encoding: chunked"
    start = "\r\n".join(["POST /picture HTTP/1.1", "Host: 127.0.0.1:PORT", *lines, "", ""]).replace("{port}", "PORT")
    return start.encode() + b"".join(chunks)
