"""Starting and stopping a server of ours: a socket, the names that it may be called by, a thread, and the guard."""

import ctypes
import functools
import ipaddress
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import uvicorn

from normmatch.app.connections import Connection
from normmatch.app.door import App, Door, host_names
from normmatch.app.guard import Guard, Limits
from normmatch.errors import ConfigError

FIRST_PORT, PORTS = 7860, 100
LOCAL = ("127.0.0.1", "localhost", "::1")
M_MMAP_THRESHOLD, LARGE = -3, 8_000_000  # glibc's name for it; bytes: a picture, but nothing inside the network
START, STOP = 30.0, 5.0  # seconds that the server may take


@dataclass(frozen=True)
class Listening:
    """A socket that listens, and how a server there is reached."""

    socket: socket.socket
    door: Door
    address: str  # what a person opens


def listen(host: str, port: int | None = None) -> Listening:
    """Listen at an address of this machine, at the first free port from 7860 on if none is given.

    What comes in waits until a server is started, so that an address that is taken shows before a network is loaded.
    """
    name = host.removeprefix("[").removesuffix("]")
    if not name.strip() or name != name.strip():
        raise ConfigError(f"The host is {host[:60]!r}; expected an address or a name of this machine, as 127.0.0.1.")
    if port is not None and not 0 < port < 65536:
        raise _no_address(host, port)
    try:
        family = socket.AF_INET6 if ":" in name else socket.AF_INET
        place = str(socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)[0][4][0])
    except (OSError, ValueError, TypeError):  # no such name, or none that could be
        raise _no_address(host, port) from None
    for number in range(FIRST_PORT, FIRST_PORT + PORTS) if port is None else [port]:
        with suppress(OSError):
            return _listening(socket.create_server((place, number), family=family, backlog=256), name)
    raise _no_address(host, port)


def _listening(listener: socket.socket, name: str) -> Listening:
    bound, port = listener.getsockname()[:2]
    place = ipaddress.ip_address(bound.partition("%")[0])
    names = {name, bound} - {"0.0.0.0", "::"}
    if place.is_loopback or place.is_unspecified:
        names |= set(LOCAL)
    if place.is_unspecified:
        names.add(socket.gethostname())
    token = "" if place.is_loopback else secrets.token_urlsafe(16)
    hosts = frozenset().union(*(host_names(known, port) for known in names))
    shown = _own_address(listener.family) if place.is_unspecified else bound
    shown = f"[{shown}]" if ":" in shown else shown
    address = f"http://{shown}:{port}/" + (f"{token}/" if token else "")
    return Listening(listener, Door(hosts, port, place.is_unspecified, token), address)


def _own_address(family: socket.AddressFamily) -> str:
    """The address by which others reach this machine; no packet is sent."""
    far, local = ("2001:db8::1", "::1") if family == socket.AF_INET6 else ("192.0.2.1", "127.0.0.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((far, 9))
        except OSError:
            return local
        return str(probe.getsockname()[0])


def _no_address(host: str, port: int | None) -> ConfigError:
    where = f"the ports from {FIRST_PORT} on" if port is None else f"port {port}"
    sentence = f"Nothing can listen at {host[:60]}, {where}; expected an address of this machine and a free port."
    return ConfigError(sentence)


def return_memory() -> None:
    """Have large buffers go back to the system when they are free, where the C library can do that.

    glibc learns from the first large picture to keep such buffers; fixing its threshold ends that for this process.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library, or none that can be asked
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


class Serving:
    """A server at work in a thread of its own, until it is stopped; `with Serving(...)` stops it in any case."""

    def __init__(self, app: App, listening: Listening, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.address, self.socket = listening.address, listening.socket
        self.guard = Guard(app, listening.door, limits)
        config = uvicorn.Config(
            self.guard,
            http=functools.partial(Connection, limits=limits),  # type: ignore[arg-type]  # it makes one, as a class
            ws="none",
            lifespan="on",
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(limits.idle) + 1,
            timeout_graceful_shutdown=int(STOP),
            h11_max_incomplete_event_size=limits.head_bytes,
        )
        self.server = uvicorn.Server(config)
        run = functools.partial(self.server.run, sockets=[self.socket])
        self.thread = threading.Thread(target=run, name="normmatch-server", daemon=True)

    def start(self) -> "Serving":
        """Start it, and wait until it answers."""
        self.thread.start()
        end = time.monotonic() + START
        while not self.server.started and self.thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        if not self.server.started:
            raise ConfigError(f"The server at {self.address} did not start.")
        return self

    def stop(self) -> None:
        """Finish what is being answered, for some seconds, and let go of the port."""
        self.server.should_exit = True
        if self.thread.ident is not None:
            self.thread.join(2 * STOP)
        self.socket.close()

    def __enter__(self) -> "Serving":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
