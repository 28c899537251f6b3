"""A table that can be printed and written as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Sheet:
    """A table: words in the first column, numbers in the others; the last row may sum up."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)
    sums_up: bool = False


def print_sheet(sheet: Sheet, console: Console | None = None) -> None:
    """Print a table with its notes below."""
    console = console or Console()
    console.print(f"\n{sheet.title}", style="bold", markup=False, highlight=False, soft_wrap=True)
    table = Table()
    for number, column in enumerate(sheet.columns):
        table.add_column(escape(column), justify="right" if number else "left", overflow="fold")
    for number, row in enumerate(sheet.rows, start=1):
        table.add_row(*map(escape, row), end_section=sheet.sums_up and number == len(sheet.rows) - 1)
    console.print(table)
    for note in sheet.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def to_markdown(sheets: Sequence[Sheet]) -> str:
    """The tables as a document."""
    parts = []
    for sheet in sheets:
        rows = [*sheet.rows]
        if sheet.sums_up:
            rows[-1] = tuple(f"**{cell}**" if cell else "" for cell in rows[-1])
        align = ["---", *["---:"] * (len(sheet.columns) - 1)]
        lines = [_line(sheet.columns), _line(align), *map(_line, rows)]
        parts.append("\n".join([f"### {sheet.title}", "", *lines, *(f"\n{note}" for note in sheet.notes)]))
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def percent(share: float, digits: int = 1) -> str:
    """A share of one in per cent."""
    return f"{100 * share:.{digits}f}"
