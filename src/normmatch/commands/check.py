"""`normmatch check`: what looks wrong in labels."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from normmatch.checks import check_number
from normmatch.config import Vertical

Fail = Literal[
    "nothing", "anything", "slip", "exchanged", "left and right", "shifted", "mirrored", "upside down", "scale",
    "outside", "same place", "missing",
]  # fmt: skip


def check(
    labels: Annotated[Positional[Path], arg(metavar="LABELS")],
    *,
    photographs: Annotated[Path | None, arg(metavar="DIR")] = None,
    top: int = 20,
    certainty: float = 0.5,
    json: Annotated[Path | None, arg(metavar="FILE")] = None,
    sheet: Annotated[Path | None, arg(metavar="FILE")] = None,
    write: Annotated[Path | None, arg(metavar="FIXED")] = None,
    fail_on: tuple[Fail, ...] = ("nothing",),
    y: Vertical = "file",
    overwrite: bool = False,
) -> None:
    """Find slips, exchanged names, shifted orders and mirrored photographs in labels of any format.

    normmatch check beetles.tps --photographs photographs --sheet suspicions.png

    Each landmark is expected by the others of its object and by objects alike; what is far from there, or fits far
    better otherwise, is listed, the worst first. No file is changed.

    Args:
        labels: a keypoints file of any format, a folder of such, or a label project
        photographs: their folder, if they are not beside the labels
        top: lines of the table
        certainty: from which on a suspicion is told
        json: write all suspicions to this file
        sheet: write crops of the worst ones to this PNG, with two good examples each
        write: write the labels with exchanges and shifts undone, but no slips, in the format of the ending
        fail_on: end with exit status 1 if there are suspicions of these kinds
        y: from where y counts, if it is not as the format says
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch import annotations
    from normmatch.annotations.evidence import draw_sheet
    from normmatch.annotations.formats import Photographs, with_sizes
    from normmatch.annotations.reading import Reading
    from normmatch.annotations.suspicions import corrected, suspect
    from normmatch.outputs import check_outputs, words_apart, write_json, writing

    check_number(certainty, "--certainty", 0, 1, "a probability")
    check_outputs({"--json": json, "--sheet": sheet, "--write": write}, [labels], overwrite)
    folder = Photographs(labels if labels.is_dir() else labels.parent, photographs)
    items = with_sizes(annotations.read(labels, how=Reading(photographs, y=y), turned=False), folder)
    found = suspect(items)
    told = [one for one in found.suspicions if one.certainty >= certainty]
    with words_apart(json):
        _show(items, told, found.notes, top)
        if json:
            with writing(json):
                write_json(
                    json,
                    {"labels": str(labels), "notes": found.notes, "suspicions": [_as_json(items, s) for s in told]},
                )
        if sheet:
            with writing(sheet):
                print(f"The worst {draw_sheet(sheet, items, found, folder)} are in {sheet}")
        if write:
            fixed, changed = corrected(items, found)
            with writing(write):
                annotations.write(write, fixed, images=photographs)
            print(f"{write} has the labels with {changed} objects corrected")
    if any(one.kind in fail_on or "anything" in fail_on for one in told):
        sys.exit(1)


def _as_json(items: Any, one: Any) -> dict[str, Any]:
    item = items[one.item]
    about = {
        "image": item.image,
        "object": item.object,
        "source": item.source,
        "kind": one.kind,
        "landmarks": one.landmarks,
    }
    return about | {"certainty": round(one.certainty, 4), "why": one.why, "expected": one.expected}


def _show(items: Any, told: Any, notes: Any, top: int) -> None:
    from rich.console import Console
    from rich.table import Table

    points = sum(len(item.names) for item in items)
    print(f"{len(told)} suspicions in {points:,} landmarks of {len(items):,} objects")
    if told and top:
        table = Table("photograph", "suspected", "landmarks", "sure", "why")
        for one in told[:top]:
            names = ", ".join(one.landmarks[:3]) + (" ..." if len(one.landmarks) > 3 else "")
            item = items[one.item]
            image = f"{item.image} {item.object}" if item.object else item.image
            table.add_row(image, one.kind, names or "all", f"{one.certainty:.0%}", one.why)
        Console(markup=False, highlight=False).print(table)
    for note in notes:
        print(note)
