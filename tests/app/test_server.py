"""The page's server: only its own addresses, bounded uploads, loopback, nothing from outside, no memory of anybody."""

import inspect
import json
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from normmatch import Matcher, cli
from normmatch.commands.demo import demo
from normmatch.page import answers, server
from tests.page.conftest import encoded


@pytest.fixture(scope="module")
def client(matcher: Matcher) -> Iterator[TestClient]:
    with TestClient(server.make_server(matcher), raise_server_exceptions=False) as client:
        yield client


def matched(client: TestClient, width: int, points: int) -> dict:
    """The answer for two pictures of a width with so many points."""
    xy = [[5 + k, 5 + 3 * k] for k in range(points)]
    sides = [{"name": "a.png", "keypoints": xy, "box": None}] * 2
    data = {"request": json.dumps({"sides": sides, "one_to_one": False})}
    files = {f"picture{k}": ("a.png", encoded(width, 64)) for k in (0, 1)}
    answer = client.post("/match", files=files, data=data)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_page_and_its_parts(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert client.get(f"/{address}").status_code == 200
    for script in ("main.js", "edit.js"):
        answer = client.get(f"/static/{script}")
        assert answer.headers["content-type"].startswith("text/javascript")


def test_nothing_comes_from_outside() -> None:
    for path in server.STATIC.iterdir():
        addresses = re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"(?m)^\s*//.*$|\s// .*$", "", path.read_text()))
        assert set(addresses) <= {"http://www.w3.org"}, path


def test_samples(client: TestClient) -> None:
    listed = client.get("/samples").json()
    assert [sample["title"] for sample in listed[:3]] == ["cheetah", "lion", "cub"]
    assert listed[0]["keypoints"][0].keys() == {"name", "x", "y"}
    for sample in listed:
        answer = client.get(f"/{sample['url']}")
        assert answer.headers["content-type"].startswith("image/")
    assert client.get("/samples/99").status_code == 404
    assert client.get("/samples/-1").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        f"/gradio_api/file={Path(__file__)}",
        "/gradio_api/upload_progress",
        "/config",
        "/docs",
        "/openapi.json",
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/nothing.js",
        "/samples/../answers.py",
        "/samples/x",
        "//etc/passwd",
        "/monitoring",
    ],
)
def test_no_other_address_is_answered(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert answer.json().keys() == {"error"}


def test_uploads_do_not_stay(client: TestClient) -> None:
    assert client.post("/gradio_api/upload", files={"files": ("a.png", b"x")}).status_code == 404


def test_bad_uploads_are_one_sentence(client: TestClient) -> None:
    for answer in (
        client.post("/picture", files={"file": ("notes.png", b"no picture")}),
        client.post("/points", files={"file": ("notes.json", b"no points")}),
        client.post("/picture", data={"file": "https://example.org/a.png"}),
        client.post("/picture", files={"other": ("a.png", encoded(9, 9))}),
        client.post("/match", data={"request": "{}"}),
        client.post("/match", content=b"\x00" * 10, headers={"content-type": "multipart/form-data; boundary=x"}),
    ):
        assert answer.status_code == 400
        assert "\n" not in answer.json()["error"]


def test_a_picture_for_the_browser(client: TestClient) -> None:
    answer = client.post("/picture", files={"file": ("a.tif", encoded(30, 20, kind="TIFF"))}).json()
    assert (answer["name"], answer["width"], answer["height"]) == ("a.tif", 30, 20)


def test_uploads_are_bounded_before_they_are_read(client: TestClient) -> None:
    large = {"content-length": str(server.MAX_BODY + 1)}
    answer = client.post("/picture", headers=large, content=b"")
    assert (answer.status_code, answer.json()["error"]) == (413, "The upload has 51 MB; expected at most 51 MB.")
    assert client.post("/picture", content=iter([b"x"])).status_code == 411


def test_a_bug_is_one_sentence_too(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(answers, "describe_picture", broken)
    answer = client.post("/picture", files={"file": ("a.png", encoded(9, 9))})
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_users_at_once_get_their_own_answers(client: TestClient) -> None:
    asked = [(60 + 10 * k, 2 + k) for k in range(8)]
    alone = [matched(client, *question) for question in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda question: matched(client, *question), asked))
    for first, second in zip(alone, together, strict=True):
        assert first["matches0"] == second["matches0"]
        assert first["matching_scores0"] == pytest.approx(second["matching_scores0"], abs=2e-4)


def test_it_listens_at_loopback_only_and_calls_nobody(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspect.signature(demo).parameters["host"].default == "127.0.0.1"
    made = server.make_server(matcher)
    called: list[str] = []
    monkeypatch.setattr(socket, "getaddrinfo", recorded(socket.getaddrinfo, called))
    address = server.launch(made, "127.0.0.1", None)
    try:
        port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", address)[1])
        assert made.blocks.server.config.host == "127.0.0.1"
        assert made.blocks.analytics_enabled is False
        assert set(called) <= {"127.0.0.1", "localhost"}
        with pytest.raises(OSError), socket.create_connection((own_address(), port), timeout=1):
            pass
    finally:
        made.blocks.close(verbose=False)


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


@pytest.mark.parametrize("where", ["--port taken", "--port 0", "--port 99999", "--host 192.0.2.1"])
def test_an_address_that_is_not_free_is_one_sentence_before_the_network_is_loaded(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("normmatch.photographs.matcher.Matcher", lambda *_, **__: pytest.fail("it was loaded"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit):
            cli.main(["demo", *where.replace("taken", str(taken.getsockname()[1])).split()])
    err = capsys.readouterr().err
    assert err.startswith("Nothing can listen at ")
    assert err.endswith("; expected an address of this machine and a free port.\n")
    assert err.count("\n") == 1
