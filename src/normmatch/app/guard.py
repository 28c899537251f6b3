"""Stands before every address of a server of ours, whatever it serves; no request that it refuses gets further.

It is ASGI middleware and knows nothing of the pages behind it. Let through is only what a page of this very server
asks, or a person who opens it:

    Host      one that the server was started for, so that no foreign name can be pointed at this machine
    Origin    or Sec-Fetch-Site, of whatever changes or computes something: this server's own
    token     the first part of every path, where others than this machine can reach the server
    body      bounded by the bytes that arrive, with a least pace, and together with those of all other requests
    work      so many requests at once; more are told when to come back. Those of who has gone are dropped

Every answer carries headers that let a browser load nothing from elsewhere. Whatever goes wrong is JSON with one
sentence, `{"error": ...}`.
"""

import asyncio
import json
import logging
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from normmatch.app.door import READING, App, Door, Receive, Refusal, Scope, Send, admitted, one_header
from normmatch.errors import readable

LOG = logging.getLogger(__name__)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}
NOT_OURS = (b"server", b"x-powered-by")  # headers that would tell what runs here
LINGER = 8_000_000  # bytes of a refused upload that are read, so that its sender hears why


@dataclass(frozen=True)
class Limits:
    """How much is taken from clients, and how long they are waited for."""

    body: int = 51_000_000  # bytes of a request
    held: int = 600_000_000  # bytes of all requests that are read or answered at one time
    requests: int = 32  # answered, or waiting for it, at one time
    retry_after: int = 3  # seconds, said to those who come when there are too many
    connections: int = 256  # open at one time
    window: float = 10.0  # seconds in which a body that is not complete has to bring `pace`
    pace: int = 100_000  # bytes
    head: float = 10.0  # seconds from a request's first byte to the end of its headers
    idle: float = 20.0  # seconds that a connection may wait for a request
    unread: float = 30.0  # seconds in which a client has to take what it is sent
    head_bytes: int = 16_384  # of a request's line and headers


class Gone(Exception):
    """The client has closed the connection."""


class Guard:
    """The middleware: `Guard(app, door)` is an ASGI application."""

    def __init__(self, app: App, door: Door, limits: Limits | None = None) -> None:
        self.app, self.door, self.limits = app, door, limits or Limits()
        self.held = 0  # bytes of bodies
        self.inside = 0  # requests that are answered, or wait for it

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._guard(scope, receive, Dressed(send))
        else:  # no websocket
            await send({"type": "websocket.close", "code": 1008})

    async def _guard(self, scope: Scope, receive: Receive, send: "Dressed") -> None:
        try:
            inner = admitted(scope, self.door, self.limits.head_bytes)
            if scope["method"] in READING:
                await self.app(inner, receive, send)
            else:
                await self._ask(inner, receive, send)
        except Refusal as refusal:
            await _refuse(refusal, receive, send)
        except Gone:
            pass
        except Exception:  # of the application; its trace stays here
            LOG.exception("%s failed", scope["path"].rpartition("/")[2][:80] or "/")  # without the token
            if not send.started:
                await send_error(send, 500, "The server failed at this; its log says why.")

    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body whole, then let the application answer."""
        parts: list[bytes] = []
        size = [0]  # what counts as held for this request
        try:
            parts.append(await self._read(scope, receive, size))
            if self.inside >= self.limits.requests:
                raise self._busy(f"{self.inside} requests wait already")
            self.inside += 1
            try:
                await _answer(self.app, scope, parts, receive, send)
            finally:
                self.inside -= 1
        finally:
            self.held -= size[0]

    async def _read(self, scope: Scope, receive: Receive, size: list[int]) -> bytes:
        """The body, whose sender may neither send too much nor dawdle."""
        limits, clock, body = self.limits, asyncio.get_running_loop().time, bytearray()
        declared = one_header(scope, b"content-length")
        if declared and (not declared.isdecimal() or int(declared[:12]) > limits.body or len(declared) > 12):
            raise _too_large(limits.body)
        mark, reached = clock(), 0
        while True:
            try:
                async with asyncio.timeout_at(mark + limits.window):
                    message = await receive()
            except TimeoutError:
                sentence = f"The upload came too slowly: {len(body) - reached:,} bytes in {limits.window:g} seconds"
                raise Refusal(408, f"{sentence}; expected at least {limits.pace:,}.") from None
            if message["type"] == "http.disconnect":
                raise Gone
            body += message.get("body", b"")
            self.held += len(body) - size[0]
            size[0] = len(body)
            if len(body) > limits.body:
                raise _too_large(limits.body)
            if self.held > limits.held:
                raise self._busy("too much is being uploaded")
            if not message.get("more_body", False):
                return bytes(body)
            if len(body) - reached >= limits.pace:
                mark, reached = clock(), len(body)

    def _busy(self, why: str) -> Refusal:
        seconds = str(self.limits.retry_after)
        sentence = f"The server is busy: {why}; try again in {seconds} seconds."
        return Refusal(503, sentence, **{"retry-after": seconds})


class Dressed:
    """`send` that puts our headers on every answer."""

    def __init__(self, send: Send) -> None:
        self.send, self.started = send, False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            message = {**message, "headers": dressed(message.get("headers", ()))}
        await self.send(message)


def dressed(headers: Any) -> list[tuple[bytes, bytes]]:
    """Headers of an answer with ours among them."""
    given = [(name.lower(), value) for name, value in headers]
    kept = [(name, value) for name, value in given if name not in HEADERS and name not in NOT_OURS]
    if not any(name == b"cache-control" for name, _ in kept):
        kept.append((b"cache-control", b"no-store"))
    return [*kept, *HEADERS.items()]


async def _answer(app: App, scope: Scope, parts: list[bytes], receive: Receive, send: Send) -> None:
    """Run the application with a body that was read; stop when its client has gone."""

    async def read() -> MutableMapping[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await gone

    async def wait_until_gone() -> MutableMapping[str, Any]:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return message

    gone = asyncio.ensure_future(wait_until_gone())
    work = asyncio.ensure_future(app(scope, read, send))
    try:
        await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Gone
        work.result()  # raises what the application raised
    finally:
        for task in (gone, work):
            task.cancel()


async def _refuse(refusal: Refusal, receive: Receive, send: Dressed) -> None:
    """Send the refusal, and read on for a moment: who is cut off while sending would not hear why."""
    headers = {**refusal.headers, "connection": "close"}
    await send_error(send, refusal.status, str(refusal), headers, more=True)
    read = 0
    try:
        async with asyncio.timeout(1):
            while read < LINGER:
                message = await receive()
                read += len(message.get("body", b""))
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_error(
    send: Send, status: int, sentence: str, headers: dict[str, str] | None = None, more: bool = False
) -> None:
    """Send a sentence as JSON."""
    body = error_body(sentence)
    names = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    pairs = [(name.encode(), value.encode()) for name, value in names.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body, "more_body": more})


def error_body(sentence: str) -> bytes:
    """One sentence, of no more than 300 characters, as the JSON that every error is."""
    return json.dumps({"error": readable(" ".join(sentence.split()))}).encode()


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"The upload is too large; expected at most {most / 1e6:.0f} MB.")
