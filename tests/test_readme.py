"""The README's commands work: its Python runs, and so does each `normmatch` line, shortened where it would be long."""

import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from normmatch import cli
from normmatch.config import TrainConfig
from tests.data import layouts

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(word: str) -> list[list[str]]:
    """The arguments of every `normmatch` line that has the word in it."""
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("normmatch ")]
    return [shlex.split(line)[1:] for line in lines if word in line]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_line_is_tested_here() -> None:
    known = sum(len(commands(word)) for word in ("data/figures", "data/voc", "photos"))
    assert known == len(commands("")) == 10


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"make (\w+)", "\n".join(blocks("bash")) + " ".join(re.findall(r"`(make \w+)`", README))))
    assert targets == {"demo", "test"}
    assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in targets)


def test_nothing_is_left_to_fill_in() -> None:
    for document in (README, (ROOT / "docs" / "results.md").read_text(encoding="utf-8")):
        prose = re.sub(r"```.*?```|`[^`]*`", "", document, flags=re.DOTALL)
        assert re.findall(r"\b[A-Z]+_[A-Z_]+\b", prose) == []


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert "docs/results.md" in links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_python() -> None:
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})


def test_training_on_drawn_figures(empty_folder: Path) -> None:
    download, check, train, evaluate = commands("data/figures")
    cli.main([*download, "--count", "12"])
    cli.main(check)
    with Image.open("figures.png") as sheet:
        assert sheet.width > 500
    train[train.index("--steps") + 1] = "2"
    cli.main([*train, "--batch-size", "2", "--validation-pairs", "2"])
    assert (empty_folder / "runs/first/model.safetensors").is_file()
    cli.main([*evaluate, "--json", "result.json"])
    (result,) = json.loads(Path("result.json").read_text())["results"]
    assert set(result["classes"]) == {"beetle", "bird", "horse", "person"}
    assert result["mean"] == pytest.approx(sum(result["classes"].values()) / 4)


def test_training_on_pascal_voc(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download, check, prepare, train = commands("data/voc")
    asked = []
    monkeypatch.setattr("normmatch.data.download.install", lambda *args: asked.append(args) or [])
    cli.main(download)
    assert asked == [("pascal-voc", Path("data/voc"), None)]
    layouts.make_voc(Path("data/voc"))
    cli.main(check)
    cli.main(prepare)
    assert Path("data/voc/prepared/pascal-voc-nmt-378").is_dir()
    config = parsed(train, monkeypatch)
    assert (config.model.image_size, config.data.root) == (378, Path("data/voc"))


def test_own_photographs(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header, *rows = blocks("text")[0].split()
    Path("photos").mkdir()
    Image.new("RGB", (320, 240)).save("photos/tom.jpg")
    Image.new("RGB", (320, 240)).save("photos/kit.jpg")
    more = [row.replace("tom.jpg", "kit.jpg") for row in rows]
    Path("photos/points.csv").write_text("\n".join([header, *rows, *more]) + "\n")
    check, train = commands("photos")
    cli.main(check)
    assert Path("photos.png").is_file()
    assert parsed(train, monkeypatch).data.name == "folder"


def parsed(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """What a training command asks for, without the training."""
    asked: list[TrainConfig] = []
    monkeypatch.setattr(cli.train, "train", asked.append)
    cli.main(arguments)
    return asked[0]
