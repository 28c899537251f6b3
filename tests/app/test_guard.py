"""The guard before another application than the page, and with a secret part in its address."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from normmatch.app.door import Door
from normmatch.app.guard import Guard, Limits, error_body
from normmatch.app.serving import Listening, Serving, listen
from tests.app.client import connected, head, post, read_reply, talk, wait_for


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body(), headers={"Server": "secret/1.0", "X-Powered-By": "secret"})


async def where(request: Request) -> Response:
    return PlainTextResponse(request.url.path)


async def broken(request: Request) -> Response:
    raise RuntimeError("secret")


APP = Starlette(routes=[Route("/echo", echo, methods=["POST"]), Route("/where", where), Route("/broken", broken)])


@pytest.fixture(scope="module")
def listening() -> Iterator[Listening]:
    listening = listen("127.0.0.1")
    with Serving(APP, listening, Limits(body=300_000)):
        yield listening


@pytest.fixture(scope="module")
def far() -> Iterator[Listening]:
    """A server that others than this machine can reach."""
    listening = listen("0.0.0.0")
    with Serving(APP, listening):
        yield listening


def test_any_application_stands_behind_it(listening: Listening) -> None:
    body = bytes(range(256)) * 1000
    reply = talk(listening.door.port, post(listening.door.port, "/echo", body))
    assert (reply.status, reply.body) == (200, body)
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert "secret" not in str(reply.headers)


def test_its_own_limits_hold(listening: Listening) -> None:
    reply = talk(listening.door.port, post(listening.door.port, "/echo", bytes(300_001)))
    assert (reply.status, reply.error) == (413, "The upload is too large; expected at most 0 MB.")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_names_of_this_machine(listening: Listening, name: str) -> None:
    host = f"{name}:{listening.door.port}"
    assert talk(listening.door.port, head(listening.door.port, "GET /where", host=host)).status == 200
    asked = post(listening.door.port, "/echo", b"x", origin=f"http://{host}")
    assert talk(listening.door.port, asked.replace(b"Host: 127.0.0.1", f"Host: {name}".encode())).status == 200


def test_a_page_that_says_only_its_site(listening: Listening) -> None:
    asked = post(listening.door.port, "/echo", b"x", "Sec-Fetch-Site: same-origin", origin="")
    assert talk(listening.door.port, asked).status == 200


def test_a_link_on_another_page_opens_it(listening: Listening) -> None:
    fetched = "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"
    assert talk(listening.door.port, head(listening.door.port, "GET /where", *fetched)).status == 200


def test_chunks_are_a_body(listening: Listening) -> None:
    asked = post(listening.door.port, "/echo", b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    assert talk(listening.door.port, asked + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").body == b"abcde"


def test_many_requests_on_one_connection(listening: Listening) -> None:
    port = listening.door.port
    with connected(port) as connection:
        for k in range(5):
            connection.sendall(post(port, "/echo", b"%d" % k))
            assert read_reply(connection).body == b"%d" % k
        connection.sendall(head(port, "GET /where") * 3)  # without waiting for answers
        rest = b""
        while rest.count(b"\r\n\r\n/where") < 3:
            rest += connection.recv(1 << 16)


def test_leave_to_send_is_given_to_the_page_alone(listening: Listening) -> None:
    asked = post(listening.door.port, "/echo", b"x" * 10, "Expect: 100-continue")
    for origin, expected in ((b"", b"HTTP/1.1 100"), (b".evil", b"HTTP/1.1 403")):
        with connected(listening.door.port) as connection:
            connection.sendall(asked.replace(b"\r\nContent-Type", origin + b"\r\nContent-Type")[:-10])
            assert connection.recv(1000).startswith(expected)


def test_a_bug_is_one_sentence_and_its_trace_is_in_the_log(
    listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    reply = talk(listening.door.port, head(listening.door.port, "GET /broken"))
    assert reply.status == 500
    assert b"secret" not in reply.body
    wait_for(lambda: "RuntimeError: secret" in caplog.text)


# ---- beyond this machine ----


def test_the_address_has_a_secret_part(far: Listening) -> None:
    assert len(far.door.token) >= 20
    assert far.address.endswith(f":{far.door.port}/{far.door.token}/")
    reply = talk(far.door.port, head(far.door.port, f"GET /{far.door.token}/where"))
    assert (reply.status, reply.body) == (200, b"/where")
    assert talk(far.door.port, post(far.door.port, f"/{far.door.token}/echo", b"x")).body == b"x"


WITHOUT = """/where /TOKEN /TOKEN?/where //TOKEN/where /token/where /TOKE/where /?token=TOKEN /%00TOKEN/where
    /where/TOKEN/ /TOKENx/where /T%C3%B6/"""


@pytest.mark.parametrize("path", WITHOUT.split())
def test_without_it_nothing_is_answered(far: Listening, path: str) -> None:
    path = path.replace("TOKEN", far.door.token).replace("TOKE/", far.door.token[:-1] + "/")
    for data in (head(far.door.port, f"GET {path}"), post(far.door.port, path, b"x")):
        reply = talk(far.door.port, data)
        assert (reply.status, reply.error.split(";")[0]) == (403, "The address lacks its secret part")


@pytest.mark.parametrize("host", ["evil.example:{}", "0.0.0.0:{}", "192.0.2.7:{}", "127.0.0.1.nip.io:{}"])
def test_with_it_the_host_is_checked_too(far: Listening, host: str) -> None:
    data = head(far.door.port, f"GET /{far.door.token}/where", host=host.format(far.door.port))
    assert talk(far.door.port, data).status == 403


# ---- sentences ----


def test_sentences_are_short_and_of_one_line() -> None:
    assert json.loads(error_body("It is\nso.")) == {"error": "It is so."}
    long = json.loads(error_body("a" * 5000 + "."))["error"]
    assert len(long) <= 300
    assert long.endswith(".")


def test_no_websocket_is_accepted_under_another_server() -> None:
    sent = []

    async def send(message: dict) -> None:
        sent.append(message)

    guard = Guard(APP, Door(frozenset(), 1))
    asyncio.run(guard({"type": "websocket"}, None, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]
