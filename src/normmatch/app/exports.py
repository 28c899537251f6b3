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
from normmatch.app import sheets
from normmatch.app.photographs import THUMB, Photographs
from normmatch.config import Format
from normmatch.errors import DataError
from normmatch.matching.slips import FEWEST, Shapes, Slip, find_slips, fit_shapes
from normmatch.outputs import MADE_BY

TITLES = {"native": "NormMatch", "coco": "COCO keypoints", "csv": "CSV", "labelstudio": "Label Studio"}
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
    points = np.stack([project.keypoints(one) for one in chosen])  # (R, K, 2)
    if len(chosen) < FEWEST:
        raise DataError(f"There are {len(chosen)} photographs; a mean shape needs at least {FEWEST} that are reviewed.")
    shapes = fit_shapes(points)
    if kind == ".png":
        return f"{stem} shape.png", sheets.encoded([sheets.mean_shape(project, shapes, shapes.lay(points)[0])], "PNG")
    described = described_shape(project, shapes, points, [one.file for one in chosen])
    return f"{stem} shape.json", json.dumps(described, indent=1, ensure_ascii=False).encode()


def described_shape(project: Project, shapes: Shapes, points: np.ndarray, files: list[str]) -> Json:
    """The mean shape, its longer side 1, each landmark's deviation, and what lies far from it, the worst first."""
    pairs = pairs_of(project)
    slips = sorted(find_slips(points, shapes, pairs), key=lambda slip: -slip.far)
    return {
        "made_by": MADE_BY,
        "mean": {name: shapes.mean[k].round(5).tolist() for k, name in enumerate(project.names)},
        "deviation": {name: round(float(shapes.deviation[k]), 5) for k, name in enumerate(project.names)},
        "outliers": [{"photograph": files[slip.shape], **as_suspect(project, slip)} for slip in slips],
    }


def as_suspect(project: Project, slip: Slip) -> Json:
    """A slip as the page is told of it."""
    x, y = slip.expected
    other = {} if slip.other is None else {"other": project.names[slip.other]}
    kind = "far" if slip.other is None else "exchanged"
    name = project.names[slip.landmark]
    return {"landmark": name, "kind": kind, **other, "far": round(slip.far, 1), "x": round(x, 1), "y": round(y, 1)}


def pairs_of(project: Project) -> list[tuple[int, int]]:
    """The numbers of landmarks that are left and right of each other."""
    place = {name: number for number, name in enumerate(project.names)}
    pairs = ((place[one.name], place[one.pair]) for one in project.landmarks if one.pair)
    return [(a, b) for a, b in pairs if a < b]


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
