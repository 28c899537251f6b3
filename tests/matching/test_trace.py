"""The way of a pair, from the shell to the table: how many of our files it enters, and how deep our calls nest.

`python -m tests.matching.test_trace IMAGE0 IMAGE1 --keypoints FILE ...` prints the way of any `normmatch match`.
"""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import normmatch
from normmatch.commands import main
from tests.matching.scene import write_scene

SOURCE = str(Path(normmatch.__file__).parent)
PREPARATION = ("__init__", "from_options", "_open", "parse")  # of a network, a tree of modules; of the arguments
OPTIONS = "commands/options.py"  # how arguments are read, called by the parser
LEAF = "checks.py"  # a check is one call, which a reader need not follow
INLINE = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")  # frames of Python's, no calls that a reader follows


class Way:
    """Our frames while a call runs; those of imports are left out, and those below a preparation are kept apart."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.prepared: set[str] = set()  # files entered to parse the arguments and to open the network
        self.deepest: list[str] = []

    def watch(self, function: Callable[[], Any]) -> None:
        sys.setprofile(self._enter)
        try:
            function()
        finally:
            sys.setprofile(None)

    def _enter(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not _is_ours(frame):
            return
        stack = []
        at: FrameType | None = frame
        while at is not None:
            if at.f_code.co_name == "<module>" and at.f_code.co_filename.startswith(SOURCE):
                return  # a module is being imported
            if _is_ours(at):
                stack.append(at)
            at = at.f_back
        names = [f"{Path(f.f_code.co_filename).relative_to(SOURCE)}: {f.f_code.co_qualname}" for f in reversed(stack)]
        file = names[-1].split(":")[0]
        if file == LEAF:
            return
        if file == OPTIONS or any(f.f_code.co_name in PREPARATION for f in stack):
            self.prepared.add(file)
            return
        self.files.add(file)
        if len(names) > len(self.deepest):
            self.deepest = names


def _is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(SOURCE) and code.co_name not in (*INLINE, "<module>")


def trace(*arguments: str) -> Way:
    way = Way()
    way.watch(lambda: main(["match", *arguments]))
    return way


@pytest.mark.parametrize(("backend", "most_files"), [("torch", 16), ("onnx", 11)])
def test_the_way_of_a_pair_is_short(
    backend: str, most_files: int, exported_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_scene(tmp_path, [7, 12]))
    weights = "tiny.safetensors" if backend == "torch" else str(exported_folder)
    common = ("--keypoints", "points.json", "--device", "cpu", "--backend", backend, "--weights", weights)
    trace("0.png", "1.png", *common)  # imports on the way
    way = trace("0.png", "1.png", *common)
    assert len(way.files) <= most_files, sorted(way.files)
    assert len(way.deepest) <= 8, way.deepest
    assert len(way.files | way.prepared) <= most_files + 4, sorted(way.prepared - way.files)


def test_the_script_sees_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the bars above would hold of nothing."""
    monkeypatch.chdir(write_scene(tmp_path, [7, 12]))
    way = trace("0.png", "1.png", "--keypoints", "points.json", "--device", "cpu", "--weights", "tiny.safetensors")
    assert {"commands/match.py", "matching/decoding.py", "model/spline.py", "model/transformer.py"} <= way.files
    assert {"weights/__init__.py", "config/network.py"} <= way.prepared
    assert way.deepest[0].endswith(": main")
    assert inspect.getsourcefile(main) == str(Path(SOURCE) / way.deepest[0].split(":")[0])


if __name__ == "__main__":
    seen = trace(*sys.argv[1:])
    print(f"{len(seen.files)} files on the way:", *sorted(seen.files), sep="\n  ")
    print("before it, to parse the arguments and to open the network:", *sorted(seen.prepared - seen.files), sep="\n  ")
    print(f"{len(seen.deepest)} frames:", *seen.deepest, sep="\n  ")
