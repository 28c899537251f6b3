"""The site builds without a warning and asks nothing of other hosts; what its pages show as Python runs."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.project_file import read_project
from normmatch.commands import main
from normmatch.matching.record import make_record
from normmatch.matching.samples import get_sample

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PUBLIC = (  # modules whose public names are in the reference, each with a docstring
    "matching/matcher.py", "matching/locate.py", "annotations/__init__.py", "viz.py", "model/network.py", "errors.py",
    "config.py",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_no_page_asks_anything_of_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        asked = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^\"> ]+", text)
        assert asked == [], page


def test_every_link_leads_somewhere(site: Path) -> None:
    """Also those that MkDocs does not look at: in pictures, and to lines that were made."""
    dead = []
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for target in re.findall(r"(?:href|src)=\"([^\"#?:]+)[\"#?]", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                dead.append(f"{page.relative_to(site)}: {target}")
    assert dead == []


def test_equations_are_set(site: Path) -> None:
    text = (site / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") > 10
    assert "$$" not in text
    assert "\\(" not in text


def test_the_commands_are_all_there(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    words = set(re.findall(r"normmatch ([a-z]+)", text))
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^\W*• ([a-z]+)", capsys.readouterr().out, re.MULTILINE)
    assert len(listed) > 10
    assert set(listed) <= words


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_have_a_docstring(module: str) -> None:
    tree = ast.parse((ROOT / "src" / "normmatch" / module).read_text(encoding="utf-8"))
    nodes = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    nodes += [node for part in nodes for node in part.body if isinstance(node, ast.FunctionDef)]  # methods
    missing = [node.name for node in nodes if not node.name.startswith("_") and not ast.get_docstring(node)]
    assert nodes
    assert missing == []


def test_the_web_service_answers() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "tutorials" / "web-service.md").read_text(), re.DOTALL)
    found: dict = {}
    exec(compile(code, "web-service.md", "exec"), found)
    answer = found["find"](get_sample("raccoon").path.read_bytes())
    assert len(answer["keypoints"]) == len(answer["names"]) == len(answer["scores"])
    with pytest.raises(found["NormMatchError"]):
        found["find"](b"no picture")


def test_examples_of_formats_are_read(tmp_path: Path) -> None:
    text = (DOCS / "reference" / "formats.md").read_text(encoding="utf-8")
    examples = dict(re.findall(r"```\w+ title=\"([^\"]+)\"\n(.*?)```", text, re.DOTALL))
    for name in ("landmarks.json", "landmarks.csv", "normmatch.json"):
        (tmp_path / name).write_text(examples[name], encoding="utf-8")
    ours, table = (annotations.read(tmp_path / name) for name in ("landmarks.json", "landmarks.csv"))
    assert [item.names for item in ours] == [item.names for item in table] == [("left_eye", "nose")]
    assert (ours[0].keypoints == table[0].keypoints).all()
    project = read_project(tmp_path / "normmatch.json")
    assert project.photographs["beetle_020.jpg"].points["Right eye"].absent
    line = json.loads(examples["a line of results.jsonl"])
    first, second = (
        Annotation(line[f"image{i}"], tuple(line[f"names{i}"]), np.array(line[f"keypoints{i}"])) for i in (0, 1)
    )
    arrays = {key: np.array(line[key]) for key in ("matches0", "matches1", "matching_scores0", "matching_scores1")}
    assert {"row": 0} | make_record(first, second, arrays | {"matches": np.array([[0, 1]])}) == line
