"""What photographs need runs without torch: the README's commands, the library; and what is said of a missing extra."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.without_torch import HEAVY, run_without_torch

PROGRAM = """
import json, sys
from normmatch.commands import main
said = []
for line in json.loads(sys.argv[1]):
    try:
        main(line)
        said.append(0)
    except SystemExit as stop:
        said.append(stop.code)
print(json.dumps(said))
"""
CORE = (
    "samples cat raccoon --copy-to photos --out matches.png",
    "match photos/cat.jpg photos/raccoon.jpg --keypoints photos/points.json --out m.png --json matches.json",
    "match --pairs photos/pairs.csv --keypoints photos/points.json --out-dir out",
    "match --pairs photos/pairs.csv --keypoints photos/points.json --out-dir out",  # goes on where it is done
    "propagate photos/reference.json photos --candidates photos/points.json --out propagated.json",
    "locate photos/reference.json photos/raccoon.jpg --looks 1 --out located",
    "convert photos/points.json points.csv",
)
LACKING = {
    "train tiny --out run": "This needs lightning_fabric; install it with: pip install 'normmatch[train]'.",
    "export small --out onnx": "This needs onnx; install it with: pip install 'normmatch[export]'.",
    "eval small pascal-voc --root here": "This needs torch; install it with: pip install 'normmatch[torch]'.",
    "match photos/cat.jpg photos/raccoon.jpg --keypoints photos/points.json --weights a/b": (
        "This needs huggingface_hub; install it with: pip install 'normmatch[hub]'."
    ),
    "match photos/cat.jpg photos/raccoon.jpg --keypoints photos/points.json --backend torch": (
        "This needs torch; install it with: pip install 'normmatch[torch]'."
    ),
}


def run_all(folder: Path, lines: list[str]) -> tuple[list[int], str, str]:
    """The exit codes of commands, one after the other in one process, and what they said."""
    arguments = json.dumps([line.split() for line in lines])
    done = run_without_torch(PROGRAM, folder, arguments, COLUMNS="200")
    assert done.returncode == 0, done.stderr
    *out, codes = done.stdout.splitlines()
    return json.loads(codes), "\n".join(out), done.stderr


def test_the_core(tmp_path: Path) -> None:
    codes, out, err = run_all(tmp_path, [*CORE, *LACKING])
    assert codes == [0] * len(CORE) + [2] * len(LACKING), err
    assert out.count("6 of the 6 points with a namesake were matched with it") == 2
    assert json.loads((tmp_path / "matches.json").read_text())["matches"]
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 1
    assert len(json.loads((tmp_path / "propagated.json").read_text())["annotations"]) == 2
    assert (tmp_path / "located" / "located.json").is_file()
    assert [line for line in err.splitlines() if line.startswith("This needs")] == list(LACKING.values())


LIBRARY = """
import importlib, pkgutil
import normmatch.annotations, normmatch.app, normmatch.matching
for package in (normmatch.annotations, normmatch.app, normmatch.matching):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name != "normmatch.matching.backends.torch":
            importlib.import_module(module.name)
from normmatch import Matcher
from normmatch.matching.samples import get_sample
cat, raccoon = get_sample("cat"), get_sample("raccoon")
matcher = Matcher()
print((matcher.match(cat.path, raccoon.path, cat.points.keypoints, raccoon.points.keypoints)["matches0"] >= 0).sum())
found = matcher.locate(cat.path, raccoon.path, cat.points.keypoints, looks=1)
print(abs(found.keypoints[0] - raccoon.points.keypoints[0]).max() < 40)
"""


def test_the_library(tmp_path: Path) -> None:
    done = run_without_torch(LIBRARY, tmp_path)
    assert (done.stdout.split(), done.stderr) == (["6", "True"], "")


LABEL = """
import time
from pathlib import Path
from normmatch import Matcher
from normmatch.app.labelling import Labelling, make_label_app
from normmatch.app.opening import open_folder
from normmatch.app.proposing import Proposer
from normmatch.matching.samples import copy_samples, find_samples, get_sample
copy_samples(find_samples(), Path("photos"))
cat = get_sample("cat").points
store, photographs = open_folder(Path("photos"), names=cat.names)
proposer = Proposer(store, photographs, lambda: Matcher().backend)
app = make_label_app(Labelling(store, photographs, proposer))
points = {n: {"x": x, "y": y, "from": "person"} for n, (x, y) in zip(cat.names, cat.keypoints.tolist())}
store.edit("w", 0, [{"id": "e", "photographs": {"cat.jpg": {"points": points, "reviewed": True}}}])
proposer.ask("propose")
while proposer.last_job is None:
    time.sleep(0.05)
print(proposer.last_job["error"], *(len(one.points) for one in store.project.photographs.values()))
proposer.close()
"""


def test_labelling(tmp_path: Path) -> None:
    done = run_without_torch(LABEL, tmp_path)
    assert (done.stdout.split(), done.stderr) == (["None", "6", "6", "6"], "")


LATE = ("scipy", "matplotlib", "onnxruntime", "numpy", "PIL", *HEAVY)


@pytest.mark.parametrize("arguments", [["--help"], ["match", "--help"]], ids=str)
def test_help_loads_little(arguments: list[str]) -> None:
    program = (
        f"import sys\nfrom normmatch.commands import main\ntry:\n    main({arguments})\nexcept SystemExit:\n    pass\n"
    )
    program += f"print([name for name in {LATE} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
