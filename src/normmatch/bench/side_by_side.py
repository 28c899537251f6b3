"""Measure methods of `peers.py` on the same pairs: what is right, in what time, with how much memory and disk.

Each row is measured in a process of its own, so that its memory is its own.
"""

import contextlib
import importlib.metadata
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from scipy.optimize import linear_sum_assignment

from normmatch.bench.peers import BACKBONE_SIZE, RULE, Problem, methods
from normmatch.evaluation.tables import Table, origin, percent

DRAWS = 1000  # of the bootstrap
COLUMNS = {
    "arg-max": "given, arg-max", "one-to-one": "given, one-to-one", "spair-71k located": "located within a tenth",
    "hpatches located": "HPatches within 3 px",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A method's figures, shares with the bootstrap's standard error."""

    name: str
    figures: Mapping[str, tuple[float, float]]
    seconds: float  # a pair, both images read and answered, the median
    seconds_located: float  # the same with the places
    memory_mb: float | None  # the most that the process held
    installed_mb: float  # what it needs on disk beside torch


def bench_peers(
    problems: Sequence[Problem], names: Sequence[str], weights: str, backbone_weights: str, seed: int
) -> Iterator[Row]:
    """A row of each method, each in a process of its own."""
    for name in names:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            yield process.submit(measure, name, problems, weights, backbone_weights, seed).result()


@torch.inference_mode()
def measure(name: str, problems: Sequence[Problem], weights: str, backbone_weights: str, seed: int) -> Row:
    """One method's answers to all pairs."""
    package, make = methods(weights, backbone_weights)[name]
    method = make()
    method(problems[0]).places()  # the first call is slower
    rights: dict[str, list[tuple[int, int]]] = {}
    seconds = []
    for problem in track(problems, name, transient=True, disable=not sys.stderr.isatty()):
        begun = time.perf_counter()
        answer = method(problem)
        answered = time.perf_counter()
        places = answer.places()
        seconds.append((answered - begun, time.perf_counter() - begun))
        count = len(problem.partner)
        away = np.linalg.norm(places - problem.points[1][problem.partner], axis=1)
        rights.setdefault(f"{problem.benchmark} located", []).append((int((away <= problem.limit).sum()), count))
        if problem.benchmark == "spair-71k":
            best = answer.costs.argmin(1), linear_sum_assignment(answer.costs)[1]
            for key, column in zip(("arg-max", "one-to-one"), best, strict=True):
                rights.setdefault(key, []).append((int((column == problem.partner).sum()), count))
    figures = {key: bootstrap(np.array(pairs), seed) for key, pairs in rights.items()}
    once, both = np.median(seconds, 0)
    return Row(name, figures, float(once), float(both), peak_memory(), installed(package) if package else 0.0)


def bootstrap(pairs: np.ndarray, seed: int) -> tuple[float, float]:
    """The share of right points of pairs (P, 2), right and all, and its standard error over draws of the pairs."""
    drawn = pairs[np.random.default_rng(seed).integers(len(pairs), size=(DRAWS, len(pairs)))].sum(1)  # (DRAWS, 2)
    return float(pairs[:, 0].sum() / pairs[:, 1].sum()), float((drawn[:, 0] / drawn[:, 1]).std())


def peak_memory() -> float | None:
    """The most MB that this process has held; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def installed(packages: str) -> float:
    """MB on disk of packages and all that they need, beside torch and what torch needs."""
    names = set().union(*map(_closure, packages.split())) - _closure("torch") - _closure("numpy")
    files = {Path(file.locate()) for name in names for file in importlib.metadata.files(name) or ()}
    if "normmatch" in names:
        files |= set(Path(__file__).parents[1].rglob("*"))  # where it is installed as a link to its source
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def _closure(package: str) -> set[str]:
    """The installed packages that one needs, itself included, without its extras."""
    found: set[str] = set()
    wanted = [package]
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if name not in found:
                needs = importlib.metadata.requires(name) or []
                wanted += [re.split(r"[^\w.-]", need)[0] for need in needs if "extra ==" not in need]
                found.add(name)
    return found


def make_table(rows: Sequence[Row], problems: Sequence[Problem], made: Mapping[str, str]) -> Table:
    """All figures in per cent, with their errors, and the rule."""
    lines = []
    for row in rows:
        figures = (row.figures.get(key) for key in COLUMNS)
        cells = ["" if pair is None else " ± ".join(map(percent, pair)) for pair in figures]
        memory = "" if row.memory_mb is None else f"{row.memory_mb:,.0f}"
        times = f"{row.seconds:.2f}", f"{row.seconds_located:.2f}"
        lines.append((row.name, *cells, *times, memory, f"{row.installed_mb:,.0f}"))
    counts = [f"{sum(p.benchmark == name for p in problems)} of {name}" for name in ("spair-71k", "hpatches")]
    notes = [
        f"pairs: {' and '.join(counts)}; ± is the bootstrap's standard error over pairs",
        RULE,
        "HPatches: the same flat scene seen twice, no candidates given, which is what detectors are made for",
        f"the plain backbone is read at {BACKBONE_SIZE} px; MB installed are beside torch",
        origin(made),
    ]
    columns = ("", *COLUMNS.values(), "s a pair", "with places", "MB held", "MB installed")
    return Table("the same pairs by other means, in %", columns, lines, notes)


def as_json(rows: Sequence[Row], problems: Sequence[Problem], seed: int, made: Mapping[str, str]) -> dict[str, Any]:
    """Everything in the table, and the rule."""
    about = {"made_with": dict(made), "seed": seed, "pairs": len(problems), "rule": RULE}
    return about | {"rows": list(map(asdict, rows))}
