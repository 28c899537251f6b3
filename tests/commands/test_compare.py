"""`normmatch compare`: tables, JSON, the picture, and what it refuses."""

import json
from pathlib import Path

import pytest
from PIL import Image

from normmatch import annotations
from tests.annotations.test_comparison import person
from tests.command_line import run


def test_all_outputs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    annotations.write("a.json", person())
    annotations.write("b.csv", person((3, 4)))
    code, out, err = run(capsys, "compare", "a.json", "b.csv", "--json", "c.json", "--plot", "c.png")
    assert (code, err) == (0, "")
    assert "against others" in out
    rows = {row["landmark"]: row for row in json.loads(Path("c.json").read_text())["others"]}
    assert rows["c"]["pixels"] == pytest.approx(5)
    assert rows["c"]["bias"] == pytest.approx(0.05, abs=1e-3)
    assert Image.open("c.png").size[0] > 500
    for words, sentence in {
        ("a.json",): "a.json has every photograph once; expected a second file",
        ("a.json", "lost.csv"): "lost.csv cannot be read",
        ("a.json", "b.csv", "--plot", "a.json"): "expected another file",
    }.items():
        code, _, err = run(capsys, "compare", *words)
        assert (code, len(err.splitlines())) == (2, 1)
        assert sentence in err
