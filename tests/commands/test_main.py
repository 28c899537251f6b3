"""The command line: what it says, where it says it, and its exit codes."""

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import tyro
from PIL import Image

import normmatch
from normmatch.commands import RENAMED, main, today
from normmatch.datasets.catalog import open_dataset, prepared_folder
from normmatch.datasets.prepared import load_prepared
from normmatch.errors import ConfigError
from tests.command_line import run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small folder dataset of the user's."""
    lines = ["image,class,name,x,y"]
    for i in range(6):
        Image.new("RGB", (60, 40), (40 * i, 90, 120)).save(tmp_path / f"{i}.png")
        lines += [f"{i}.png,cat,eye,{10 + i},20", f"{i}.png,cat,nose,30,{15 + i}"]
    (tmp_path / "points.csv").write_text("\n".join(lines))
    return tmp_path


def test_help_loads_nothing_large(tmp_path: Path) -> None:
    """It answers at once: what is slow to import is imported by the command that needs it."""
    code = """
import sys
import warnings
from normmatch.commands import RENAMED, main, today
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code
found = {"torch", "torchvision", "timm", "scipy", "matplotlib", "lightning_fabric", "pooch"} & set(sys.modules)
assert not found, found
"""
    for words in (["--help"], ["train", "small", "--help"], ["eval", "--help"], ["match", "--help"]):
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "usage: normmatch" in done.stdout


def test_settings_that_cannot_be_are_parsed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    monkeypatch.setattr(
        "tyro.cli", lambda *args, inner=tyro.cli, **options: parsed.append(1) or inner(*args, **options)
    )
    code, out, err = run(capsys, "train", "small", "--out", "x", "--augment.noise", "-1")
    assert (code, out, err.count("\n"), len(parsed)) == (2, "", 1, 1)
    assert "noise is -1, expected" in err


def test_the_parsers_complaints_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "train", "small")
    assert code == 2
    assert "--out" in err
    assert "Required options" in err
    code, _, err = run(capsys, "train", "small", "--out", "x", "--steps", "many")
    assert code == 2
    assert "many" in err


def test_nothing_runs_before_all_is_parsed(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    assert run(capsys, "data", "prepare", "folder", "--root", root, "--size", 32, "--sise", 3)[0] == 2
    assert not (root / "prepared").exists()


def test_old_spellings_lead_to_options_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    words = run(capsys, "train", "small", "--help")[1].replace(",", " ").split()
    assert not set(RENAMED) & set(words)
    assert {name.replace("data.no-", "data.") for name in RENAMED.values()} <= set(words)


def test_old_spellings_are_known_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="--views is called --frozen-copies now") as caught:
        assert today(["train", "small", "--views", "1", "--views=2"]) == [
            *("train", "small", "--frozen-copies", "1", "--frozen-copies=2"),
        ]
    assert len(caught) == 2
    with pytest.warns(UserWarning, match="--data.no_hold_out is called --data.no-validation-split now"):
        assert today(["--data.no_hold_out"]) == ["--data.no-validation-split"]
    untouched = ["match", "a.jpg", "--out=x=y.png", "", "=", "--", "-"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert today(untouched) == untouched


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"normmatch {normmatch.__version__}\n", "")


@pytest.mark.parametrize("command", ["download", "prepare", "check"])
def test_help_explains_every_option(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, "data", command, "--help")
    assert code == 0
    assert all(word in out for word in ("pascal-voc", "hpatches", "--root PATH", "the dataset"))
    assert "None" not in out


def test_wrong_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys)[0] == 2
    assert run(capsys, "data", "check", "imagenet", "--root", tmp_path)[0] == 2
    assert run(capsys, "data", "check", "folder")[0] == 2


def test_prepare_and_check_a_folder(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    code, out, _ = run(capsys, "data", "prepare", "folder", "--root", root, "--size", 32)
    assert code == 0
    assert "6 objects" in out
    folder = prepared_folder("folder", root, size=32)
    assert folder == root / "prepared" / "folder-nmt-32"
    splits = load_prepared(folder)
    assert splits["train"].images.shape[1:] == (32, 32, 3)
    sheet = root / "sheets" / "sheet.png"
    code, out, _ = run(capsys, "data", "check", "folder", "--root", root, "--out", sheet)
    assert code == 0
    assert "cat" in out
    assert Image.open(sheet).size[0] > 100


def test_size_is_the_protocols_unless_given() -> None:
    assert prepared_folder("willow", Path("r")) == Path("r/prepared/willow-nmt-384")
    assert prepared_folder("spair-71k", Path("r"), "thinkmatch") == Path("r/prepared/spair-71k-thinkmatch-256")


def test_own_images_that_cannot_be_read_are_an_error(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    (root / "3.png").write_bytes(b"no image")
    code, _, err = run(capsys, "data", "prepare", "folder", "--root", root, "--size", 32)
    assert code == 2
    assert "3.png" in err
    assert not prepared_folder("folder", root, size=32).exists()


def test_a_users_mistake_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / ("a-long-name-" * 7) / "that does not exist"
    code, out, err = run(capsys, "data", "check", "folder", "--root", missing)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(missing) in err
    assert "Traceback" not in err


def test_brackets_in_a_message_are_no_markup(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "[red]x" in run(capsys, "data", "check", "folder", "--root", tmp_path / "[red]x")[2]


def test_interrupt(capsys: pytest.CaptureFixture[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("normmatch.datasets.catalog.open_dataset", interrupted)
    assert run(capsys, "data", "check", "folder", "--root", root) == (130, "", "interrupted\n")


def test_synthetic_is_drawn_and_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = tmp_path / "drawn"
    assert run(capsys, "data", "download", "synthetic", "--root", root, "--count", 8, "--seed", 3)[0] == 0
    assert {len(split.objects) for split in open_dataset("synthetic", root).splits.values()} == {16, 4}
    code, _, err = run(capsys, "data", "download", "synthetic", "--root", root)
    assert code == 2
    assert "empty folder" in err


def test_synthetic_is_any_folder_of_images_otherwise(root: Path) -> None:
    (root / "points.csv").unlink()
    objects = open_dataset("synthetic", root).splits["train"].objects
    assert any(item.homography is not None for item in objects)


def test_nothing_to_download_for_own_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "data", "download", "folder", "--root", tmp_path)
    assert code == 2
    assert "your own data" in err


def test_unknown_dataset(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="imagenet"):
        open_dataset("imagenet", tmp_path)  # type: ignore[arg-type]


def test_from_real_archives(capsys: pytest.CaptureFixture[str], shared_datasets: Path, tmp_path: Path) -> None:
    root = tmp_path / "willow"
    here = tmp_path / "WILLOW-ObjectClass_dataset.zip"
    shutil.copy(shared_datasets / "WILLOW-Duck-sample.tar", here)
    code, out, _ = run(capsys, "data", "download", "willow", "--root", root, "--archives", tmp_path)
    assert (code, here.name in out) == (0, True)
    code, out, err = run(capsys, "data", "prepare", "willow", "--root", root, "--size", 32)
    assert (code, "12 objects" in out) == (0, True)
    assert "WILLOW Duck has 12 usable images" in err  # a loader's warning, without file and line
    assert "UserWarning" not in err


def test_reader_that_goes_away(root: Path) -> None:
    """`normmatch data check ... | head -1`, as a process of its own, through `python -m normmatch`."""
    options = ["--root", str(root), "--out", str(root / "x.png")]
    command = [sys.executable, "-m", "normmatch", "data", "check", "folder", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read().decode()
    assert (process.returncode, err) == (1, "")


@pytest.mark.parametrize(("module", "extra"), [("lightning_fabric.fabric", "train"), ("ray", "ray"), ("odd", "dev")])
def test_a_missing_extra_is_named(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("normmatch.experiments.quickstart.quickstart", missing)
    with pytest.raises(SystemExit) as stop:
        main(["quickstart"])
    assert stop.value.code == 2
    expected = f"This needs {module.split('.')[0]}; install it with: pip install 'normmatch[{extra}]'.\n"
    assert capsys.readouterr().err == expected
