"""Talking to a server with bytes of our own choosing: what no browser and no library would send."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from normmatch.app.serving import Listening

KIND = "application/octet-stream"


@dataclass(frozen=True)
class Reply:
    """An answer; status 0 where the server closed the connection without one."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


def parcel(asked: dict[str, Any] | None, *files: bytes, name: str = "a.png") -> bytes:
    """What the page sends: a line of JSON, then files."""
    named = [{"name": name, "size": len(data)} for data in files]
    return json.dumps({**(asked or {}), "files": named}).encode() + b"\n" + b"".join(files)


def question(*points: list[list[float]], one_to_one: bool = False) -> dict[str, Any]:
    """What is asked about two pictures."""
    return {"sides": [{"keypoints": xy, "box": None} for xy in points], "one_to_one": one_to_one}


def head(port: int, start: str = "GET /", *headers: str, host: str | None = None) -> bytes:
    """The first lines of a request, as the page would send them, but for what is added."""
    host = f"127.0.0.1:{port}" if host is None else host
    return "\r\n".join([f"{start} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode("latin-1")


def post(port: int, path: str, body: bytes, *more: str, origin: str | None = None, kind: str = KIND) -> bytes:
    """A question as the page asks it, but for what is changed."""
    origin = f"http://127.0.0.1:{port}" if origin is None else origin
    lines = [f"Origin: {origin}"] * bool(origin) + [f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more]
    return head(port, f"POST {path}", *lines) + body


@contextmanager
def connected(port: int, timeout: float = 10.0, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=timeout) as connection:
        yield connection


def talk(port: int, data: bytes, timeout: float = 10.0, host: str = "127.0.0.1") -> Reply:
    """Send bytes and read one answer."""
    with connected(port, timeout, host) as connection:
        with suppress(OSError):  # refused before all was sent: the answer may be there
            connection.sendall(data)
        return read_reply(connection, data.startswith(b"HEAD"))


def read_reply(connection: socket.socket, only_head: bool = False) -> Reply:
    """The next answer on a connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = _receive(connection)
        if not piece:
            return Reply(0, {}, data)
        data += piece
    lines, _, body = data.partition(b"\r\n\r\n")
    first, *rest = lines.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    length = 0 if only_head else int(headers.get("content-length", 0))
    while len(body) < length:
        piece = _receive(connection)
        if not piece:
            break
        body += piece
    return Reply(int(first.split()[1]), headers, body[:length])


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except ConnectionError:
        return b""


def ask(listening: Listening, path: str, asked: dict[str, Any] | None, *files: bytes, name: str = "a.png") -> Reply:
    """Ask as the page does."""
    return talk(listening.door.port, post(listening.door.port, path, parcel(asked, *files, name=name)), 60)


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < end, "it did not come to this"
        time.sleep(0.01)
