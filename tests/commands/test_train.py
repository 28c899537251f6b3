"""`normmatch train` on a folder of a user's own: from a CSV to a network that `normmatch match` takes."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.command_line import run

OPTIONS = "--data.names folder --data.root mine --data.workers 0 --steps 2 --batch-size 2 --no-compile --no-tensorboard"


@pytest.fixture(autouse=True)
def few_graphs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a while: one training makes them."""
    if request.node.name != "test_a_folder_is_trained_on_and_the_result_is_named":
        monkeypatch.setattr("normmatch.export.files.export", lambda *_: {})


def make_folder(images: int) -> None:
    rng = np.random.default_rng(0)
    Path("mine").mkdir()
    lines = ["image,class,name,x,y"]
    for k in range(images):
        Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(f"mine/{k}.png")
        lines += [f"{k}.png,cat,eye,{10 + k},20", f"{k}.png,cat,nose,30,{15 + k}"]
    Path("mine/points.csv").write_text("\n".join(lines))


def test_a_folder_is_trained_on_and_the_result_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(4)
    small = ("--model.num-layers", 1, "--model.sinkhorn-rounds", 2)
    command = ("train", "tiny", "--out", "runs/mine", *OPTIONS.split(), *small)
    code, out, err = run(capsys, *command, "--minutes", 1e-6)
    assert code == 0
    assert "--resume continues" in err
    assert "the trained network" not in out
    code, out, _ = run(capsys, *command, "--resume")
    assert code == 0
    assert "the trained network is in runs/mine; other commands take it as --weights runs/mine" in out
    match = ("match", "mine/0.png", "mine/1.png", "--keypoints", "mine/points.csv", "--weights", "runs/mine")
    assert run(capsys, *match)[0] == 0
    assert run(capsys, *match, "--backend", "onnx")[0] == 0


def test_too_small_a_folder_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(3)
    code, out, err = run(capsys, "train", "tiny", "--out", "runs/mine", *OPTIONS.split())
    assert (code, out) == (2, "")
    assert "too few objects for a validation split" in err
    assert not Path("runs").exists()


def test_without_a_compiler_training_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler(*_: object) -> None:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found")

    monkeypatch.chdir(tmp_path)
    make_folder(4)
    monkeypatch.setattr("torch.compile", lambda function, **_: no_compiler)
    code, _, err = run(capsys, "train", "tiny", "--out", "run", *OPTIONS.replace("--no-compile", "--compile").split())
    assert code == 0
    assert "Training is not compiled, because torch's compiler does not work here" in err
    assert Path("run/model.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--steps 0", "steps is 0, expected at least 1"),
        ("--lr nan", "lr is nan, expected at least 0"),
        ("--frozen-copies 1", "frozen_copies is 1, but that needs a frozen backbone; expected backbone_lr 0"),
        ("--data.workers -1", "data.workers is -1, expected 0 to 1,000"),
        ("--model.dim 7", "dim"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: str, sentence: str
) -> None:
    code, out, err = run(capsys, "train", "tiny", "--out", tmp_path / "run", *options.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert "Error parsing" not in err


@pytest.mark.parametrize("option", ["--views 1", "--views=1"])
def test_an_option_by_its_old_name_is_understood_with_a_warning(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(4)
    code, _, err = run(capsys, "train", "tiny", "--out", "run", *OPTIONS.split(), "--backbone-lr", 0, *option.split())
    assert code == 0
    assert "--views is called --frozen-copies now; the next version will not know it." in err
    assert json.loads(Path("run/config.json").read_text())["frozen_copies"] == 1


def test_other_complaints_are_still_heard(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--backbone-lr FLOAT" in run(capsys, "train", "tiny", "--help")[1]
    assert "--step" in run(capsys, "train", "tiny", "--out", tmp_path, "--step", "3")[2]
    assert "--out" in run(capsys, "train", "tiny")[2]
    assert "paper-large" in run(capsys, "train")[2]
