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
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

LOG = logging.getLogger(__name__)
MAX_SENTENCE = 300  # characters of an error
READING = ("GET", "HEAD")
ASKING = "application/octet-stream"  # what a question is sent as: a foreign page may not send this without asking
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}
NOT_OURS = (b"server", b"x-powered-by")  # headers that would tell what runs here
LINGER = 8_000_000  # bytes of a refused upload that are read, so that its sender hears why

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


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


@dataclass(frozen=True)
class Door:
    """By which names a server may be called."""

    hosts: frozenset[str]  # as Host has them: name:port
    port: int
    anywhere: bool = False  # it listens at all addresses of the machine: the one that a connection came to is right too
    token: str = ""


class Refusal(Exception):
    """A request that is not answered: why, in one sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers


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
            _check_head(scope, self.limits.head_bytes)
            inner = admitted(scope, self.door)
            if scope["method"] in READING:
                await self.app(inner, receive, send)
            else:
                await self._ask(inner, receive, send)
        except Refusal as refusal:
            await _refuse(refusal, receive, send)
        except Gone:
            pass
        except Exception:  # of the application; its trace stays here
            LOG.exception("%s failed", scope["path"][:80])
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


# ---- who is let in ----


def admitted(scope: Scope, door: Door) -> Scope:
    """The scope that the application is to see, or a Refusal."""
    host = _check_host(scope, door)
    if one_header(scope, b"upgrade"):
        raise Refusal(400, "There is no websocket at this server; expected a plain request.")
    inner = _check_token(scope, door)
    if scope["method"] in READING:
        _check_reading(scope)
    elif scope["method"] == "POST":
        _check_asking(scope, host)
    else:
        expected = ", ".join((*READING, "POST"))
        raise Refusal(405, f"The method {shown(scope['method'])} is not known here; expected {expected}.", allow=expected)
    return inner


def _check_head(scope: Scope, most: int) -> None:
    if scope["http_version"] not in ("1.0", "1.1"):
        raise Refusal(505, f"The request is of HTTP {shown(scope['http_version'])}; expected 1.1.")
    size = len(scope["path"]) + sum(len(name) + len(value) for name, value in scope["headers"])
    if size > most:
        raise Refusal(431, f"The request has {size:,} bytes of headers; expected at most {most:,}.")


def _check_host(scope: Scope, door: Door) -> str:
    host = one_header(scope, b"host").lower()
    known = set(door.hosts)
    if door.anywhere and scope.get("server"):
        known |= host_names(scope["server"][0], door.port)
    if host not in known:
        said = shown(host) or "nothing"
        raise Refusal(403, f"The request is for the host {said}; expected one of {', '.join(sorted(known)[:6])}.")
    return host


def _check_token(scope: Scope, door: Door) -> Scope:
    """The scope without the token, which is the first part of its path."""
    if not door.token:
        return scope
    prefix, path = f"/{door.token}/", scope["path"]
    if not hmac.compare_digest(path[: len(prefix)].encode(), prefix.encode()):
        raise Refusal(403, "The address lacks its secret part; expected the whole address that the server printed.")
    path = path[len(prefix) - 1 :]
    return {**scope, "path": path, "raw_path": path.encode()}


def _check_reading(scope: Scope) -> None:
    """Nothing is uploaded with a GET, and no foreign page may load anything of ours into itself."""
    if one_header(scope, b"content-length") not in ("", "0") or one_header(scope, b"transfer-encoding"):
        raise Refusal(400, f"A {scope['method']} came with a body; expected none.")
    site, mode, kind = (one_header(scope, b"sec-fetch-" + name) for name in (b"site", b"mode", b"dest"))
    opened = mode == "navigate" and kind == "document"
    if site not in ("", "same-origin", "none") and not opened:
        raise Refusal(403, "Another site asks for this; expected a page of this server, or a person who opens it.")


def _check_asking(scope: Scope, host: str) -> None:
    """A question comes from a page of this server, which its browser says, and in the form that only such a page has."""
    origin, site = one_header(scope, b"origin"), one_header(scope, b"sec-fetch-site")
    if not origin and not site:
        raise Refusal(403, "The request says not where it comes from; expected the header Origin or Sec-Fetch-Site.")
    if (origin and origin.lower() != f"http://{host}") or (site and site != "same-origin"):
        raise Refusal(403, f"The request comes from {shown(origin or site)}; expected a page of this server, {host}.")
    if one_header(scope, b"content-length") and one_header(scope, b"transfer-encoding"):
        raise Refusal(400, "The request has a Content-Length and a Transfer-Encoding; expected one of them.")
    kind = one_header(scope, b"content-type").lower()
    if kind != ASKING:
        raise Refusal(415, f"The request has the content type {shown(kind) or 'of nothing'}; expected {ASKING}.")
    if one_header(scope, b"content-encoding") not in ("", "identity"):
        raise Refusal(415, "The request is compressed; expected it as it is.")


def one_header(scope: Scope, name: bytes) -> str:
    """The value of a header, empty where there is none; one that comes twice is refused."""
    values = [value for key, value in scope["headers"] if key == name]
    if len(values) > 1:
        raise Refusal(400, f"The request has the header {name.decode()} {len(values)} times; expected it once.")
    return values[0].decode("latin-1").strip() if values else ""


def host_names(name: str, port: int) -> set[str]:
    """How Host says a name or an address with this port."""
    bare = f"[{name}]" if ":" in name else name
    return {f"{bare}:{port}".lower(), *([bare.lower()] if port == 80 else ())}


# ---- answers ----


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
    if len(sentence) > MAX_SENTENCE:
        half = MAX_SENTENCE // 2
        sentence = f"{sentence[: half - 2]} ... {sentence[3 - half :]}"
    return json.dumps({"error": " ".join(sentence.split())}).encode()


def shown(value: str) -> str:
    """What a client sent, short and printable enough for a sentence."""
    kept = "".join(character for character in value[:60] if character.isprintable())
    return kept + " ..." * (len(value) > 60)


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"The upload is too large; expected at most {most / 1e6:.0f} MB.")
