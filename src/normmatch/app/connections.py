"""uvicorn's connections, with time limits and a bounded number of them: no client can hold one for long for nothing.

What happens between the first byte and the end of the headers, and after the answer, no middleware sees; hence here.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from normmatch.app.guard import Limits, dressed, error_body


class Connection(H11Protocol):
    """One client's connection."""

    def __init__(self, *args: Any, limits: Limits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self.since = 0.0  # when the connection began to wait
        self._began = False  # whether a part of the next request has come
        self._deadline: asyncio.TimerHandle | None = None  # for the next request to come
        self._unread: asyncio.TimerHandle | None = None  # for the client to take what it is sent

    @property
    def waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self.limits.head)
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.waiting:
            self._cancel(self._deadline)
        elif not self._began and not self.transport.is_closing():
            self._began = True
            self._wait(self.limits.head)

    def on_response_complete(self) -> None:
        self._wait(self.limits.idle)
        self._began = False
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.unread, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel(self._unread)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel(self._deadline)
        self._cancel(self._unread)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or has headers that are too long."""
        sentence = f"This is no HTTP request, or its headers have more than {self.limits.head_bytes:,} bytes."
        self._send(400, sentence)

    def _send(self, status: int, sentence: str) -> None:
        """Answer without the application, and close."""
        body = error_body(sentence)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers = dressed([*headers, (b"connection", b"close")])
        try:
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()
        except h11.LocalProtocolError:  # an answer is on its way already
            self.transport.abort()

    def _wait(self, seconds: float) -> None:
        """Close the connection, unless the next request comes in so many seconds."""
        self._cancel(self._deadline)
        self.since = self.loop.time()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _make_room(self) -> None:
        """Close the connection that has waited longest; where all are at work, this one."""
        idle = [other for other in self.connections if isinstance(other, Connection) and other.waiting]
        idle = [other for other in idle if other is not self and not other.transport.is_closing()]
        if idle:
            min(idle, key=lambda other: other.since).transport.abort()
        else:
            self._send(503, "Too many connections are open; try again in a few seconds.")

    @staticmethod
    def _cancel(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
