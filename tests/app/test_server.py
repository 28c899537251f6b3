"""The page's addresses on a real server, and where it listens: loopback unless told otherwise, nothing from outside."""

import inspect
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from normmatch import Matcher
from normmatch.app import pictures, server
from normmatch.app.pages import STATIC
from normmatch.app.serving import Listening, Serving, listen
from normmatch.commands import main
from normmatch.commands.demo import demo
from normmatch.errors import ConfigError
from tests.app.client import Reply, ask, head, question, talk
from tests.app.conftest import Stub, encoded, served


@pytest.fixture(scope="module")
def real(matcher: Matcher) -> Iterator[Listening]:
    """The page with a network behind it."""
    with served(matcher) as listening:
        yield listening


def get(listening: Listening, path: str) -> Reply:
    return talk(listening.door.port, head(listening.door.port, f"GET {path}"))


def matched(listening: Listening, width: int, points: int) -> dict:
    """The answer for two pictures of a width with so many points."""
    xy = [[5.0 + k, 5.0 + 3 * k] for k in range(points)]
    answer = ask(listening, "/match", question(xy, xy), encoded(width, 64), encoded(width, 64))
    assert answer.status == 200, answer.body
    return answer.json


def test_the_page_and_its_parts(page_server: Listening) -> None:
    page = get(page_server, "/")
    assert page.status == 200
    for address in re.findall(r'(?:src|href)="([^"#]+)"', page.body.decode()):
        assert get(page_server, f"/{address}").status == 200
    for script in STATIC.glob("*.js"):
        answer = get(page_server, f"/static/{script.name}")
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.body == script.read_bytes()


def test_a_head_has_no_body(page_server: Listening) -> None:
    answer = talk(page_server.door.port, head(page_server.door.port, "HEAD /"))
    assert (answer.status, answer.body) == (200, b"")


def test_nothing_comes_from_outside_and_nothing_is_inline() -> None:
    for path in STATIC.iterdir():
        text = path.read_text()
        addresses = re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"(?m)^\s*//.*$|\s// .*$", "", text))
        assert set(addresses) <= {"http://www.w3.org"}, path
        assert not re.search(r"innerHTML|<style|\sstyle=|\son\w+=\"|javascript:|eval\(", text), path


def test_samples(page_server: Listening) -> None:
    listed = get(page_server, "/samples").json
    assert [sample["title"] for sample in listed] == ["cat", "raccoon", "astronaut"]
    assert listed[0]["keypoints"][0].keys() == {"name", "x", "y"}
    for sample in listed:
        answer = get(page_server, f"/{sample['url']}")
        assert answer.headers["content-type"] == "image/jpeg"


def test_a_picture_for_the_browser(page_server: Listening) -> None:
    answer = ask(page_server, "/picture", None, encoded(30, 20, kind="TIFF"), name="a.tif").json
    assert (answer["name"], answer["width"], answer["height"]) == ("a.tif", 30, 20)


def test_points_files(page_server: Listening) -> None:
    answer = ask(page_server, "/points", None, b"image,name,x,y\na.png,eye,3,4\n", name="p.csv").json
    assert answer["images"] == [{"image": "a.png", "keypoints": [{"name": "eye", "x": 3.0, "y": 4.0}]}]


def test_a_bug_is_one_sentence_too(
    page_server: Listening, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(pictures, "describe_picture", broken)
    answer = ask(page_server, "/picture", None, encoded(9, 9))
    assert (answer.status, answer.error) == (500, "The server failed at this; its log says why.")


def test_users_at_once_get_their_own_answers(real: Listening) -> None:
    asked = [(60 + 10 * k, 2 + k) for k in range(8)]
    alone = [matched(real, *each) for each in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda each: matched(real, *each), asked))
    for first, second in zip(alone, together, strict=True):
        assert first["matches0"] == second["matches0"]
        assert first["matching_scores0"] == pytest.approx(second["matching_scores0"], abs=2e-4)
        assert json.loads(json.dumps(first)) == first


# ---- where it listens ----


def test_it_listens_at_loopback_only_and_calls_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspect.signature(demo).parameters["host"].default == "127.0.0.1"
    called: list[str] = []
    monkeypatch.setattr(socket, "getaddrinfo", recorded(socket.getaddrinfo, called))
    with served(Stub()) as listening:
        assert re.fullmatch(rf"http://127\.0\.0\.1:{listening.door.port}/", listening.address)
        assert get(listening, "/").status == 200
        assert set(called) <= {"127.0.0.1", "localhost"}
        with pytest.raises(OSError), socket.create_connection((own_address(), listening.door.port), timeout=1):
            pass


def recorded(function: Callable, names: list[str]) -> Callable:
    """The function, which also notes the names that it is asked for."""

    def call(host: object, *args: object, **kwargs: object) -> object:
        names.append(host.decode() if isinstance(host, bytes) else str(host))
        return function(host, *args, **kwargs)

    return call


def own_address() -> str:
    """An address of this machine other than 127.0.0.1; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        return probe.getsockname()[0]


def test_others_are_let_in_only_by_the_whole_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replies: list[Reply] = []

    def open_it() -> None:
        shown = capsys.readouterr().out
        host, port, path = re.match(r"the page is at http://(.+):(\d+)(/[\w-]{20,}/) until", shown).groups()
        assert "everybody who can reach this machine and has this whole address can use it" in shown
        for each in (path, "/", path + "static/pair.js", path[:-2] + "/"):
            replies.append(talk(int(port), head(int(port), f"GET {each}", host=f"{host}:{port}"), host=host))
        raise KeyboardInterrupt

    monkeypatch.setattr("normmatch.matching.matcher.Matcher", lambda *_, **__: Stub())
    threading = SimpleNamespace(Event=lambda: SimpleNamespace(wait=open_it))
    monkeypatch.setattr("normmatch.commands.demo.threading", threading)
    main(["demo", "--host", "0.0.0.0"])
    assert [reply.status for reply in replies] == [200, 403, 200, 403]
    assert all(reply.headers["referrer-policy"] == "same-origin" for reply in replies)


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6() -> None:
    try:
        listening = listen("[::1]")
    except ConfigError:
        pytest.skip("needs IPv6")
    with Serving(server.make_app(Stub()), listening):
        assert re.fullmatch(r"http://\[::1\]:\d+/", listening.address)
        port = listening.door.port
        assert talk(port, head(port, host=f"[::1]:{port}"), host="::1").status == 200


def test_it_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; from normmatch.app import server, serving, answers"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_first_free_port() -> None:
    first, second = listen("127.0.0.1"), listen("127.0.0.1")
    try:
        assert 7860 <= first.door.port < second.door.port
    finally:
        first.socket.close()
        second.socket.close()


def test_a_stopped_server_lets_go_of_its_port() -> None:
    with served(Stub()) as listening:
        port = listening.door.port
    with Serving(server.make_app(Stub()), listen("127.0.0.1", port)) as serving:
        assert serving.address.endswith(f":{port}/")
    assert not serving.thread.is_alive()


@pytest.mark.parametrize("host", ["", " ", "[]", " 127.0.0.1"])
def test_a_host_that_is_none(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--host", host])
    expected = f"The host is {host!r}; expected an address or a name of this machine, as 127.0.0.1.\n"
    assert " ".join(capsys.readouterr().err.split()) == " ".join(expected.split())


@pytest.mark.parametrize("host", ["no such name", "a" * 300, "*", "http://127.0.0.1", "127.0.0.1:80", "\0", "é" * 70])
def test_a_host_that_cannot_be(host: str) -> None:
    with pytest.raises(ConfigError, match="^Nothing can listen at ") as error:
        listen(host)
    assert len(str(error.value)) <= 300


@pytest.mark.parametrize("where", ["--port taken", "--port 0", "--port 99999", "--port -1", "--host 192.0.2.1"])
def test_an_address_that_is_not_free_is_one_sentence_before_the_network_is_loaded(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("normmatch.matching.matcher.Matcher", lambda *_, **__: pytest.fail("it was loaded"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit):
            main(["demo", *where.replace("taken", str(taken.getsockname()[1])).split()])
    err = capsys.readouterr().err
    assert err.startswith("Nothing can listen at ")
    assert err.endswith("; expected an address of this machine and a free port.\n")
    assert err.count("\n") == 1
