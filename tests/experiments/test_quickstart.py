"""The first training keeps its promise: `normmatch quickstart` learns drawn figures in a minute or two."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from normmatch.errors import ConfigError, NormMatchError
from normmatch.experiments.quickstart import earlier_files, quickstart, training_config
from normmatch.outputs import write_json
from normmatch.training.checkpoint import as_json
from normmatch.training.run import CONFIG


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
    with pytest.raises(ConfigError, match="not an earlier quickstart"):
        quickstart(tmp_path, steps=1)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def earlier(folder: Path, **more: object) -> Path:
    """What a quickstart leaves."""
    out = folder / "run"
    write_json(out / CONFIG, as_json(training_config(out, 7)) | more)
    for name in ("log.jsonl", "model.safetensors", "step-0000007.safetensors"):
        (out / name).touch()
    return out


def test_an_earlier_quickstart_is_known(tmp_path: Path) -> None:
    assert len(earlier_files(earlier(tmp_path))) == 4
    assert earlier_files(tmp_path / "new") == []


def test_what_is_not_surely_ours_is_left_alone(tmp_path: Path) -> None:
    earlier(tmp_path / "a", lr=1.0)  # another training, by `normmatch train`
    (earlier(tmp_path / "b") / "notes.txt").touch()
    (earlier(tmp_path / "c") / "step-1.safetensors").mkdir()
    config = earlier(tmp_path / "d") / CONFIG
    config.write_text(json.dumps({"mine": 1}))
    for name in "abcd":
        before = sorted((tmp_path / name).rglob("*"))
        with pytest.raises(NormMatchError, match="not an earlier quickstart|was not written by NormMatch"):
            quickstart(tmp_path / name, steps=1)
        assert sorted((tmp_path / name).rglob("*")) == before


def test_a_picture_of_the_user_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "matches.png").write_bytes(b"mine")
    with pytest.raises(NormMatchError, match="was not written by NormMatch"):
        quickstart(tmp_path, steps=1)
    assert (tmp_path / "matches.png").read_bytes() == b"mine"
