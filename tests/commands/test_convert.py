"""`normmatch convert`: what is lost is said, formats follow endings or --to, bad input is one sentence."""

from pathlib import Path

import pytest
from PIL import Image

from normmatch import annotations
from tests.command_line import run

TPS = "LM=2\n1 2\n3 4\nIMAGE=a.png\nSCALE=0.5\nLM=2\n5 6\n-1 -1\nIMAGE=a.png\nID=x\n"


def test_there_and_back(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.tps").write_text(TPS)
    Path("photographs").mkdir()
    Image.new("RGB", (20, 10)).save("photographs/a.png")
    code, out, err = run(capsys, "convert", "in.tps", "a.json", "--images", "photographs", "--names", "tip", "end")
    assert (code, out, err) == (0, "3 landmarks of 1 photograph are in a.json\n", "")
    code, _, err = run(capsys, "convert", "a.json", "b.json", "--to", "labelstudio")
    assert code == 0
    assert err.splitlines() == [
        "Label Studio's JSON cannot hold the names of 1 objects",
        "Label Studio's JSON cannot hold the scale of 1 photographs",
    ]
    code, _, err = run(capsys, "convert", "a.json", "c.tps")
    assert "TPS cannot hold the names of 2 landmarks" in err
    first, second = annotations.read("c.tps")
    assert first.keypoints.tolist() == [[1, 8], [3, 6]]
    assert (first.names, second.names, first.scale) == (("tip", "end"), ("tip",), 0.5)


def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.tps").write_text(TPS)
    Path("mine.csv").write_text("my,own\n1,2\n")
    for words, sentence in {
        ("in.tps", "out.csv"): "in.tps line 1: y counts from the bottom, and the height of a.png is not known",
        ("in.tps", "out.doc"): "out.doc has the ending '.doc'; expected .json, .csv, .tps",
        ("in.tps", "out.json", "--to", "csv"): "out.json has the ending '.json'; expected .csv for a CSV",
        ("lost.tps", "out.csv"): "lost.tps cannot be read: No such file",
        ("in.tps", "in.tps"): "expected another file",
        ("in.tps", "mine.csv"): "expected another name, or --overwrite",
    }.items():
        code, out, err = run(capsys, "convert", *words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert sentence in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.tps", "mine.csv"]
