"""Slow clients, many clients, clients that go: nobody keeps the page from the others, and its memory stays as it is."""

import io
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch.app.guard import Limits
from normmatch.app.server import make_app
from normmatch.app.serving import Listening, Serving, listen
from tests.app.client import Reply, ask, connected, head, parcel, post, question, read_reply, talk, wait_for
from tests.app.conftest import Stub, encoded, served

SHORT = Limits(window=1.0, pace=2_000, head=1.0, idle=1.0, unread=0.7, connections=20, requests=4, retry_after=7)
SOON = 6  # seconds: much more than these limits, on a busy machine, and less than those that everybody gets
PNG = encoded(32, 24)
ASKED = question([[1, 1], [2, 2]], [[3, 3]])


@pytest.fixture(scope="module")
def hasty() -> Iterator[Listening]:
    """A server that waits for nobody."""
    with served(Stub(), SHORT) as listening:
        yield listening


def closed_after(connection: socket.socket) -> float:
    """How long it takes until the server closes the connection, whatever it sends before."""
    start = time.perf_counter()
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return time.perf_counter() - start


def drip(port: int, whole: bytes, slowly: bytes) -> tuple[float, Reply]:
    """Send some at once and the rest byte by byte, until the server has enough: how long that took, what it said."""
    with connected(port) as connection:
        connection.sendall(whole)
        start = time.perf_counter()
        for byte in slowly:
            if select.select([connection], [], [], 0.05)[0]:  # an answer, or the end
                break
            connection.sendall(bytes([byte]))
        return time.perf_counter() - start, read_reply(connection)


# ---- slow ones ----


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHost: "], ids=["nothing", "a part of the headers"])
def test_a_connection_that_waits_is_closed(hasty: Listening, data: bytes) -> None:
    with connected(hasty.door.port) as connection:
        connection.sendall(data)
        assert closed_after(connection) < SOON


def test_headers_byte_by_byte(hasty: Listening) -> None:
    seconds, reply = drip(hasty.door.port, b"GET / HTTP/1.1\r\nX: ", b"x" * 500)
    assert (reply.status, seconds < SOON) == (0, True)


def test_headers_byte_by_byte_after_a_request(hasty: Listening) -> None:
    with connected(hasty.door.port) as connection:
        connection.sendall(head(hasty.door.port))
        assert read_reply(connection).status == 200
        connection.sendall(b"GET / HT")
        assert closed_after(connection) < SOON


def test_a_body_byte_by_byte(hasty: Listening) -> None:
    whole = post(hasty.door.port, "/picture", parcel(None, bytes(1000)))
    start = whole.index(b"\r\n\r\n") + 4
    seconds, reply = drip(hasty.door.port, whole[:start], whole[start:])
    assert (reply.status, seconds < SOON) == (408, True)
    assert reply.error.startswith("The upload came too slowly: ")


def test_a_body_that_begins_fast_and_stops(hasty: Listening) -> None:
    body = parcel(None, bytes(1_000_000))
    reply = talk(hasty.door.port, post(hasty.door.port, "/picture", body)[:-10])
    assert reply.status == 408


def test_a_body_at_the_least_pace_is_read(hasty: Listening) -> None:
    whole = post(hasty.door.port, "/picture", parcel(None, bytes(9000)))
    with connected(hasty.door.port) as connection:
        for start in range(0, len(whole), 3000):  # longer than the window in all, enough in each
            connection.sendall(whole[start : start + 3000])
            time.sleep(0.35)
        assert read_reply(connection).status == 400  # it is no picture, which is known only at its end


def test_an_answer_that_nobody_reads() -> None:
    listening = listen("127.0.0.1")
    with Serving(make_app(Stub()), listening, SHORT) as serving, connected(listening.door.port) as connection:
        connection.sendall(head(listening.door.port, "GET /samples/1") * 300)  # 30 MB of answers
        wait_for(lambda: len(serving.server.server_state.connections) == 1)
        wait_for(lambda: not serving.server.server_state.connections, SOON)


# ---- many of them ----


def test_idle_connections_keep_nobody_out(hasty: Listening) -> None:
    crowd = [socket.create_connection(("127.0.0.1", hasty.door.port)) for _ in range(100)]
    try:
        assert talk(hasty.door.port, head(hasty.door.port)).status == 200
    finally:
        for connection in crowd:
            connection.close()


def test_where_all_connections_are_at_work_one_more_is_refused() -> None:
    go = threading.Event()
    with served(Stub(work=lambda: go.wait(20) and None), Limits(connections=3)) as listening:
        port = listening.door.port
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask, listening, "/match", ASKED, PNG, PNG) for _ in range(3)]
            time.sleep(0.5)
            reply = talk(port, head(port))
            go.set()
            assert [one.result().status for one in asked] == [200] * 3
        assert (reply.status, reply.error[:25]) == (503, "Too many connections are ")
        assert talk(port, head(port)).status == 200


def test_a_busy_server_says_when_to_come_back() -> None:
    go = threading.Event()
    stub = Stub(work=lambda: go.wait(20) and None)
    with served(stub, SHORT) as listening, ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(ask, listening, "/match", ASKED, PNG, PNG) for _ in range(20)]
        wait_for(lambda: sum(one.done() for one in asked) == 16)
        assert talk(listening.door.port, head(listening.door.port)).status == 200  # the page itself is there
        go.set()
        replies = [one.result() for one in asked]
    assert sorted(reply.status for reply in replies) == [200] * 4 + [503] * 16
    refused = next(reply for reply in replies if reply.status == 503)
    assert refused.headers["retry-after"] == "7"
    assert refused.error == "The server is busy: 4 requests wait already; try again in 7 seconds."


def test_what_is_held_for_all_together_is_bounded() -> None:
    go = threading.Event()
    limits = Limits(held=2_500_000)
    with served(Stub(work=lambda: go.wait(20) and None), limits) as listening, ThreadPoolExecutor(4) as pool:
        large = encoded(32, 24) + bytes(500_000)
        asked = [pool.submit(ask, listening, "/match", ASKED, large, large) for _ in range(4)]
        wait_for(lambda: sum(one.done() for one in asked) == 2)
        go.set()
        assert sorted(one.result().status for one in asked) == [200, 200, 503, 503]
        assert ask(listening, "/match", ASKED, large, large).status == 200  # what was held is free again


def test_who_goes_away_is_not_worked_for() -> None:
    go = threading.Event()
    stub = Stub(work=lambda: go.wait(20) and None)
    with served(stub, SHORT) as listening:
        port = listening.door.port
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
        for connection in waiting:
            connection.sendall(post(port, "/match", parcel(ASKED, PNG, PNG)))
        time.sleep(0.3)
        for connection in waiting:
            connection.close()
        time.sleep(0.3)
        with ThreadPoolExecutor(1) as pool:
            next_one = pool.submit(ask, listening, "/match", ASKED, PNG, PNG)
            time.sleep(0.2)
            go.set()
            assert next_one.result().status == 200
    assert stub.matched == 3  # the two that were begun, and the one that was waited for


def test_a_hundred_matches_twenty_at_once_and_none_lost() -> None:
    """Each with its own answer; the memory is after all of them as it was after ten, within 5 %."""
    stub = Stub(work=lambda: time.sleep(0.005))
    pictures = [noise(seed) for seed in range(4)]

    def match(number: int) -> bool:
        points = [[5.0, 5.0 + k] for k in range(1 + number % 7)]
        reply = ask(listening, "/match", question(points, points[:1]), pictures[number % 4], pictures[1])
        return (reply.status, len(reply.json["matches0"])) == (200, len(points))

    with served(stub) as listening, ThreadPoolExecutor(20) as pool:
        assert all(pool.map(match, range(10)))
        settled = memory()
        assert all(pool.map(match, range(10, 110)))
        assert stub.matched == 110
        assert memory() < 1.05 * settled


def noise(seed: int) -> bytes:
    """A picture of some size."""
    file = io.BytesIO()
    values = np.random.default_rng(seed).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    Image.fromarray(values).resize((1000, 750)).save(file, "JPEG", quality=80)
    return file.getvalue()


def memory() -> float:
    """What this process has in memory, in bytes."""
    status = Path("/proc/self/statm")
    if not status.exists():
        pytest.skip("needs /proc")
    return int(status.read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
