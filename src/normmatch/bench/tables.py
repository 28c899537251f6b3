"""The figures of a benchmark as tables, files and a plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from normmatch import viz
from normmatch.bench.timing import Row
from normmatch.evaluation.tables import Table, origin, percent, write_markdown
from normmatch.extras import require
from normmatch.outputs import write_json, writing

COLUMNS = ("variant", "what", "points", "batch", "ms a pair", "pairs/s", "ratio", "memory, MB", "same matches")
NOTE = "median (10 % to 90 %); the ratio is to the plain network (eager, float32) in the same process"


def make_tables(rows: Sequence[Row], made_with: Mapping[str, str]) -> list[Table]:
    """A table for each preset, with where the figures come from."""
    notes = [NOTE, origin(made_with)]
    presets = dict.fromkeys(row["preset"] for row in rows)
    return [Table(name, COLUMNS, [cells(row) for row in rows if row["preset"] == name], notes) for name in presets]


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table."""
    busy = "" if row.get("gpu_busy") is None else f" (GPU {percent(row['gpu_busy'], 0)} % busy)"
    same = "" if row.get("agreement") is None else f"{percent(row['agreement'], 0)} %"
    time = f"{row['ms']:.3g} ({row['low']:.3g} to {row['high']:.3g})"
    more = ("" if row.get(key) is None else f"{row[key]:,.3g}" for key in ("ratio", "memory_mb"))
    counts = f"{row['points']:,}", f"{row['batch']:,}"
    return row["variant"], row["what"] + busy, *counts, time, f"{row['pairs_per_second']:,.4g}", *more, same


def output_files(out: Path | None, name: str) -> list[Path]:
    """What `write` and `plot` leave in a folder."""
    endings = (".json", ".md", ".png") if name == "speed" else (".json", ".md")
    return [out / f"{name}{ending}" for ending in endings] if out else []


def write(rows: Sequence[Row], made_with: Mapping[str, str], out: Path, name: str) -> None:
    """Leave NAME.json and NAME.md in a folder."""
    with writing(out):
        write_json(out / f"{name}.json", {"made_with": dict(made_with), "rows": list(rows)})
        write_markdown(out / f"{name}.md", make_tables(rows, made_with))


def plot(rows: Sequence[Row], path: Path) -> None:
    """Milliseconds over keypoints, and pairs per second over the batch, a line for each way to run each network."""
    require("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, what, x, y in ((axes[0], "head", "points", "ms"), (axes[1], "batch", "batch", "pairs_per_second")):
        for name, curve in curves(rows, what, x).items():
            axis.plot([row[x] for row in curve], [row[y] for row in curve], marker="o", label=name)
        axis.set(xscale="log", yscale="log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(alpha=0.3)
    axes[0].set(xlabel="keypoints per image", ylabel="milliseconds, head alone")
    axes[1].set(xlabel="pairs at a time", ylabel="pairs per second, images to matches")
    axes[1].legend(fontsize=8)
    viz.save_plot(figure, path, dpi=120)


def curves(rows: Sequence[Row], what: str, x: str) -> dict[str, list[Row]]:
    """The rows of each curve by its name, from left to right in whatever order they were measured."""
    found: dict[str, list[Row]] = {}
    for row in sorted((row for row in rows if row["what"] == what), key=lambda row: row[x]):
        found.setdefault(f"{row['preset']}, {row['variant']}", []).append(row)
    return found
