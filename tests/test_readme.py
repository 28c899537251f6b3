"""The README's commands work: its Python runs, and so does each `normmatch` line, shortened where it would be long."""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from dataclasses import replace
from email.parser import Parser
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from PIL import Image

from normmatch import PRESETS, NormMatch
from normmatch.commands import main
from normmatch.config import TrainConfig
from normmatch.extras import EXTRAS
from normmatch.matching.samples import copy_samples, get_sample
from tests.datasets import layouts
from tests.matching.locating_scene import FakeEncoder
from tests.without_torch import run_without_torch

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ("results.md", "performance.md", "limits.md", "method.md")
# Words that tell the command lines apart. Each has a test below, which names the lines that it runs one by one.
PARTS = ("make", "pip", "photos", "data/voc", "mine", "normmatch demo", "normmatch label", "quickstart", "export")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def lines() -> list[str]:
    """Every command line."""
    return [line for block in blocks("bash") for line in block.splitlines() if line and not line.startswith("#")]


def commands(part: str) -> list[list[str]]:
    """The arguments of every command line with this word in it."""
    return [shlex.split(line)[1:] for line in lines() if part in line]


def untested(lines: list[str]) -> list[str]:
    """The lines that no test here runs, or more than one."""
    return [line for line in lines if sum(part in line for part in PARTS) != 1]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tiny(empty_folder: Path) -> list[str]:
    """Options for a small network, where it does not matter which points are matched."""
    torch.manual_seed(0)
    NormMatch(PRESETS["tiny"]).save_pretrained("tiny")
    return ["--weights", "tiny"]


def test_every_line_is_tested_here() -> None:
    assert untested(lines()) == []
    assert untested(["normmatch fly --to moon"]) == ["normmatch fly --to moon"]
    assert {line.split()[0] for line in lines()} == {"make", "pip", "normmatch"}
    here = Path(__file__).read_text(encoding="utf-8")
    assert [part for part in PARTS if f'= commands("{part}")' not in here] == []


def test_make_demo(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe as it stands, in an empty folder, with the environment that the tests run in."""
    monkeypatch.delenv("MAKEFLAGS", raising=False)  # of the `make test` that may run this
    (demo,) = commands("make")
    command = ["make", "--file", str(ROOT / "Makefile"), *demo]
    Path("pyproject.toml").touch()
    Path("constraints.txt").touch()
    planned = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True).stdout
    steps = ("-m venv .venv", "--no-build-isolation --editable '.[app]'", "touch .venv/.core", "normmatch samples")
    assert sorted(steps, key=planned.index) == list(steps)
    Path("installed").touch()
    here = [f"BIN={Path(sys.executable).parent}", "CORE=installed"]
    out = subprocess.run([*command, *here], capture_output=True, text=True, check=True).stdout
    assert "6 of the 6 points with a namesake were matched with it" in out
    assert "for pictures and points of your own open the web page: " in out
    with Image.open("demo/matches.png") as picture:
        assert picture.width > 500


MATCH_SAMPLES = """
import normmatch
from normmatch.matching.samples import get_sample
cat, raccoon = get_sample("cat"), get_sample("raccoon")
found = normmatch.match_pair(cat.path, raccoon.path, cat.points.keypoints, raccoon.points.keypoints)
print(len(found["matches"]), *normmatch.__path__)
"""


def test_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip would install: a wheel with everything in it, and extras that bring what the code asks for."""
    from hatchling.build import build_wheel

    ((verb, what),) = commands("pip")
    assert (verb, what) == ("install", ".[app]")
    monkeypatch.chdir(ROOT)
    file = tmp_path / build_wheel(str(tmp_path))
    assert file.stat().st_size < 50e6
    with zipfile.ZipFile(file) as wheel:
        wheel.extractall(tmp_path / "site")  # all that installing it is
        files = set(wheel.namelist())
        text = {Path(name).name: wheel.read(name).decode() for name in files if ".dist-info/" in name}
    source = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "src").as_posix() for path in source} <= files
    assert {"normmatch/weights/small.safetensors", "normmatch/app/static/pair.html"} <= files
    assert "normmatch = normmatch.__main__:main" in text["entry_points.txt"]
    found = run_without_torch(MATCH_SAMPLES, tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert found.stdout.split() == ["6", str(tmp_path / "site" / "normmatch")], found.stderr
    metadata = Parser().parsestr(text["METADATA"])
    offered = {extra: set() for extra in metadata.get_all("Provides-Extra")}
    for line in metadata.get_all("Requires-Dist"):
        requirement = Requirement(line)
        for extra in offered:
            if requirement.marker and requirement.marker.evaluate({"extra": extra}):
                offered[extra].add(requirement.name.replace("-", "_"))
                assert requirement.specifier.contains(version(requirement.name)), f"{line} is not installed"
    for module, extra in EXTRAS.items():  # what a message says to install is what brings the module
        brought = {name.replace("-", "_") for name in packages_distributions()[module]}
        assert offered[extra] & brought, f"{extra} does not bring {module}"
    assert set(re.findall(r"`(\w+)`", README.split("Without an extra")[1].split("\n\n")[0])) == set(offered)


@pytest.mark.skipif("WHEEL" not in os.environ, reason="WHEEL=1 installs the wheel and all it needs, from PyPI")
def test_the_wheel_in_an_empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hatchling.build import build_wheel

    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    wheel = tmp_path / build_wheel(str(tmp_path))
    run = functools.partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, check=True)
    run([sys.executable, "-m", "venv", "env"])
    run(["env/bin/pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel)])
    assert run(["env/bin/python", "-c", MATCH_SAMPLES]).stdout.startswith("6 ")
    assert "torch" not in run(["env/bin/pip", "freeze"]).stdout
    size = sum(
        path.stat().st_size for path in (tmp_path / "env").rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert size < 440e6


def test_nothing_is_left_to_fill_in() -> None:
    for document in (README, *((ROOT / "docs" / name).read_text(encoding="utf-8") for name in DOCUMENTS)):
        prose = re.sub(r"```.*?```|`[^`]*`", "", document, flags=re.DOTALL)
        assert re.findall(r"\b[A-Z]+_[A-Z_]+\b", prose) == []


def test_linked_files_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)#:]+)\)", README) if link]
    assert {"docs/results.md", "docs/performance.md", "docs/cat-raccoon.jpg"} <= set(links)
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_map_links_to_files_that_there_are() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []


def test_python() -> None:
    found: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), found)
    cat, raccoon, result = (found[name] for name in ("cat", "raccoon", "result"))
    names = [raccoon.points.names[j] for j in result["matches0"].tolist() if j >= 0]  # type: ignore[attr-defined, index]
    assert set(names) <= set(cat.points.names)  # type: ignore[attr-defined]
    left_eye = found["found"].keypoints[0]  # type: ignore[attr-defined]
    assert np.linalg.norm(left_eye - raccoon.points.keypoints[0]) < 20  # type: ignore[attr-defined]


def test_two_photographs(empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples, match, *_ = commands("photos")
    main(samples)
    assert "6 of the 6 points with a namesake were matched with it" in capsys.readouterr().out
    main(match)
    out = capsys.readouterr().out
    assert all(name in out for name in ("L_Eye", "R_EarBase", "Chin"))
    (entry,) = json.loads(blocks("json")[0])["images"]
    assert entry["keypoints"][0] in json.loads(Path("photos/points.json").read_text())["images"][0]["keypoints"]
    assert json.loads(Path("matches.json").read_text())["matches"]
    with Image.open("matches.png") as picture:
        assert picture.width > 500


def test_many_photographs(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    copy_samples([get_sample(title) for title in ("cat", "raccoon", "astronaut")], Path("photos"))
    *_, local, on_ray, locate, propagate = commands("photos")
    assert len(commands("photos")) == 6  # the first two are above
    main([*local, *tiny])
    main([*on_ray, *tiny, "--workers", "1"])
    rows = [[json.loads(row) for row in Path(f, "results.jsonl").read_text().splitlines()] for f in ("out", "out-ray")]
    for one, other in zip(*rows, strict=True):
        assert [one["image0"], one["image1"], one["matches0"]] == [other["image0"], other["image1"], other["matches0"]]
        assert one["matching_scores0"] == pytest.approx(other["matching_scores0"], abs=1e-5)  # threads add as they come
    encoder = SimpleNamespace(backend=FakeEncoder())  # the tiny network has no blocks to be read
    monkeypatch.setattr("normmatch.matching.locate_list.Matcher", lambda *_, **__: encoder)
    main([*locate, *tiny])
    assert len(json.loads(Path("located/located.json").read_text())["annotations"]) == 2  # of three, one the reference
    assert Path("located/table.csv").read_text().startswith("image,landmark,x,y,score")
    main([*propagate, *tiny])
    assert len(json.loads(Path("propagated.json").read_text())["annotations"]) == 3  # the reference and what was found


def test_page(tiny: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (demo,) = commands("normmatch demo")
    threading = SimpleNamespace(Event=lambda: SimpleNamespace(wait=lambda: True))  # nobody presses Ctrl+C here
    monkeypatch.setattr("normmatch.commands.demo.threading", threading)
    main([*demo, *tiny])
    assert re.match(r"the page is at http://127.0.0.1:\d+/ until you press Ctrl\+C", capsys.readouterr().out)


def test_label(tiny: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (label,) = commands("normmatch label")
    Path("beetles").mkdir()
    Image.new("RGB", (60, 40)).save("beetles/a.jpg")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    threading = SimpleNamespace(Event=lambda: SimpleNamespace(wait=lambda: True))  # nobody presses Ctrl+C here
    monkeypatch.setattr("normmatch.commands.label.threading", threading)
    main([*label, *tiny])
    said = capsys.readouterr().out
    assert "the project is beetles/normmatch.json" in said
    assert opened == re.findall(r"http://127.0.0.1:\d+/", said)


def test_export(empty_folder: Path) -> None:
    (export,) = commands("export")
    NormMatch(replace(PRESETS["tiny"], num_layers=1, sinkhorn_rounds=2)).save_pretrained("tiny")  # it takes a while
    main([word if word != "small" else "tiny" for word in export])
    assert {"encoder.onnx", "embed.onnx", "match.onnx"} <= {path.name for path in Path("onnx").iterdir()}


def test_quickstart(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fewer in (("FIGURES", 8), ("HELD_OUT", 4), ("PAIRS", 3)):  # test_quickstart.py has all of it
        monkeypatch.setattr(f"normmatch.experiments.quickstart.{name}", fewer)
    (quickstart,) = commands("quickstart")
    main([*quickstart, "--steps", "2"])
    assert Path("quickstart/matches.png").is_file()


def test_training_on_pascal_voc(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download, check, prepare, train, evaluate = commands("data/voc")
    asked = []
    monkeypatch.setattr("normmatch.datasets.download.install", lambda *args: asked.append(args) or [])
    main(download)
    assert asked == [("pascal-voc", Path("data/voc"), None)]
    layouts.make_voc(Path("data/voc"))
    main(check)
    main(prepare)
    assert Path("data/voc/prepared/pascal-voc-nmt-378").is_dir()
    config = parsed(train, monkeypatch)
    assert (config.model.image_size, config.data.root) == (378, Path("data/voc"))
    NormMatch(PRESETS["tiny"]).save_pretrained("runs/voc")
    main([*evaluate, "--pairs", "2", "--json", "result.json"])
    (result,) = json.loads(Path("result.json").read_text())["results"]
    assert result["mean"] == pytest.approx(sum(result["classes"].values()) / len(result["classes"]))


def test_own_photographs(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    header, *rows = blocks("text")[0].split()
    Path("mine").mkdir()
    Image.new("RGB", (320, 240)).save("mine/tom.jpg")
    Image.new("RGB", (320, 240)).save("mine/kit.jpg")
    more = [row.replace("tom.jpg", "kit.jpg") for row in rows]
    Path("mine/points.csv").write_text("\n".join([header, *rows, *more]) + "\n")
    check, train, match = commands("mine")
    main(check)
    assert Path("mine.png").is_file()
    config = parsed(train, monkeypatch)
    assert (config.data.names, config.init) == (("folder",), "small")
    on_a_cpu = re.findall(r"`(--backbone-lr .*?)`", README)[0].split()
    assert parsed([*train, *on_a_cpu], monkeypatch).backbone_lr == 0
    config.out.parent.mkdir()
    Path("tiny").rename(config.out)
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (320, 240)).save(name)
    points = [{"name": "nose", "x": 20, "y": 30}, {"name": "eye", "x": 200, "y": 90}]
    entries = [{"image": name, "keypoints": points} for name in ("a.jpg", "b.jpg")]
    Path("points.json").write_text(json.dumps({"images": entries}))
    main(match)


def parsed(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """What a training command asks for, without the training."""
    asked: list[TrainConfig] = []
    monkeypatch.setattr("normmatch.commands.train.train", asked.append)
    main(arguments)
    return asked[0]
