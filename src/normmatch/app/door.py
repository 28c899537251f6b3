"""Who is let in: what the guard asks of a request's first lines, before any of its body is read."""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

READING = ("GET", "HEAD")
# What a question is sent as. A foreign page may send neither before its browser has asked us, and we never give leave.
ASKING = ("application/octet-stream", "application/json")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


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


def admitted(scope: Scope, door: Door, most: int) -> Scope:
    """The scope that the application is to see, or a Refusal; `most` bytes of headers are taken."""
    _check_head(scope, most)
    host = _check_host(scope, door)
    if one_header(scope, b"upgrade"):
        raise Refusal(400, "There is no websocket at this server; expected a plain request.")
    inner = _check_token(scope, door)
    if scope["method"] in READING:
        _check_reading(scope)
    elif scope["method"] == "POST":
        _check_asking(scope, host)
    else:
        known = ", ".join((*READING, "POST"))
        raise Refusal(405, f"The method {shown(scope['method'])} is not known; expected {known}.", allow=known)
    return inner


def _check_head(scope: Scope, most: int) -> None:
    if scope["http_version"] not in ("1.0", "1.1"):
        raise Refusal(505, f"The request is of HTTP {shown(scope['http_version'])}; expected 1.1.")
    size = len(scope["raw_path"]) + len(scope["query_string"])
    size += sum(len(name) + len(value) for name, value in scope["headers"])
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
    """A question comes from a page of this server, as its browser says, in a form that foreign pages may not use."""
    origin, site = one_header(scope, b"origin"), one_header(scope, b"sec-fetch-site")
    if not origin and not site:
        raise Refusal(403, "The request says not where it comes from; expected the header Origin or Sec-Fetch-Site.")
    if (origin and origin.lower() != f"http://{host}") or (site and site != "same-origin"):
        raise Refusal(403, f"The request comes from {shown(origin or site)}; expected a page of this server, {host}.")
    if one_header(scope, b"content-length") and one_header(scope, b"transfer-encoding"):
        raise Refusal(400, "The request has a Content-Length and a Transfer-Encoding; expected one of them.")
    kind = one_header(scope, b"content-type").lower()
    if kind.partition(";")[0].strip() not in ASKING:
        expected = " or ".join(ASKING)
        raise Refusal(415, f"The request has the content type {shown(kind) or 'of nothing'}; expected {expected}.")
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


def shown(value: str) -> str:
    """What a client sent, short and printable enough for a sentence."""
    kept = "".join(character for character in value[:60] if character.isprintable())
    return kept + " ..." * (len(value) > 60)
