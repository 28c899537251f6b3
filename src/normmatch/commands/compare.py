"""`normmatch compare`: the same landmarks set twice."""

from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from normmatch.config import Vertical
from normmatch.errors import InputError


def compare(
    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="A B ...")],
    *,
    photographs: Annotated[Path | None, arg(metavar="DIR")] = None,
    join: Literal["name", "order"] = "name",
    json: Annotated[Path | None, arg(metavar="FILE")] = None,
    plot: Annotated[Path | None, arg(metavar="FILE")] = None,
    y: Vertical = "file",
    overwrite: bool = False,
) -> None:
    """Compare landmarks that several people, or a person and a program, set on the same photographs.

    normmatch compare anna.tps ben.tps --photographs photographs --plot differences.png

    For each landmark the mean distance, in pixels, as a share of the object and in millimetres where there is a scale;
    bias apart from scatter; and people against themselves, where a file has a photograph several times.

    Args:
        files: keypoints files of any format, or folders of such
        photographs: the folder of the photographs, where they are needed for y
        join: take landmarks of the same name for the same, or those in the same place of the order
        json: write the numbers to this file
        plot: draw the differences on the mean shape
        y: from where y counts, if it is not as the formats say
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch import annotations
    from normmatch.annotations import comparison
    from normmatch.annotations.reading import Reading
    from normmatch.outputs import check_outputs, words_apart, write_json, writing

    if not files:
        raise InputError("There is no file to compare; expected at least two, or one with repeated photographs.")
    check_outputs({"--json": json, "--plot": plot}, files, overwrite)
    sets = [annotations.read(file, how=Reading(photographs, y=y), turned=False) for file in files]
    found = comparison.compare(sets, join)
    if not found:
        raise InputError(f"{files[0]} has every photograph once; expected a second file to compare it with.")
    with words_apart(json):
        for who, differences in found.items():
            _show(who, differences, list(comparison.rows_of(differences)))
        if json:
            rows: dict[str, Any] = {who: list(comparison.rows_of(differences)) for who, differences in found.items()}
            with writing(json):
                write_json(json, {"files": [str(file) for file in files], **rows})
        if plot:
            with writing(plot):
                comparison.draw(plot, found.get("others") or found["themselves"])


def _show(who: str, differences: Any, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*(column.replace("_", " ") for column in columns), title=f"against {who}")
    for row in rows:
        table.add_row(*(_cell(key, row.get(key, "")) for key in columns))
    Console(markup=False, highlight=False).print(table)
    if differences.badly_defined:
        print(f"Badly defined, by their scatter: {', '.join(differences.badly_defined)}")


def _cell(key: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if key in ("pixels", "mm") else f"{value:.{1 if key.startswith('within') else 2}%}"
