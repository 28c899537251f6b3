"""`normmatch propagate` from the shell."""

import json
from pathlib import Path

import pytest
from PIL import Image

from normmatch.annotations import Annotation, write_points
from normmatch.commands import main
from tests.matching.scene import photograph, points, tiny_model


def test_propagate(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_model().save_pretrained("tiny.safetensors")
    Path("images").mkdir()
    for i in range(3):
        Image.fromarray(photograph(i)).save(f"images/{i}.png")
    write_points("reference.json", [Annotation("0.png", ("eye", "nose"), points(0, 2))])
    write_points("candidates.csv", [Annotation("1.png", ("a", "b", "c"), points(1, 3))])
    command = ["propagate", "reference.json", "images", "--candidates", "candidates.csv", "--out", "result.json"]
    main([*command, "--weights", "tiny.safetensors", "--min-score", "0"])
    out, err = capsys.readouterr()
    assert "2 objects are annotated in result.json" in out
    assert "1 images have no candidates: 2.png" in err
    assert json.loads(Path("result.json").read_text())["annotations"][1]["num_keypoints"] == 2
    with pytest.raises(SystemExit) as caught:
        main([*command[:2], "nowhere", *command[3:], "--weights", "tiny.safetensors"])
    assert caught.value.code == 2
    assert "nowhere is not a folder" in capsys.readouterr().err


def test_help_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["propagate", "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "None" not in out
    assert "--candidates FILE" in out
