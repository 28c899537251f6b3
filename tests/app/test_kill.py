"""kill -9 at any moment: the project's file is always whole, and what a page was told is saved is in it."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from normmatch.annotations.project import Landmark, Photograph, Point, Project
from normmatch.annotations.project_file import previous, read_project, write_project
from normmatch.app.opening import open_folder
from tests.app.test_labelling import Client, make_photographs

KILLS = 50
EDITING = """
import os, random, signal, sys, time
from pathlib import Path
from normmatch.annotations.project_file import read_project
from normmatch.app.store import Store

path, kills, generator = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
for kill in range(kills):
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        store = Store(path, read_project(path), path.read_text())
        while True:
            revision = store.project.revision
            points = {"points": {"tail": {"x": revision + 1, "y": 0, "from": "person"}}}
            files = dict.fromkeys(store.project.photographs, points)
            store.edit("w", revision, [{"id": f"e{revision}", "photographs": files}])
            os.write(told, f"{revision + 1},".encode())
    os.close(told)
    answers = os.read(heard, 100)  # it has begun
    time.sleep(generator.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while piece := os.read(heard, 1 << 16):
        answers += piece
    project = read_project(path)  # raises if it is damaged
    places = {one.points["tail"].xy[0] for one in project.photographs.values()}
    print(int(answers.decode().rsplit(",", 2)[-2]), project.revision, len(places), int(places.pop()), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fifty_kills_at_random_moments(tmp_path: Path) -> None:
    path = tmp_path / "normmatch.json"
    tail = Point("person", (0.0, 0.0))
    photographs = {f"{k}.jpg": Photograph(f"{k}.jpg", 600, 400, {"tail": tail}) for k in range(80)}
    write_project(path, Project("p", (Landmark("tail"),), photographs).text())
    command = [sys.executable, "-c", EDITING, str(path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(rows) == KILLS
    for answered, revision, different, place in rows:
        assert answered <= revision <= answered + 1  # at most one that nobody was told of
        assert (different, place) == (1, revision)  # an edit is in the file whole or not at all
    assert read_project(previous(path)).revision in (rows[-1][1] - 1, rows[-1][1])
    Image.new("RGB", (60, 40)).save(tmp_path / "0.jpg")
    open_folder(tmp_path)  # sweeps away what killed processes have left half written
    assert {file.name for file in tmp_path.iterdir()} == {"0.jpg", path.name, previous(path).name}


def test_a_killed_server_has_saved_what_it_answered(tmp_path: Path) -> None:
    (file,) = make_photographs(tmp_path / "spots", 1)
    command = [sys.executable, "-m", "normmatch", "label", str(tmp_path / "spots"), "--no-browser"]
    command += ["--landmarks", "nose", "--weights", "no-such-network"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = next(int(line.rpartition(":")[2].split("/")[0]) for line in process.stdout if "http://" in line)
        client = Client(SimpleNamespace(door=SimpleNamespace(port=port)))  # type: ignore[arg-type]
        threading.Timer(0.7, process.kill).start()
        status = 200
        while status == 200:
            point = {"x": client.revision + 1, "y": 1, "from": "person"}
            status = client.edit(photographs={file: {"points": {"nose": point}}}).status
    finally:
        process.kill()
        process.wait()
    assert client.revision > 1
    store, _ = open_folder(tmp_path / "spots")
    assert store.project.revision in (client.revision, client.revision + 1)
    assert store.project.photographs[file].points["nose"].xy == (float(store.project.revision), 1.0)
