"""What README, tutorials and how-to pages tell people to type works: Python runs, and so does each command line,
shortened where it would be long."""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from email.parser import Parser
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from PIL import Image

from normmatch import PRESETS, NormMatch, annotations
from normmatch.commands import main
from normmatch.config import TrainConfig
from normmatch.extras import EXTRAS
from normmatch.matching.samples import copy_samples, get_sample
from tests.datasets import layouts
from tests.without_torch import run_without_torch

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FORMATS = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
DOCUMENTS = ("results.md", "performance.md", "limits.md", "method.md")
PAGES = [README, *(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("tutorials/*.md"))),
         (ROOT / "docs" / "howto.md").read_text(encoding="utf-8")]  # fmt: skip
# Words that tell the command lines apart. Each has a test below, which names the lines that it runs one by one.
PARTS = ("make", "pip", "samples", "locate photos", "propagate", "export", "--json", "--pairs", "data/voc", "mine",
         "quickstart", "beetles", "wings", "normmatch demo", "venv")  # fmt: skip


def blocks(language: str) -> list[str]:
    return [block for page in PAGES for block in re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)]


def lines() -> list[str]:
    """Every command line, once."""
    return list(
        dict.fromkeys(line for block in blocks("bash") for line in block.replace("\\\n", "").splitlines() if line)
    )


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
    assert {line.split()[0] for line in lines()} == {"make", "pip", "python3", ".", "normmatch"}
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
                if extra != "peers":  # it brings OpenCV under two names, so `make test` goes without
                    assert requirement.specifier.contains(version(requirement.name)), f"{line} is not installed"
    installed = {module: extra for module, extra in EXTRAS.items() if extra != "peers"}
    for module, extra in installed.items():  # what a message says to install is what brings the module
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
    assert README.count("\n") <= 130
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_map_links_to_files_that_there_are() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []


def test_python(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), found)
    cat, raccoon, result = (found[name] for name in ("cat", "raccoon", "result"))
    names = [raccoon.points.names[j] for j in result["matches0"].tolist() if j >= 0]
    assert set(names) <= set(cat.points.names)
    assert np.linalg.norm(found["found"].keypoints[0] - raccoon.points.keypoints[0]) < 20  # the left eye
    (first,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorials/first-landmarks.md").read_text(), re.DOTALL)
    exec(compile(first, "first-landmarks.md", "exec"), {})
    assert all(name in capsys.readouterr().out for name in cat.points.names[:1])


def test_environment() -> None:
    make, enter = commands("venv")
    assert make == ["-m", "venv", ".venv"]
    assert enter == [".venv/bin/activate"]  # the installation itself is tested with the wheel


def test_first_landmarks(empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (samples,) = commands("samples")
    (locate,) = commands("locate photos")
    (match,) = commands("--json")
    main(samples)
    main(locate)
    assert "6 landmarks of 1 photograph are in located/located.json" in capsys.readouterr().out
    raccoon = get_sample("raccoon").points
    (found,) = [item for item in annotations.read(Path("located/located.json")) if "raccoon" in item.image]
    eyes = [
        found.keypoints[found.names.index(name)] - raccoon.keypoints[raccoon.names.index(name)] for name in ("L_Eye",)
    ]
    assert np.linalg.norm(eyes) < 20
    main(match)
    out = capsys.readouterr().out
    assert all(name in out for name in ("L_Eye", "R_EarBase", "Chin"))
    assert json.loads(Path("matches.json").read_text())["matches"]
    with Image.open("matches.png") as picture:
        assert picture.width > 500


def test_the_core_works_without_torch(empty_folder: Path) -> None:
    """What the first tutorial says, in a Python that has none, by the commands themselves."""
    program = "import json, sys\nfrom normmatch.commands import main\n[main(line) for line in json.loads(sys.argv[1])]"
    asked = [line for part in ("samples", "locate photos", "--json") for line in commands(part)]
    done = run_without_torch(program, empty_folder, json.dumps(asked))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "6 landmarks of 1 photograph are in located/located.json" in done.stdout
    assert Path("matches.png").is_file()


def test_many_photographs(tiny: list[str]) -> None:
    copy_samples([get_sample(title) for title in ("cat", "raccoon", "astronaut")], Path("photos"))
    local, on_ray = commands("--pairs")
    main([*local, *tiny])
    main([*on_ray, *tiny, "--workers", "1"])
    rows = [[json.loads(row) for row in Path(f, "results.jsonl").read_text().splitlines()] for f in ("out", "out-ray")]
    for one, other in zip(*rows, strict=True):
        assert [one["image0"], one["image1"], one["matches0"]] == [other["image0"], other["image1"], other["matches0"]]
        assert one["matching_scores0"] == pytest.approx(other["matching_scores0"], abs=1e-5)  # threads add as they come


def test_a_folder_is_labelled(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page opens on the folder; what it keeps becomes a file of another tool."""
    label, convert = commands("beetles")
    copy_samples([get_sample("cat")], Path("beetles"))
    for name in ("points.json", "reference.json", "pairs.csv"):
        Path("beetles", name).unlink()
    monkeypatch.setattr("normmatch.commands.label.threading", nobody_presses_ctrl_c())
    main([*label, "--no-browser"])
    example = re.findall(r'```json title="normmatch.json"\n(.*?)```', FORMATS, re.DOTALL)[0]
    Path("beetles/normmatch.json").write_text(example.replace("beetle_020.jpg", "cat.jpg"), encoding="utf-8")
    main(convert)
    assert Path("beetles.tps").read_text().startswith("LM=")


def test_locating_is_measured(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the line asks for; tests/evaluation/test_locating.py runs it."""
    (evaluate,) = commands("wings")
    asked: list[Any] = []
    monkeypatch.setattr("normmatch.evaluation.locating.evaluate_locating", lambda *given: asked.append(given))
    main(evaluate)
    ((what, config),) = asked
    assert what == ("wings.json",)
    assert (config.references, config.boxes, config.out) == ((1, 3, 5, 10), True, Path("measured"))


def test_page(tiny: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (demo,) = commands("normmatch demo")
    monkeypatch.setattr("normmatch.commands.demo.threading", nobody_presses_ctrl_c())
    main([*demo, *tiny])
    assert re.match(r"the page is at http://127.0.0.1:\d+/ until you press Ctrl\+C", capsys.readouterr().out)


def nobody_presses_ctrl_c() -> SimpleNamespace:
    return SimpleNamespace(Event=lambda: SimpleNamespace(wait=lambda *_: True), Thread=threading.Thread)


def test_export(empty_folder: Path) -> None:
    (export,) = commands("export")
    NormMatch(replace(PRESETS["tiny"], num_layers=1, sinkhorn_rounds=2)).save_pretrained("tiny")  # it takes a while
    main([word if word != "small" else "tiny" for word in export])
    assert {"encoder.onnx", "embed.onnx", "match.onnx"} <= {path.name for path in Path("onnx").iterdir()}


def test_candidates_are_chosen_among(tiny: list[str]) -> None:
    copy_samples([get_sample(title) for title in ("cat", "raccoon", "astronaut")], Path("photos"))
    (propagate,) = commands("propagate")
    main([*propagate, *tiny])
    assert len(json.loads(Path("propagated.json").read_text())["annotations"]) == 3  # the reference and what was found


def test_quickstart(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fewer in (("FIGURES", 8), ("HELD_OUT", 4), ("PAIRS", 3)):  # test_quickstart.py has all of it
        monkeypatch.setattr(f"normmatch.experiments.quickstart.{name}", fewer)
    (quickstart,) = commands("quickstart")
    main([*quickstart, "--steps", "2"])
    assert Path("quickstart/matches.png").is_file()


def test_training_on_pascal_voc(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download, prepare, train, evaluate, download_too, check, train_both = commands("data/voc")
    asked = []
    monkeypatch.setattr("normmatch.datasets.download.install", lambda *args: asked.append(args) or [])
    main(download)
    assert asked == [("pascal-voc", Path("data/voc"), None)]
    layouts.make_voc(Path("data/voc"))
    main(prepare)
    assert Path("data/voc/prepared/pascal-voc-nmt-378").is_dir()
    config = parsed(train, monkeypatch)
    assert (config.model.image_size, config.data.root) == (378, Path("data/voc"))
    NormMatch(PRESETS["tiny"]).save_pretrained("runs/voc")
    main([*evaluate, "--pairs", "2", "--json", "result.json"])
    (result,) = json.loads(Path("result.json").read_text())["results"]
    main(download_too)
    assert asked[1:] == [("spair-71k", Path("data/voc"), None)]
    layouts.make_spair(Path("data/voc"))
    main(check)
    assert parsed(train_both, monkeypatch).data.names == ("pascal-voc", "spair-71k")
    assert result["mean"] == pytest.approx(sum(result["classes"].values()) / len(result["classes"]))


def test_own_photographs(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    header, *rows = next(block for block in blocks("text") if block.startswith("image,class")).split()
    Path("mine").mkdir()
    Image.new("RGB", (320, 240)).save("mine/tom.jpg")
    Image.new("RGB", (320, 240)).save("mine/kit.jpg")
    more = [row.replace("tom.jpg", "kit.jpg") for row in rows]
    Path("mine/points.csv").write_text("\n".join([header, *rows, *more]) + "\n")
    train, check, on_a_cpu, match, evaluate = commands("mine")
    main(check)
    assert Path("mine.png").is_file()
    config = parsed(train, monkeypatch)
    assert (config.data.names, config.init) == (("folder",), "small")
    assert parsed(on_a_cpu, monkeypatch).backbone_lr == 0
    config.out.parent.mkdir()
    Path("tiny").rename(config.out)
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (320, 240)).save(name)
    points = [{"name": "nose", "x": 20, "y": 30}, {"name": "eye", "x": 200, "y": 90}]
    entries = [{"image": name, "keypoints": points} for name in ("a.jpg", "b.jpg")]
    Path("points.json").write_text(json.dumps({"images": entries}))
    main(match)
    main([*evaluate, "--split", "train"])


def parsed(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """What a training command asks for, without the training."""
    asked: list[TrainConfig] = []
    monkeypatch.setattr("normmatch.commands.train.train", asked.append)
    main(arguments)
    return asked[0]
