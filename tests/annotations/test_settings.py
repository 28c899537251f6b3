"""Settings are kept in the file or beside it, and make a sentence."""

from pathlib import Path

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.settings import read_settings, sentence, settings_of
from tests.command_line import run


def test_kept_through_conversions(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = settings_of("small", ["a.jpg", "b.jpg"], {"looks": 2}, "2026-01-02")
    item = Annotation("c.jpg", ("1", "2"), np.array([[1.0, 2.0], [3.0, 6.0]]), size=(9, 9), scale=0.5)
    annotations.write("a.json", [item], settings=settings)
    code, out, _ = run(capsys, "convert", "a.json", "b.tps", "--methods")
    assert code == 0
    assert sentence(settings) in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.tps", "b.tps.settings.json"]
    assert run(capsys, "convert", "b.tps", "c.json", "--to", "coco", "--size", "9", "9")[0] == 0
    assert read_settings(Path("c.json")) == settings
    assert sentence(settings).startswith("Landmarks were placed from 2 annotated photographs with NormMatch ")
    assert sentence(settings).endswith("(weights small; looks 2) on 2026-01-02.")
    code, out, _ = run(capsys, "convert", "a.json", "wide.csv", "--measure", "length = 1 to 2", "--deviation", "0.01")
    assert Path("wide.csv").read_text().splitlines()[0].endswith("mm_per_pixel,length (mm),length error (mm)")
    assert Path("wide.csv").read_text().splitlines()[1].endswith("0.5,2.23607,0.0282843")


def test_none() -> None:
    assert read_settings(Path("lost.json")) == {}
