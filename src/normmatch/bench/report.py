"""Results of a benchmark as JSON, Markdown and a plot, with where and when and from which code they come."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from normmatch import __version__
from normmatch.io import whole_file, write_json

Row = dict[str, Any]


def environment(device: torch.device) -> dict[str, Any]:
    """Commit, date, hardware and software; the commit is unknown outside of a checkout."""
    return {
        "normmatch": __version__,
        "commit": _commit(),
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + (" with changes" if changed.stdout.strip() else "")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def markdown(rows: Sequence[Row], where: dict[str, Any]) -> str:
    """Tables: what a user feels first, then each curve."""
    lines = [
        f"{where['device']} ({where['cores']} cores, {where['threads']} threads), torch {where['torch']}, "
        f"commit {where['commit']}, {where['date']}. Milliseconds a pair: median (10 % to 90 %); the ratio is to the "
        "plain network (eager, float32) in the same process.",
    ]
    for preset in dict.fromkeys(row["preset"] for row in rows):
        own = [row for row in rows if row["preset"] == preset]
        lines += ["", f"### {preset}", "", *_table(own)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| variant | what | points | batch | ms a pair | pairs/s | ratio | memory, MB | same matches |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return [*lines, *map(line, rows)]


def line(row: Row) -> str:
    """A row of the table."""
    same = "" if row.get("agreement") is None else f"{100 * row['agreement']:.0f} %"
    busy = "" if row.get("gpu_busy") is None else f" (GPU {100 * row['gpu_busy']:.0f} % busy)"
    return (
        f"| {row['variant']} | {row['what']}{busy} | {row['points']:,} | {row['batch']:,} "
        f"| {row['ms']:.3g} ({row['low']:.3g} to {row['high']:.3g}) | {row['pairs_per_second']:,.4g} "
        f"| {_number(row.get('ratio'))} | {_number(row.get('memory_mb'))} | {same} |"
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3g}"


def plot(rows: Sequence[Row], path: Path) -> None:
    """Milliseconds over keypoints, and pairs a second over the batch, a line for each way to run each network."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, what, x, y in ((axes[0], "head", "points", "ms"), (axes[1], "batch", "batch", "pairs_per_second")):
        for name, curve in _curves(rows, what, x).items():
            axis.plot([row[x] for row in curve], [row[y] for row in curve], marker="o", label=name)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(alpha=0.3)
    axes[0].set(xlabel="keypoints an image", ylabel="milliseconds, head alone")
    axes[1].set(xlabel="pairs at a time", ylabel="pairs a second, images to matches")
    axes[1].legend(fontsize=8)
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=120)


def _curves(rows: Sequence[Row], what: str, x: str) -> dict[str, list[Row]]:
    """The rows of each curve by its name, from left to right in whatever order they were measured."""
    curves: dict[str, list[Row]] = {}
    for row in sorted((row for row in rows if row["what"] == what), key=lambda row: row[x]):
        curves.setdefault(f"{row['preset']}, {row['variant']}", []).append(row)
    return curves


def write(rows: Sequence[Row], where: dict[str, Any], out: Path) -> None:
    """Leave speed.json and speed.md in a folder."""
    write_json(out / "speed.json", {"environment": where, "rows": list(rows)})
    with whole_file(out / "speed.md") as file:
        file.write_text(markdown(rows, where), encoding="utf-8")
