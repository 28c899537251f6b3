"""What a project gives: its landmarks in the formats that `annotations` writes, a table, a contact sheet, its shape."""

import io
import json
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.formats import OUTPUTS
from normmatch.annotations.project import Json, Project
from normmatch.annotations.shapes import Shapes
from normmatch.app import sheets
from normmatch.app.photographs import THUMB, Photographs
from normmatch.app.suspects import FEWEST, suspects_of
from normmatch.config import Format
from normmatch.errors import DataError
from normmatch.outputs import MADE_BY

TITLES = {
    "native": "NormMatch", "coco": "COCO keypoints", "csv": "CSV, one line a point", "labelstudio": "Label Studio",
    "wide": "Table for geomorph and pandas", "cvat": "CVAT",
}  # fmt: skip
TELLING = ("names", "scores", "absent", "scale", "skeleton")  # what people ask about a format first
RESULTS = {
    "sheet.pdf": ("Contact sheet, PDF", "All photographs with their landmarks"),
    "sheet.png": ("Contact sheet, PNG", "All photographs with their landmarks"),
    "shape.json": ("Mean shape and outliers", "Landmarks far from where the others say"),
    "shape.png": ("Mean shape, picture", "All photographs laid over each other"),
}
KINDS = {".pdf": "application/pdf", ".png": "image/png", ".json": "application/json", ".csv": "text/csv"}


def listed() -> list[Json]:
    """What there is, for the page's menu."""
    found = []
    for key, output in OUTPUTS.items():
        lost = [what for what in TELLING if what not in output.holds]
        note = f"Cannot hold {', '.join(lost)}." if lost else "Has everything."
        title = TITLES.get(key, output.title.removesuffix("'s CSV"))
        found.append({"format": key, "title": title, "note": note, "group": "landmarks"})
    return found + [{"format": k, "title": v[0], "note": v[1], "group": "results"} for k, v in RESULTS.items()]


def export(project: Project, photographs: Photographs, what: str, everything: bool) -> tuple[str, bytes]:
    """A file's name and content; KeyError if there is no such thing."""
    chosen = [one for one in project.photographs.values() if one.reviewed or (everything and one.points)]
    if not chosen:
        raise DataError("No photograph is reviewed yet: there is nothing to export. Expected one that is accepted.")
    stem = "".join(c if c.isalnum() or c in "-_ " else "_" for c in project.name).strip() or "landmarks"
    if what in OUTPUTS:
        return _written(project.as_annotations(everything), photographs.folder, stem, cast(Format, what))
    kind = Path(what).suffix
    if what not in RESULTS:
        raise KeyError(what)
    if what.startswith("sheet"):
        pages = sheets.contact_sheet(project, chosen, lambda file: photographs.copy(file, THUMB))
        return f"{stem}{kind}", sheets.encoded(pages, kind[1:].upper())
    if len(chosen) < FEWEST:
        raise DataError(f"There are {len(chosen)} photographs; a mean shape needs at least {FEWEST} that are reviewed.")
    shapes = Shapes(np.stack([project.keypoints(one) for one in chosen]))  # (R, K, 2)
    if kind == ".png":
        return f"{stem} shape.png", sheets.encoded([sheets.mean_shape(project, shapes)], "PNG")
    described = {
        "made_by": MADE_BY,
        "mean": dict(zip(project.names, shapes.mean.round(5).tolist(), strict=True)),
        "deviation": dict(zip(project.names, _deviations(shapes), strict=True)),
        "outliers": suspects_of(project, everything),
    }
    return f"{stem} shape.json", json.dumps(described, indent=1, ensure_ascii=False).encode()


def _deviations(shapes: Shapes) -> list[float | None]:
    """Of each landmark, how far off the others usually expect it, the mean's longer side being 1."""
    shares = np.where(shapes.known, shapes.spread / shapes.sizes[:, None], np.nan)
    return [round(float(np.nanmedian(row)), 5) if np.isfinite(row).any() else None for row in shares.T]


def _written(items: Sequence[Annotation], images: Path, stem: str, format: Format) -> tuple[str, bytes]:
    """An annotation file; a folder of them as a zip."""
    with tempfile.TemporaryDirectory(prefix="normmatch-") as folder:
        path = Path(folder) / f"{stem}{OUTPUTS[format].ending}"
        annotations.write(path, items, format, images)
        if path.is_file():
            return path.name, path.read_bytes()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(path.rglob("*")):
                archive.write(file, file.relative_to(folder))
        return f"{stem}.zip", packed.getvalue()
