"""What locating leaves in its folder, made of the records of `run_folder`.

out/located.json   all of it, as COCO keypoints with scores or in another format
out/table.csv      a line for each landmark, photographs that need a look first
out/pictures/      those photographs, with names, and certainty as colour
"""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations import Landmarks as Kind
from normmatch.annotations.formats import OUTPUTS
from normmatch.config import Format
from normmatch.errors import DataError
from normmatch.io import load_image
from normmatch.matching.picture import shrink
from normmatch.matching.run_folder import Record, add_to_run, digest, read_run
from normmatch.outputs import write_text, writing
from normmatch.progress import show_progress

SURE = 0.5  # probability under which a landmark needs a look, or is taken to be absent
LOW = 0.3  # mean certainty of all photographs under which something is wrong
SEEM_TURNED = "seem to lie any way round"
COLUMNS = ("image", "landmark", "x", "y", "score", "visible", "spread")


@dataclass(frozen=True)
class Names:
    """The landmarks of a kind of thing."""

    all: tuple[str, ...]
    flip: tuple[int, ...]  # the number of each in a mirrored thing
    label: str  # the class
    kind: Kind | None

    def place(self, one: Annotation) -> np.ndarray:
        """An object's landmarks (K, 2); NaN where it has none."""
        known = dict(zip(one.names, one.keypoints, strict=True))
        return np.array([known.get(name, (np.nan, np.nan)) for name in self.all])


@dataclass(frozen=True)
class Summary:
    """What became of the photographs."""

    located: int
    failed: tuple[Record, ...]
    unsure: tuple[tuple[str, float, int], ...]  # photograph, mean certainty, unsure landmarks; the least sure first
    sure: int  # landmarks
    landmarks: int  # of each photograph
    file: Path
    advice: str  # what would help, in one sentence; empty where nothing is known


def files_to_write(out: Path, format: Format) -> list[Path]:
    """Beside those of `run_folder`."""
    file = out / f"located{OUTPUTS[format].ending}"
    return [file if OUTPUTS[format].ending else file / "data.yaml", out / "table.csv"]


def edited(out: Path, format: Format) -> list[Path]:
    """Those of them that are not, or no longer, as a run has left them."""
    written = read_run(out).get("written")
    known = written if isinstance(written, dict) else {}
    return [one for one in files_to_write(out, format) if not one.is_file() or known.get(one.name) != digest([one])]


def write_files(
    out: Path,
    names: Names,
    failed: Sequence[Record],
    format: Format,
    pictures: int,
    progress: bool,
) -> Summary:
    """Everything, from the results that are there."""
    lines = (out / "results.jsonl").read_text("utf-8").splitlines()
    records = sorted(map(json.loads, lines), key=lambda record: float(np.mean(record["scores"])))
    if not records:
        raise DataError(f"No photograph could be read: {failed[0]['error']}")
    file, in_order = out / f"located{OUTPUTS[format].ending}", sorted(records, key=lambda record: record["row"])
    with writing(out):
        annotations.write(file, [_annotation(names, one, out) for one in in_order], format)
        write_text(out / "table.csv", _table(names, records))
    drawn = records[:pictures]
    for record in show_progress(drawn, len(drawn), 0, progress and bool(drawn), "pictures"):
        _draw(out / "pictures", names, record)
    add_to_run(out, {"written": {one.name: digest([one]) for one in files_to_write(out, format)}})
    rows = [(one["image"], float(np.mean(one["scores"])), sum(s < SURE for s in one["scores"])) for one in records]
    sure, unsure = sum(len(names.all) - row[2] for row in rows), tuple(row for row in rows if row[2])
    return Summary(
        len(records),
        tuple(failed),
        unsure,
        sure,
        len(names.all),
        file,
        _advice(records, bool(read_run(out).get(SEEM_TURNED))),
    )


def _advice(records: Sequence[Record], turned: bool) -> str:
    """What to do where the certainty is low altogether."""
    mean = float(np.mean([np.mean(one["scores"]) for one in records]))
    low = f"The certainty is low altogether ({mean:.2f} on average)"
    if turned and mean < SURE:
        return f"{low}, and the things seem to lie turned: try --any-way-round."
    if mean >= LOW:
        return ""
    return (
        f"{low}: do the photographs show the same kind of thing as the references? More references help most; "
        "photographs with several things in them need --boxes."
    )


def _annotation(names: Names, record: Record, out: Path) -> Annotation:
    """A located object, its image as seen from the folder; landmarks that are hardly in the picture are hidden ones."""
    points, visible = np.array(record["keypoints"]), np.array(record["visible"]) >= SURE
    image = Path(os.path.relpath(record["image"], out)).as_posix()
    low, high = points.min(0), points.max(0)
    box = tuple(record["box"]) if record["boxed"] else (*low.tolist(), *np.maximum(high - low, 1.0).tolist())
    scores, source = np.array(record["scores"]), f"{out} row {record['row']}"
    kind = names.kind or Kind(names.all)
    return Annotation(
        image, names.all, points, box, names.label, visible=visible, scores=scores, source=source, landmarks=kind
    )


def _table(names: Names, records: Sequence[Record]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in records:
        rows = zip(names.all, one["keypoints"], one["scores"], one["visible"], one["spread"], strict=True)
        writer.writerows([one["image"], name, *xy, *rest] for name, xy, *rest in rows)
    return text.getvalue()


def _draw(folder: Path, names: Names, record: Record) -> None:
    """A photograph with its landmarks, called by its number and name."""
    from normmatch import viz

    image, points = shrink(load_image(record["image"]), np.array(record["keypoints"]))
    figure = viz.plot_located(image, points, record["scores"], names.all, record["visible"], Path(record["image"]).name)
    viz.save_plot(figure, folder / f"{record['row']:05d}-{Path(record['image']).stem[:100]}.jpg", dpi=120)
