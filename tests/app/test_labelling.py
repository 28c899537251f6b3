"""The label page's addresses on a real server: a folder is opened, edited, proposed on, and nothing of it is lost."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from normmatch.annotations.project_file import read_project
from normmatch.app.labelling import Labelling, make_label_app
from normmatch.app.opening import open_folder
from normmatch.app.proposing import Proposer
from normmatch.app.serving import Listening, Serving, listen
from normmatch.errors import NormMatchError, WeightsError
from normmatch.matching.looks import Tuning
from normmatch.matching.tuning import Tuned
from tests.app.client import Reply, head, parcel, post, talk, wait_for

NAMES = ("left spot", "right spot", "middle")
SPOTS = {"left spot": (-30, -12), "right spot": (32, -10), "middle": (0, 25)}
COLORS = {"left spot": "#e01010", "right spot": "#10c010", "middle": "#1020e0"}


class Colors:
    """Stands for an encoder: the colours of 14 x 14 pixels, and how they differ from the photograph's."""

    def __init__(self) -> None:
        self.waits: list[threading.Event] = []
        self.seen = 0

    def maps(self, images: np.ndarray, blocks: Any) -> np.ndarray:
        for event in self.waits:
            assert event.wait(20)
        self.seen += len(images)
        batch, _, side, _ = images.shape
        cells = images.reshape(batch, 3, side // 14, 14, side // 14, 14).mean((3, 5)) / 255 - 0.5
        found = np.concatenate([cells, cells**2, cells - cells.mean((2, 3), keepdims=True), np.ones_like(cells)], 1)
        return np.concatenate([found] * len(blocks), 1).astype(np.float32)


def make_photographs(folder: Path, count: int) -> dict[str, dict[str, Any]]:
    """Grey pictures with three spots; the points of each."""
    folder.mkdir(exist_ok=True)
    rng, truth = np.random.default_rng(0), {}
    y, x = np.mgrid[0:200, 0:260]
    for number in range(count):
        array = rng.integers(110, 140, (200, 260, 3)).astype(np.uint8)
        middle, file = rng.uniform((80, 70), (180, 130)), f"{number:02d} ä.png"
        truth[file] = {}
        for name, off in SPOTS.items():
            px, py = (middle + off + rng.uniform(-4, 4, 2)).tolist()
            color = tuple(int(COLORS[name][i : i + 2], 16) for i in (1, 3, 5))
            array[(x + 0.5 - px) ** 2 + (y + 0.5 - py) ** 2 < 64] = color
            truth[file][name] = {"x": px, "y": py, "from": "person"}
        Image.fromarray(array).save(folder / file)
    return truth


class Client:
    """A window of the page."""

    def __init__(self, listening: Listening, window: str = "w") -> None:
        self.port, self.window, self.revision, self.proposals = listening.door.port, window, 0, 0

    def get(self, path: str) -> Reply:
        return talk(self.port, head(self.port, f"GET /{path}"))

    def post(self, path: str, content: Any) -> Reply:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        return talk(self.port, post(self.port, f"/{path}", body, kind=kind))

    def edit(self, **parts: Any) -> Reply:
        edits = [{"id": f"{self.window}-{random.random()}", **parts}]
        answer = self.post("api/edit", {"window": self.window, "revision": self.revision, "edits": edits})
        if answer.status == 200:
            self.revision = answer.json["revision"]
        return answer

    def accept(self, file: str, points: Any) -> Reply:
        return self.edit(photographs={file: {"points": points, "reviewed": True}})

    def changes(self) -> Any:
        found = self.get(f"api/changes?revision={self.revision}&proposals={self.proposals}").json
        self.proposals = found["proposals"]
        return found

    def wait_until_idle(self, number: int) -> Any:
        """Until so many jobs are done."""

        def done() -> bool:
            last = self.changes()["last_job"]
            return last is not None and last["number"] >= number

        wait_for(done, 60)
        return self.changes()["last_job"]


@contextmanager
def labelled(folder: Path, encoder: Any = None, **options: Any) -> Iterator[Listening]:
    """A label server for a folder."""
    store, photographs = open_folder(folder, **options)

    def open_encoder() -> Any:
        if isinstance(encoder, NormMatchError):
            raise encoder
        return encoder or Colors()

    listening = listen("127.0.0.1")
    proposer = Proposer(store, photographs, open_encoder)
    with Serving(make_label_app(Labelling(store, photographs, proposer)), listening):
        yield listening


def test_a_folder_from_the_first_point_to_the_last(tmp_path: Path) -> None:
    truth = make_photographs(tmp_path / "spots", 7)
    first, second, *others = truth
    with labelled(tmp_path / "spots", names=NAMES) as listening:
        client = Client(listening)
        project = client.get("api/project").json
        assert [one["file"] for one in project["photographs"]] == list(truth)
        assert [one["pair"] for one in project["landmarks"]] == ["right spot", "left spot", None]
        assert client.post("api/propose", {}).status == 400  # no photograph is reviewed
        assert client.accept(first, truth[first]).json["counts"]["reviewed"] == 1
        assert client.changes()["last_job"] is None  # nobody has asked for proposals yet
        client.edit(photographs={second: {"points": {"middle": {"x": 1, "y": 2, "from": "person"}}}})
        assert client.post("api/propose", {}).status == 200
        job = client.wait_until_idle(1)
        assert (job["kind"], job["done"], job["total"], job["error"]) == ("propose", 6, 6, None)
        client.proposals = 0
        found = client.changes()["photographs"]
        assert set(found) == {second, *others}
        assert found[second]["points"]["middle"] == {"x": 1.0, "y": 2.0, "from": "person"}
        off = [np.hypot(found[f]["points"][n]["x"] - truth[f][n]["x"], found[f]["points"][n]["y"] - truth[f][n]["y"])
               for f in others for n in NAMES]  # fmt: skip
        assert np.median(off) < 6
        kept = {name: {**point, "from": "kept"} for name, point in found[others[0]]["points"].items()}
        assert client.accept(others[0], kept).json["counts"]["kept_share"] == 1
        job = client.wait_until_idle(2)
        assert job["kind"] == "renew"
    on_disk = read_project(tmp_path / "spots" / "normmatch.json")
    assert on_disk.photographs[second].points["middle"].xy == (1.0, 2.0)
    assert {point.origin for point in on_disk.photographs[others[0]].points.values()} == {"kept"}


def test_pictures_of_the_opened_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "spots"
    (file,) = make_photographs(folder, 1)
    (folder / "deep").mkdir()
    Image.new("RGB", (700, 50), "red").save(folder / "deep" / "100%.jpg")
    Image.new("RGB", (70, 50)).save(tmp_path / "secret.jpg")
    with labelled(folder) as listening:
        client = Client(listening)
        stamps = client.get("api/project").json["stamps"]
        for kind in ("thumb", "view", "tile/1/0/0"):
            answer = client.get(f"image/{kind}/{quote(file)}?v={stamps[file]}")
            assert (answer.status, answer.headers["content-type"]) == (200, "image/jpeg")
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["x-content-type-options"] == "nosniff"  # the guard's
        assert client.get("image/tile/1/1/0/deep/100%25.jpg").status == 200
        for path in ("../secret.jpg", "..%2Fsecret.jpg", "normmatch.json", f"{tmp_path}/secret.jpg", "deep/x.jpg"):
            answer = client.get(f"image/view/{path}")
            assert (answer.status, list(answer.json)) == (404, ["error"])
        for path in ("tile/1/2/0", "tile/3/0/0", "tile/a/0/0", "other"):
            assert client.get(f"image/{path}/{quote(file)}").status == 404
        foreign = talk(
            client.port, post(client.port, "/api/edit", b"{}", origin="http://other", kind="application/json")
        )
        assert foreign.status == 403
        foreign = talk(client.port, head(client.port, "GET /api/project", host="other"))
        assert foreign.status == 403


def test_two_windows(tmp_path: Path) -> None:
    truth = make_photographs(tmp_path / "spots", 2)
    with labelled(tmp_path / "spots", names=NAMES) as listening:
        one, two = Client(listening, "one"), Client(listening, "two")
        file = next(iter(truth))
        assert one.accept(file, truth[file]).status == 200
        changes = two.changes()
        assert (changes["revision"], changes["saved_by"]) == (1, "one")
        refused = two.edit(name="theirs")
        assert (refused.status, refused.json["revision"], refused.json["saved_by"]) == (409, 1, "one")
        assert "Another window" in refused.json["error"]
        mine = json.loads(read_project(tmp_path / "spots" / "normmatch.json").text()) | {"name": "mine"}
        copied = two.post("api/copy", {"project": mine})
        assert read_project(tmp_path / "spots" / copied.json["file"]).name == "mine"
        two.revision = 1
        assert two.edit(name="theirs").status == 200
        assert one.edit(name="ours").status == 409


def test_a_job_is_stopped_and_the_page_is_answered_meanwhile(tmp_path: Path) -> None:
    truth, encoder = make_photographs(tmp_path / "spots", 6), Colors()
    first, *others = truth
    gate = threading.Event()
    with labelled(tmp_path / "spots", encoder, names=NAMES) as listening:
        client = Client(listening)
        client.accept(first, truth[first])
        encoder.waits.append(gate)
        client.post("api/propose", {"files": others[:4]})
        wait_for(lambda: client.changes()["job"] is not None)
        start = time.perf_counter()
        assert client.edit(name="still here").status == 200
        assert client.get(f"image/thumb/{quote(first)}").status == 200
        assert time.perf_counter() - start < 2
        client.post("api/stop", {})
        gate.set()
        job = client.wait_until_idle(1)
        assert job["stopped"]
        assert job["done"] <= 2


def test_improving_is_kept_only_if_it_is_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = make_photographs(tmp_path / "spots", 7)
    with labelled(tmp_path / "spots", names=NAMES) as listening:
        client = Client(listening)
        assert "at least 5" in client.post("api/improve", {}).json["error"]
        for file in list(truth)[:6]:
            client.accept(file, truth[file])
        client.post("api/improve", {})
        job = client.wait_until_idle(1)
        assert (job["kind"], job["error"]) == ("improve", None)
        assert job["done"] == job["total"] - 1 > 5
        assert job["kept"] == (client.get("api/project").json["improved"] is not None)
        better = Tuned(Tuning(ridge=3.0), 0.5, 0.7, 6)
        monkeypatch.setattr("normmatch.matching.album.tune", lambda *_: better)
        client.post("api/improve", {})
        job = client.wait_until_idle(2)
        assert (job["kept"], job["before"], job["after"]) == (True, 0.5, 0.7)
        improved = client.get("api/project").json["improved"]
        assert (improved["tuning"]["ridge"], improved["photographs"]) == (3.0, 6)
        client.post("api/improve/undo", {})
        job = client.wait_until_idle(3)
        assert (job["kind"], client.get("api/project").json["improved"]) == ("renew", None)


def test_a_network_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    truth = make_photographs(tmp_path / "spots", 2)
    with labelled(tmp_path / "spots", WeightsError("There are no weights."), names=NAMES) as listening:
        client = Client(listening)
        client.accept("00 ä.png", truth["00 ä.png"])
        wait_for(lambda: client.changes()["engine"]["error"] == "There are no weights.")
        assert client.post("api/propose", {}).json == {"error": "There are no weights."}


def test_files_in_and_out(tmp_path: Path) -> None:
    truth = make_photographs(tmp_path / "spots", 3)
    first, second, _ = truth
    with labelled(tmp_path / "spots") as listening:
        client = Client(listening)
        rows = ["image,name,x,y", f"{first},tail,5,6", f"{first},nose,7,8", f"{second},nose,9,9", "other.png,nose,1,1"]
        read = client.post("api/read", parcel(None, "\n".join(rows).encode(), name="points.csv")).json
        assert read["landmarks"] == ["tail", "nose"]
        assert read["photographs"][first]["points"]["tail"] == {"x": 5.0, "y": 6.0, "from": "person"}
        assert read["unknown"] == ["other.png"]
        assert client.get("api/project").json["landmarks"] == []
        bad = client.post("api/read", parcel(None, b"{", name="points.json"))
        assert (bad.status, list(bad.json)) == (400, ["error"])
        client.edit(landmarks=[{"name": name} for name in read["landmarks"]])
        client.accept(first, read["photographs"][first]["points"])
        answer = client.get("export/csv?photographs=reviewed")
        assert "attachment" in answer.headers["content-disposition"]
        assert first in answer.body.decode()
        assert client.get("export/doc").status == 404


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("api/edit", b"{"),
        ("api/edit", []),
        ("api/edit", {"window": "w", "revision": "0", "edits": []}),
        ("api/edit", {"window": "w", "revision": 0, "edits": []}),
        ("api/edit", {"window": "w", "revision": 0, "edits": [{"id": "e", "photographs": {"no": {}}}]}),
        ("api/propose", {"files": "a"}),
        ("api/copy", {"project": {"name": 3}}),
    ],
)
def test_what_cannot_be_is_answered_in_a_sentence(tmp_path: Path, path: str, content: Any) -> None:
    make_photographs(tmp_path / "spots", 1)
    with labelled(tmp_path / "spots") as listening:
        answer = Client(listening).post(path, content)
        assert (answer.status, list(answer.json)) == (400, ["error"])
        assert not (tmp_path / "spots" / "normmatch.json").exists()
