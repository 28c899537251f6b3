"""The first training keeps its promise: `normmatch quickstart` learns drawn figures in a minute or two."""

import re
from pathlib import Path

import pytest
from PIL import Image

from normmatch.errors import ConfigError, NormMatchError
from normmatch.experiments.quickstart import quickstart


def test_quickstart_learns_figures_that_it_has_not_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = quickstart(tmp_path)
    assert accuracy >= 0.95
    guessing, untrained, trained = map(float, re.findall(r"\d+\.\d", capsys.readouterr().out.split("mean")[1])[:3])
    assert guessing < 15
    assert untrained < 40
    assert trained == pytest.approx(100 * accuracy, abs=0.06)
    assert (tmp_path / "run" / "model.safetensors").is_file()
    with Image.open(tmp_path / "matches.png") as picture:
        assert picture.width > picture.height > 300


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is there already; delete it, or give another --out"):
        quickstart(tmp_path, steps=1)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_picture_of_the_user_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "matches.png").write_bytes(b"mine")
    with pytest.raises(NormMatchError, match="was not written by NormMatch"):
        quickstart(tmp_path, steps=1)
    assert (tmp_path / "matches.png").read_bytes() == b"mine"
