"""Whatever is typed ends in exit code 0, 1 or 2 without a trace, and no file that was there is changed."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import run
from tests.fuzz import values
from tests.fuzz.test_api import CASES, LONGEST, PARTS, SEED
from tests.matching.scene import write_scene

FILES = (
    "0.png",
    "1.png",
    "points.json",
    "tiny.safetensors",
    "pairs.csv",
    "notes.txt",
    "empty",
    "missing.png",
    "sub",
    ".",
    "-",
    "-dash.jpg",
    "",
)
OUTPUTS = (
    "out/a.png",
    "out/a.json",
    "0.png",
    "./points.json",
    "sub/../tiny.safetensors",
    "link.png",
    "notes.txt",
    "sub",
    "out/a.md",
    "pairs.csv",
    "/dev/null",
    "",
    "a" * 300,
)
TINY = ("--weights", "tiny.safetensors", "--device", "cpu")


def command(rng: np.random.Generator) -> list[str]:
    """A command line, good in most parts."""
    file = lambda: str(rng.choice(FILES))
    out = lambda: str(rng.choice(OUTPUTS))
    odd = lambda: str(values.odd_name(rng)).replace("\0", "")
    number = lambda: str(
        values.pick(rng, ["0", "1", "-3", "0.5", "nan", "inf", "1e999", "abc", "", "1_0", "9" * 50, "1e-300"])
    )
    device = lambda: str(values.pick(rng, ["meta", "cpu", "cpu:0", "cuda:99", "auto", "xla", odd]))
    more = {
        "match": [("--keypoints", file), ("--keypoints1", file), ("--out", out), ("--json", out), ("--min-score", number), ("--out-dir", out),
                  ("--pairs", file), ("--device", device), ("--weights", file), ("--workers", number), ("--format", odd), ("--backend", odd), ("--box0", number),
                  ("--one-to-one", lambda: ""), ("--engine", odd)],
        "propagate": [("--candidates", file), ("--out", out), ("--min-score", number), ("--weights", file)],
        "eval": [("--root", file), ("--json", out), ("--markdown", out), ("--pairs", number), ("--out", out), ("--seed", number)],
        "data": [("--root", file), ("--out", out), ("--size", number), ("--archives", file)],
        "export": [("--out", out), ("--format", odd)],
        "train": [("--model.dim", number), ("--steps", number), ("--lr", number), ("--init", file), ("--data.root", file), ("--data.workers", number),
                  ("--model.backbone", odd), ("--augment.scale", number), ("--loss.temperature", number), ("--accelerator", odd), ("--seed", number)],
        "samples": [("--out", out), ("--copy-to", out), ("--device", device), ("--weights", file)],
        "bench": [("--root", file), ("--out", out), ("--points", number), ("--seconds", number), ("--workers", number)],
        "ablate": [("--out", out), ("--data.root", file), ("--steps", number)],
        "quickstart": [("--out", file), ("--steps", number)],
    }  # fmt: skip
    name = str(rng.choice(list(more)))
    base = {
        "match": lambda: ["match", "0.png", "1.png", "--keypoints", "points.json", *TINY],
        "propagate": lambda: ["propagate", "points.json", ".", "--candidates", "points.json", *TINY],
        "eval": lambda: ["eval", "tiny.safetensors", str(rng.choice(["folder", "pascal-voc", "nothing"]))],
        "data": lambda: ["data", str(rng.choice(["check", "prepare"])), "folder", "--root", "."],
        "export": lambda: ["export", file(), "--out", out()],
        "train": lambda: [
            "train",
            str(rng.choice(["tiny", "small", "none"])),
            "--out",
            "out/run",
            "--data.names",
            "folder",
            "--data.root",
            "sub",
        ],
        "samples": lambda: ["samples", *TINY],
        "bench": lambda: ["bench", str(rng.choice(["model", "train", "data", "x"])), "folder", "--preset", odd()],
        "ablate": lambda: ["ablate", "nothing", odd()],
        "quickstart": lambda: ["quickstart", "nothing", odd()],
    }[name]()
    for k in rng.choice(len(more[name]), min(len(more[name]), int(rng.integers(1, 4))), replace=False):
        option, value = more[name][int(k)]
        base += [option, value()]
    if rng.random() < 0.3:
        base[int(rng.integers(1, len(base)))] = str(values.pick(rng, [file, odd, number]))
    return base


def fingerprints(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] not in ("out", "prepared")
    }


@pytest.mark.parametrize("part", range(PARTS))
def test_command_lines(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_scene(tmp_path, [3, 4]))
    Path("pairs.csv").write_text("image0,image1\n0.png,1.png\n")
    Path("notes.txt").write_text("mine\n")
    Path("empty").touch()
    Path("sub").mkdir()
    Path("link.png").symlink_to("0.png")
    Path("-dash.jpg").write_bytes(Path("0.png").read_bytes())
    before = fingerprints(tmp_path)
    caught = []  # all that went wrong, not the first alone
    for case in range(part, CASES // 3, PARTS):
        arguments = command(np.random.default_rng((SEED, 10, case)))
        code, out, err = run(capsys, *arguments)
        if complaint := wrong(code, out, err):
            caught.append(f"case {case}: {arguments}: {complaint}")
        after = fingerprints(tmp_path)
        if changed := [key for key in before if after.get(key) != before[key]]:
            pytest.fail("\n".join([*caught, f"case {case}: {arguments} changed {changed}"]))
        for new in after.keys() - before.keys():
            os.unlink(tmp_path / new)
    assert not caught, "\n".join([f"{len(caught)} command lines", *caught])


def wrong(code: int, out: str, err: str) -> str:
    """What is wrong with how a command ended; nothing if it is as it should be."""
    said = [line for line in err.splitlines() if line.strip()]
    if code not in (0, 1, 2) or "Traceback" in err + out:
        return f"exit code {code}, {err[-300:]}"
    if code and not said:
        return f"exit code {code} without a word"
    if code == 2 and not err.lstrip().startswith("╭") and max(map(len, said)) > LONGEST:  # the parser draws a box
        return f"a line of {max(map(len, said))} characters"
    return ""
