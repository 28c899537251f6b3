"""Downloads from a server on this machine that resumes, breaks, lies and refuses; archives that the user has."""

import hashlib
import io
import shutil
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from normmatch.datasets import download
from normmatch.datasets.download import SOURCES, TREES, Source, fetch, find, install
from normmatch.errors import DataError

CONTENT = bytes(i * i % 251 for i in range(300_000))
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Serves `content` at any path; what the path says decides how."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.requests: list[tuple[str, str | None]] = []  # path and Range of each request
        self.breaks = 0  # how many more answers to /breaks break off

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        span = self.headers.get("Range")
        self.server.requests.append((self.path, span))
        start = int(span.removeprefix("bytes=").removesuffix("-")) if span and "norange" not in self.path else 0
        content = b"?" * len(self.server.content) if "wrong" in self.path else self.server.content
        if "missing" in self.path:
            self.send_error(404)
        elif start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
        else:
            self.answer(content, start)

    def answer(self, content: bytes, start: int) -> None:
        self.send_response(206 if start else 200)
        self.send_header("Content-Type", "text/html" if "page" in self.path else "application/octet-stream")
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content)
        if "breaks" in self.path and self.server.breaks:
            self.server.breaks -= 1
            end = start + 70_000
        self.wfile.write(content[start:end])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(download, "TIMEOUT", 5.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def part(server: Server, folder: Path, name: str) -> Path:
    return folder / f"{name}.127.0.0.1.part"


def test_fetch_and_fetch_again(server: Server, tmp_path: Path) -> None:
    source = Source((server.url("x.tar"),), DIGEST)
    path = fetch(source, tmp_path / "new")
    assert path == tmp_path / "new" / "x.tar"
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["x.tar"]
    assert fetch(source, tmp_path / "new") == path
    assert len(server.requests) == 1


def test_resumes_within_one_call(server: Server, tmp_path: Path) -> None:
    server.breaks = 3
    assert fetch(Source((server.url("breaks/x.tar"),), DIGEST), tmp_path).read_bytes() == CONTENT
    assert [span for _, span in server.requests] == [None, "bytes=70000-", "bytes=140000-", "bytes=210000-"]


def test_resumes_in_a_later_call(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TRIES", 1)
    server.breaks = 1
    source = Source((server.url("breaks/x.tar"),))
    with pytest.raises(DataError, match="broke after 70,000 of 300,000 bytes"):
        fetch(source, tmp_path)
    assert not (tmp_path / "x.tar").exists()
    assert part(server, tmp_path, "x.tar").stat().st_size == 70_000
    assert fetch(source, tmp_path).read_bytes() == CONTENT
    assert server.requests[-1][1] == "bytes=70000-"


def test_server_without_range_starts_again(server: Server, tmp_path: Path) -> None:
    part(server, tmp_path, "x.tar").write_bytes(b"!" * 1000)
    assert fetch(Source((server.url("norange/x.tar"),), DIGEST), tmp_path).read_bytes() == CONTENT


def test_part_that_is_complete_or_too_long(server: Server, tmp_path: Path) -> None:
    part(server, tmp_path, "x.tar").write_bytes(CONTENT)
    assert fetch(Source((server.url("x.tar"),), DIGEST), tmp_path).read_bytes() == CONTENT
    part(server, tmp_path, "y.tar").write_bytes(CONTENT + b"!")
    assert fetch(Source((server.url("y.tar"),), DIGEST), tmp_path).read_bytes() == CONTENT


def test_mirrors_in_turn(server: Server, tmp_path: Path) -> None:
    urls = [server.url(f"{kind}/x.tar") for kind in ("missing", "wrong", "page", "good")]
    assert fetch(Source(tuple(urls), DIGEST), tmp_path).read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/missing/x.tar", "/wrong/x.tar", "/page/x.tar", "/good/x.tar"]
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


def test_wrong_bytes_everywhere(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its checksum is wrong"):
        fetch(Source((server.url("wrong/x.tar"),), DIGEST), tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_network(server: Server, tmp_path: Path) -> None:
    server.server_close()  # the port is closed now
    with pytest.raises(DataError) as error:
        fetch(Source((server.url("a/x.tar"), server.url("b/x.tar")), DIGEST), tmp_path / "archives")
    sentence = str(error.value)
    assert "\n" not in sentence
    for piece in (
        server.url("a/x.tar"),
        server.url("b/x.tar"),
        str(tmp_path / "archives"),
        "by hand",
        "--archives DIR",
    ):
        assert piece in sentence


def test_file_put_by_hand_is_checked(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"something else")
    with pytest.raises(DataError, match=r"x\.tar has the checksum sha256:.*expected"):
        fetch(Source(("http://127.0.0.1:9/x.tar",), DIGEST), tmp_path)


def make_tar(path: Path, name: str) -> None:
    with tarfile.open(path, "w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())


def test_install_downloads_and_unpacks(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tar(tmp_path / "x.tar", "WILLOW-ObjectClass/a.txt")
    server.content = (tmp_path / "x.tar").read_bytes()
    monkeypatch.setitem(SOURCES, "willow", (Source((server.url("x.tar"),)),))
    install("willow", tmp_path / "root")
    assert (tmp_path / "root" / "WILLOW-ObjectClass" / "a.txt").is_file()
    assert (tmp_path / "root" / "archives" / "x.tar").is_file()


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_find_takes_either_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = ("http://127.0.0.1:9/Set.zip", "http://127.0.0.1:9/Old.tar.gz")
    monkeypatch.setitem(SOURCES, "willow", (Source(urls),))
    (tmp_path / "Old.tar.gz").write_bytes(b"")
    (tmp_path / "other.tar").write_bytes(b"")
    assert names(find("willow", tmp_path)) == ["Old.tar.gz"]


def test_find_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        find("willow", tmp_path / "nowhere")
    make_tar(tmp_path / "other.tar", "Other/x")
    with pytest.raises(DataError, match=r"no WILLOW-ObjectClass_dataset\.zip in .*: get it from http"):
        find("willow", tmp_path)
    make_tar(tmp_path / "voc2011_keypoints_Feb2012.tgz", "annotations/x")
    with pytest.raises(DataError, match=r"no VOCtrainval_25-May-2011\.tar in "):
        find("pascal-voc", tmp_path)


def test_sources_are_well_formed() -> None:
    assert set(SOURCES) == set(TREES)
    for sources in SOURCES.values():
        for source in sources:
            assert len(source.urls) >= 2
            assert all(url.startswith(("http://", "https://")) for url in source.urls)
            assert all(source.names)


def test_install_from_real_archives(shared_datasets: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for sample, name in (
        ("WILLOW-Duck-sample", "WILLOW-ObjectClass_dataset.zip"),
        ("SPair-71k-sample", "SPair-71k.tar.gz"),
    ):
        shutil.copy(shared_datasets / f"{sample}.tar", tmp_path / "here" / name)
    install("willow", tmp_path, tmp_path / "here")
    assert len(list((tmp_path / "WILLOW-ObjectClass" / "Duck").glob("*.png"))) == 12
    install("spair-71k", tmp_path, tmp_path / "here")
    assert len(list((tmp_path / "SPair-71k" / "PairAnnotation" / "val").iterdir())) == 304


def test_only_the_datasets_own_tree_is_installed(tmp_path: Path) -> None:
    file = tmp_path / "WILLOW-ObjectClass_dataset.zip"
    make_tar(file, "WILLOW-ObjectClass/x")
    with tarfile.open(file, "a") as archive:
        archive.addfile(tarfile.TarInfo("setup.py"))
    with pytest.warns(UserWarning, match="setup.py in the archives is not of the dataset"):
        install("willow", tmp_path / "root", tmp_path)
    assert names([*(tmp_path / "root").iterdir()]) == ["WILLOW-ObjectClass"]
