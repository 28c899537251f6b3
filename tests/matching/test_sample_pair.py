"""`normmatch samples` prints a table, draws a picture and says how to go on."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from normmatch import PRESETS, NormMatch, annotations
from normmatch.commands import main
from normmatch.matching.samples import get_sample
from tests.command_line import run


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    NormMatch(PRESETS["tiny"]).save_pretrained(tmp_path / "weights")
    return tmp_path / "weights"


def test_the_command(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["samples", "--weights", str(weights), "--out", str(tmp_path / "new" / "matches.png")])
    out = capsys.readouterr().out
    assert "cat.jpg and raccoon.jpg" in out
    assert all(f" {name} " in out for name in get_sample("cat").points.names)
    assert "of the 6 points with a namesake were matched with it" in out
    assert out.splitlines()[-1].endswith(" demo")
    with Image.open(tmp_path / "new" / "matches.png") as picture:
        assert picture.width > picture.height > 300


def test_copies_are_what_the_other_commands_read(weights: Path, tmp_path: Path) -> None:
    options, photos = ["--weights", str(weights)], tmp_path / "photos"
    main(["samples", *options, "--out", str(tmp_path / "matches.png"), "--copy-to", str(photos)])
    points = ["--keypoints", str(photos / "points.json")]
    main(["match", "--pairs", str(photos / "pairs.csv"), *points, "--out-dir", str(tmp_path / "out"), *options])
    (line,) = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    assert "raccoon.jpg" in line
    found = annotations.read(photos / "points.json")
    assert [item.names for item in found] == [get_sample(title).points.names for title in ("cat", "raccoon")]


def test_an_unknown_sample_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["samples", "cat", "tiger"])
    assert capsys.readouterr().err.startswith("There is no sample photograph 'tiger'")


def test_nothing_is_written_over(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, out = tmp_path / "photos", tmp_path / "m.png"
    command = ("samples", "--weights", weights, "--out", out, "--copy-to", photos)
    assert [run(capsys, *command)[0] for _ in range(2)] == [0, 0]
    cat = (photos / "cat.jpg").read_bytes()
    code, _, err = run(capsys, *command, "--out", photos / "cat.jpg", "--overwrite")
    assert (code, "which this command reads" in err) == (2, True)
    assert (photos / "cat.jpg").read_bytes() == cat
    (photos / "raccoon.jpg").write_bytes(b"mine")
    out.unlink()
    code, _, err = run(capsys, *command, "--overwrite")
    assert (code, "raccoon.jpg is there already and differs" in err) == (2, True)
    assert not out.exists()
