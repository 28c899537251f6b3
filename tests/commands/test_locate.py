"""`normmatch locate` from the shell."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.commands import main
from tests.matching.locating_scene import FakeEncoder, photograph, points


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    encoder = SimpleNamespace(backend=FakeEncoder())
    monkeypatch.setattr("normmatch.matching.locate_list.Matcher", lambda *_, **__: encoder)
    Path("images").mkdir()
    for i in range(3):
        Image.fromarray(photograph(i)).save(f"images/{i}.png")
    annotations.write("images/reference.json", [Annotation("0.png", tuple("abcdefgh"), points(0, 8))])
    return tmp_path


@pytest.mark.parametrize("command", ["locate", "propagate"])
def test_people_are_told_where_to_look(scene: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    Path("images/bad.png").write_text("hello")
    main([command, "images/reference.json", "images", "--out", "found"])
    out, err = capsys.readouterr()
    assert "8 landmarks of 2 photographs are in found/located.json" in out
    assert "8 of 8" in out  # unsure landmarks
    assert "1 photographs could not be read, see found/failed.jsonl" in err
    assert "The certainty is low altogether" in err  # these are other things


def test_one_line_for_what_is_wrong(scene: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["locate", "images/reference.json", "nowhere/*.jpg"])
    assert caught.value.code == 2
    assert "There is no photograph but the references in" in capsys.readouterr().err


def test_help_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["locate", "--help"])
    out = capsys.readouterr().out
    assert "any-way-round" in out
    assert "None" not in out
