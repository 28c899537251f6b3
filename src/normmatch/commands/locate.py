"""`normmatch locate`: annotate one photograph, find the landmarks in all others."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from normmatch.config import Format, LocateOptions

if TYPE_CHECKING:
    from normmatch.matching.located_files import Summary

SHOWN = 3  # photographs that a message names
ROWS = 10  # photographs that need a look, on the terminal


def locate(
    reference: Annotated[Positional[Path], arg(metavar="REFERENCE")],
    photographs: Annotated[Positional[tuple[Path, ...]], arg(metavar="PHOTO ...", help_behavior_hint="")],
    *,
    out: Annotated[Path, arg(metavar="DIR")] = Path("located"),
    options: Annotated[LocateOptions, arg(name="")] = LocateOptions(),  # noqa: B008 - frozen
    boxes: Annotated[Path | None, arg(metavar="FILE")] = None,
    format: Format = "coco",
    pictures: int = 100,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    overwrite: bool = False,
) -> None:
    """Find the landmarks of annotated photographs in others, of any kind of thing, and say how sure each is.

    normmatch locate reference.json photographs/ --out located

    REFERENCE is a keypoints file with one annotated photograph or a few, the more the better; nothing is trained. The
    folder gets located.json, which labelling tools open, table.csv, and pictures of the photographs that need a look.
    If it breaks off, the same command goes on where it stopped.

    Args:
        reference: a keypoints file of any format that `normmatch convert` reads; the photographs lie beside it
        photographs: files, folders, patterns such as "wings/*.jpg", or .txt files with a photograph a line
        out: the folder for the results
        options: how landmarks are located
        boxes: a keypoints file with boxes around the objects, for photographs that show several
        format: of the file with all landmarks
        pictures: how many photographs are drawn, the least sure first
        engine: local, or ray for all machines of a Ray cluster, which must see the photographs
        workers: with --engine ray, how many processes; one for each core or GPU if not given
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.matching.locate_list import locate_list

    summary = locate_list(
        reference, photographs, out, options, boxes=boxes, format=format, pictures=pictures, engine=engine,
        workers=workers, overwrite=overwrite,
    )  # fmt: skip
    print_summary(summary, out)


def print_summary(summary: "Summary", out: Path) -> None:
    """Tell people what was found, and where to look."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    many = "s" * (summary.located != 1)
    words = f"{summary.landmarks:,} landmarks of {summary.located:,} photograph{many} are in {summary.file}"
    print(f"{words}; {summary.sure:,} of {summary.landmarks * summary.located:,} are more likely right than not")
    if summary.unsure:
        table = Table(title="the photographs that most need a look")
        for column in ("photograph", "certainty", "unsure landmarks"):
            table.add_column(column, justify="left" if column == "photograph" else "right")
        for name, certainty, count in summary.unsure[:ROWS]:
            table.add_row(escape(Path(name).name), f"{certainty:.2f}", f"{count} of {summary.landmarks}")
        Console(file=sys.stdout).print(table)
        more = len(summary.unsure) - ROWS
        print(f"{f'... and {more:,} more; ' if more > 0 else ''}all are in {out / 'table.csv'}, the least sure first")
    if summary.advice:
        warnings.warn(summary.advice, stacklevel=2)
    if summary.failed:
        some = "; ".join(record["error"] for record in summary.failed[:SHOWN])
        warnings.warn(
            f"{len(summary.failed):,} photographs could not be read, see {out / 'failed.jsonl'}: {some}", stacklevel=2
        )
