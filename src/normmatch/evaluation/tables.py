"""Tables that can be printed and written as Markdown: the type, and the tables of an evaluation's report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich import table as rich_table
from rich.console import Console
from rich.markup import escape

from normmatch.evaluation.floor import NOTE, ONE_TO_ONE, POSITION
from normmatch.evaluation.published import HPATCHES, JITTER, MEAN, published_rows
from normmatch.evaluation.score import SAME, Result
from normmatch.outputs import MADE_BY, write_text

AS_PRINTED = "as printed in the paper, each under its own authors' rules, with its best epoch chosen on the test set"
F1_COLUMNS = ("precision", "recall", "F1")


@dataclass(frozen=True)
class Table:
    """Words in the first column, numbers in the others; the last row may sum up."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)
    sums_up: bool = False


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table with its notes below."""
    console = console or Console()
    console.print(f"\n{table.title}", style="bold", markup=False, highlight=False, soft_wrap=True)
    lines = rich_table.Table()
    for number, column in enumerate(table.columns):
        lines.add_column(escape(column), justify="right" if number else "left", overflow="fold")
    for number, row in enumerate(table.rows, start=1):
        lines.add_row(*map(escape, row), end_section=table.sums_up and number == len(table.rows) - 1)
    console.print(lines)
    for note in table.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def to_markdown(tables: Sequence[Table]) -> str:
    """The tables as a document."""
    parts = []
    for table in tables:
        rows = [*table.rows]
        if table.sums_up:
            rows[-1] = tuple(f"**{cell}**" if cell else "" for cell in rows[-1])
        align = ["---", *["---:"] * (len(table.columns) - 1)]
        lines = [_line(table.columns), _line(align), *map(_line, rows)]
        parts.append("\n".join([f"### {table.title}", "", *lines, *(f"\n{note}" for note in table.notes)]))
    return "\n\n".join(parts) + "\n"


def write_markdown(path: Path, tables: Sequence[Table]) -> None:
    """Write the tables as a document that says who made it."""
    write_text(path, f"{to_markdown(tables)}\n<!-- made by {MADE_BY} -->\n")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def percent(share: float, digits: int = 1) -> str:
    """A share from 0 to 1 in per cent."""
    return f"{100 * share:.{digits}f}"


def origin(made_with: Mapping[str, str]) -> str:
    """What `provenance.made_with` found, in one line to stand below a table."""
    version = f"normmatch {made_with['normmatch']}" + (f" ({made_with['commit']})" if made_with["commit"] else "")
    return (
        f"{version}, torch {made_with['torch']}, {made_with['hardware']}, {made_with['date']}: {made_with['command']}"
    )


# ---- the tables of a report, see `score.make_report` ----


def make_tables(report: Result) -> list[Table]:
    """The tables of a report; every protocol has its own."""
    tables = []
    for summary in report["summary"]:
        noisy = [s for s in report["summary"] if "drop" in s and all(s[key] == summary[key] for key in SAME)]
        tables += [] if "drop" in summary else [accuracy_table(summary), *([jitter_table(noisy)] if noisy else [])]
    for result in report["results"]:
        tables += [mma_table(result)] if "mma" in result else []
        tables += [f1_table(result)] if "f1" in result else []
    tables += map(calibration_table, report["calibrations"])
    if report["results"] and report["results"][0].get("made_with"):
        tables[-1].notes.append(origin(report["results"][0]["made_with"]))
    return tables


def accuracy_table(summary: Result) -> Table:
    """Accuracy per class in per cent, beside the published rows that may stand there."""
    runs = len(summary["weights"])
    published = {} if summary["gray"] else published_rows(summary["dataset"], summary["protocol"])
    floor_of = summary["floor"]
    rows = []
    for label, values in {**summary["classes"], MEAN: (summary["mean"], summary["deviation"])}.items():
        ours = [percent(value, 2 if label == MEAN else 1) for value in values]  # mean and deviation
        theirs = [f"{row[label]:.1f}" if label in row else "" for row in published.values()]
        floors = [percent(floor["mean"] if label == MEAN else floor["classes"][label]) for floor in floor_of.values()]
        rows.append((label, *(ours if runs > 1 else ours[:1]), *theirs, *floors))
    ours = [f"ours, mean of {runs}", "deviation"] if runs > 1 else ["ours"]
    notes = [f"weights: {', '.join(summary['weights'])}"]
    close = ", ".join(f"{percent(mean)} at {share}" for share, (mean, _) in summary["pck"].items())
    notes.append(f"matched to within a share of crop 1's longer side (PCK): {close}")
    guessed = ", ".join(f"{percent(mean)} at {share}" for share, mean in floor_of[POSITION]["pck"].items())
    notes.append(f"{NOTE}; PCK of position: {guessed}")
    if summary["left_out"]:
        notes.append(f"no pair to evaluate in {', '.join(summary['left_out'])}, so the mean is without")
    if published:
        notes.append(f"{', '.join(published)}: {AS_PRINTED}")
    return Table(
        f"accuracy in %: {_title(summary)}", ("class", *ours, *published, *floor_of), rows, notes, sums_up=True
    )


def jitter_table(levels: Sequence[Result]) -> Table:
    """What noise on the keypoints costs, beside what it costs the paper."""
    first = levels[0]
    paper = JITTER if (first["dataset"], first["protocol"]) == ("pascal-voc", "nmt") else {}
    rows = []
    for level in levels:
        spread = f" ± {percent(level['deviation'], 2)}" if len(level["weights"]) > 1 else ""
        published = f"{paper[level['jitter']]:.2f}" if level["jitter"] in paper else ""
        cells = [f"{level['jitter']:g} px", percent(level["mean"], 2) + spread, percent(level["drop"], 2)]
        floors = [percent(floor["mean"]) for floor in level["floor"].values()]
        rows.append((*cells, *([published] if paper else []), *floors))
    columns = ("jitter", "accuracy", "drop", *(("the paper's drop",) if paper else ()), *first["floor"])
    return Table(f"noise on the keypoints, in points of %: {_title(first | {'jitter': 0})}", columns, rows)


def mma_table(result: Result) -> Table:
    """Mean matching accuracy on HPatches, by threshold in pixels of the images."""
    kinds = ("viewpoint", "illumination", "overall")
    rows = []
    for pixels, found in result["mma"].items():
        paper = HPATCHES[int(pixels)]
        floor = result["floor"][ONE_TO_ONE]["mma"][pixels]
        cells = [
            (*(percent(shares[kind], 2) if kind in shares else "" for shares in (found, floor)), f"{paper[kind]:.2f}")
            for kind in kinds
        ]
        rows.append((f"{pixels} px", *(cell for triple in cells for cell in triple)))
    columns = ("within", *(word for kind in kinds for word in (kind, ONE_TO_ONE, "the paper's")))
    notes = [
        "mean over image pairs; a point may be matched with the true places of the grid's points only, so this says "
        f"little about finding places: position alone, no point used twice, has the column {ONE_TO_ONE}",
        f"weights: {result['weights']}",
    ]
    return Table(f"mean matching accuracy in %: {_title(result)}", columns, rows, notes)


def f1_table(result: Result) -> Table:
    """Precision, recall and F1 per class."""
    f1 = result["f1"]
    floor = result["floor"][ONE_TO_ONE]["f1"]
    guessed = {**floor["classes"], MEAN: floor["mean"]}
    scored = {**f1["classes"], MEAN: f1["mean"]}
    rows = [(label, *map(percent, row.values()), percent(guessed[label]["f1"])) for label, row in scored.items()]
    title = f"matches with a score of {f1['threshold']:g} or more, in %: {_title(result)}"
    notes = [f"weights: {result['weights']}", f"F1, {ONE_TO_ONE}: of points matched by position, none used twice"]
    return Table(title, ("class", *F1_COLUMNS, f"F1, {ONE_TO_ONE}"), rows, notes, sums_up=True)


def calibration_table(found: Result) -> Table:
    """What the calibrated threshold does."""
    rows = []
    ways = (
        ("position alone, 1 to 1", "floor"),
        ("no threshold", "without"),
        (f"score {found['threshold']:g} or more", "with"),
    )
    for words, key in ways:
        for split, result in found[key].items():
            rows.append((f"{split}, {words}", *map(percent, result["mean"].values())))
    title = f"calibration of {found['weights']}, in %: protocol {found['protocol']}, {found['sampling']} points"
    errors = [f"{split} {percent(a)} -> {percent(b)}" for split, (a, b) in found["calibration_error"].items()]
    note = (
        f"min_score {found['threshold']:g} is in the weights file now, and what makes probabilities of scores: their "
    )
    note += f"calibration error is {', '.join(errors)}"
    return Table(title, ("split", *F1_COLUMNS), rows, [note])


def _title(result: Result) -> str:
    """Which pairs, read how."""
    parts = [
        f"{result['dataset']} {result['split']}, protocol {result['protocol']}, {result['pairs']:,} pairs",
        "" if result["sampling"] == "intersection" else f"{result['sampling']} points",
        "gray pictures" if result["gray"] else "",
        f"jitter {result['jitter']:g} px" if result["jitter"] else "",
    ]
    return ", ".join(filter(None, parts))
