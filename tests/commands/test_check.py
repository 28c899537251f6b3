"""`normmatch check`: the table, JSON, sheet and fixed labels, the exit status, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch import annotations
from tests.annotations.test_suspicions import NAMES, labels, moved
from tests.command_line import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    items = labels()
    points = items[7].keypoints.copy()
    points[5] += 0.15 * np.ptp(points)
    items = moved(moved(items, 7, points), 3, items[3].keypoints[[0, 1, 5, 3, 4, 2, 6, 7]])
    annotations.write("labels.json", items)
    for k in (1, 3, 7):
        Image.new("RGB", (900, 900), (90, 120, 40 * k)).save(f"{k}.jpg")
    return tmp_path


def test_all_outputs(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    words = ["--json", "s.json", "--sheet", "s.png", "--write", "fixed.csv"]
    code, out, err = run(capsys, "check", "labels.json", *words)
    assert (code, err) == (0, "")
    assert "2 suspicions in 320 landmarks of 40 objects" in out
    told = {
        (s["image"], s["kind"], tuple(s["landmarks"])) for s in json.loads(Path("s.json").read_text())["suspicions"]
    }
    assert told == {("7.jpg", "slip", ("tail",)), ("3.jpg", "exchanged", ("right_eye", "tail"))}
    pixels = np.asarray(Image.open("s.png"))
    assert ((pixels == (255, 59, 48)).all(2)).any()  # the landmark
    assert ((pixels == (52, 199, 89)).all(2)).any()  # where it should be
    fixed = {
        item.image: dict(zip(item.names, item.keypoints.tolist(), strict=True))
        for item in annotations.read("fixed.csv")
    }
    assert fixed["3.jpg"] == dict(zip(NAMES, labels()[3].keypoints.tolist(), strict=True))
    assert fixed["7.jpg"]["tail"] != labels()[7].keypoints[5].tolist()  # a slip stays


def test_exit_status(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for words, code in {("slip",): 1, ("shifted",): 0, ("anything",): 1, ("shifted", "exchanged"): 1}.items():
        assert run(capsys, "check", "labels.json", "--top", "0", "--fail-on", *words)[0] == code


def test_mistakes(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for words, sentence in {
        ("labels.json", "--certainty", "2"): "--certainty is 2; expected a probability from 0 to 1",
        ("lost.json",): "lost.json cannot be read",
        ("labels.json", "--write", "labels.json"): "expected another file",
    }.items():
        code, _, err = run(capsys, "check", *words)
        assert (code, len(err.splitlines())) == (2, 1)
        assert sentence in err
    for k in (1, 3, 7):
        Path(f"{k}.jpg").unlink()
    assert "None of the photographs is in" in run(capsys, "check", "labels.json", "--sheet", "s.png")[2]
