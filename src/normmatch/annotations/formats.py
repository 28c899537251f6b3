"""The formats of keypoints files: how each is recognised, read and written, and what it can hold."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from normmatch.annotations import (
    Annotation,
    coco,
    csv,
    cvat,
    deeplabcut,
    drawn_shapes,
    labelstudio,
    matrices,
    native,
    single,
    tables,
    tps,
    yolo,
)
from normmatch.annotations import project as label_project
from normmatch.annotations.images import upright_size
from normmatch.annotations.project_file import project_of
from normmatch.annotations.reading import Photographs, Reading
from normmatch.config import Format
from normmatch.errors import DataError

HEAD = 1 << 16  # characters of a table in which its header is
Read = Callable[[Path, Any, Reading], list[Annotation]]
Text = str | dict[str, str]  # of a file, or of the files of a folder

EVERYTHING = frozenset(
    ("names", "several", "classes", "objects", "boxes", "hidden", "absent", "scores", "splits", "scale", "skeleton",
     "pairs", "curves", "empty")
)  # fmt: skip


@dataclass(frozen=True)
class Output:
    """A format that can be written."""

    title: str
    ending: str  # "" is a folder
    write: Callable[..., Text]
    holds: frozenset[str]
    needs_sizes: bool = False


def _holds(words: str) -> frozenset[str]:
    return frozenset(words.split())


OUTPUTS: dict[Format, Output] = {
    "native": Output("our JSON", ".json", native.write, EVERYTHING),
    "coco": Output(
        "COCO",
        ".json",
        coco.write,
        _holds("names several classes objects boxes hidden scores splits scale skeleton empty"),
    ),
    "csv": Output(
        "a CSV", ".csv", csv.write, _holds("names several classes objects boxes hidden absent scores splits scale")
    ),
    "wide": Output("a wide table", ".csv", tables.write_wide, _holds("names several scale empty")),
    "tps": Output("TPS", ".tps", tps.write, _holds("several objects scale curves empty"), True),
    "nts": Output("NTS", ".nts", matrices.write_nts, _holds("several empty"), True),
    "deeplabcut": Output("DeepLabCut's CSV", ".csv", deeplabcut.write, _holds("names several objects scores empty")),
    "yolo": Output("YOLO pose", "", yolo.write, _holds("names several classes boxes hidden splits pairs empty"), True),
    "cvat": Output("CVAT's XML", ".xml", cvat.write, _holds("names several classes boxes hidden splits empty"), True),
    "labelstudio": Output(
        "Label Studio's JSON", ".json", labelstudio.write, _holds("names several classes boxes scores empty"), True
    ),
    "labelme": Output("labelme's JSON", "", drawn_shapes.write_labelme, _holds("names several boxes empty"), True),
}
BY_ENDING: dict[str, Read] = {
    ".tps": tps.read, ".nts": matrices.read_nts, ".pts": single.read_pts, ".tem": single.read_tem,
    ".xml": cvat.read, ".yaml": yolo.read, ".yml": yolo.read,
}  # fmt: skip
ENDINGS = (*BY_ENDING, ".json", ".csv", ".tsv", ".txt")  # the last four are recognised by what they hold
FOLDERS = (".tps", ".pts", ".tem", ".txt", ".json")  # files of which a folder may have one for each photograph


def read_content(path: Path, content: Any, how: Reading) -> list[Annotation]:
    """The objects of a file of any format, given its text, of JSON what it holds."""
    found = BY_ENDING.get(path.suffix.lower())
    found = found or (_of_text(path, content) if isinstance(content, str) else _of_json(content))
    return found(path, content, how)


def _of_json(content: Any) -> Read:
    if isinstance(content, list) and content and all(isinstance(task, dict) for task in content):
        return drawn_shapes.read_alphatracker if "filename" in content[0] else labelstudio.read
    if not isinstance(content, dict):
        return native.read
    if content.get("format") == label_project.FORMAT:
        return _read_project
    if isinstance(content.get("shapes"), list):
        return drawn_shapes.read_labelme
    if {"skeletons", "nodes", "videos", "labels"} <= set(content):
        return drawn_shapes.read_sleap
    entries = [*(content.get("_via_img_metadata") or content).values()]
    if entries and all(isinstance(entry, dict) and "filename" in entry for entry in entries):
        return drawn_shapes.read_via
    return coco.read if "annotations" in content else native.read


def _read_project(path: Path, content: Any, _: Reading) -> list[Annotation]:
    """The points of a label project; proposals have scores."""
    try:
        return project_of(content).as_annotations(everything=True)
    except DataError as error:
        raise DataError(f"{path} cannot be read as a label project: {str(error).removesuffix('.')}.") from error


def _of_text(path: Path, text: str) -> Read:
    if "<landmarks.pixel" in text or "<shapes" in text:
        return single.read_stereomorph
    if re.search(r"^\[rawpoints\]", text, re.MULTILINE | re.IGNORECASE):
        return matrices.read_morphologika
    if path.suffix.lower() == ".txt" and re.fullmatch(r"[\d.eE+\s-]+", re.sub(r"#.*", "", text)):
        return yolo.read
    cells = next(iter(tables.rows_of(text[:HEAD])), []) or [""]
    if cells[:1] == ["scorer"]:
        return deeplabcut.read
    if cells[0].lstrip("#") == "filename" and "region_shape_attributes" in cells:
        return drawn_shapes.read_via_csv
    if {"frame_idx", "instance.score"} <= set(cells):
        return tables.read_sleap
    if {"X", "Y"} <= set(cells) and cells[0] in ("", "Label"):
        return tables.read_imagej
    return tables.read_wide if tables.columns_of(cells) or path.suffix.lower() != ".csv" else csv.read


def read_folder(path: Path, how: Reading) -> list[Annotation]:
    """The objects of a folder that has a file for each photograph, or a data.yaml."""
    if any((path / name).is_file() for name in yolo.CONFIGS):
        return yolo.read_folder(path, how)
    files = [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")]
    for ending in FOLDERS:
        some = [file for file in files if file.suffix.lower() == ending and file.name != "classes.txt"]
        if some:
            from normmatch.annotations import read

            inside = replace(how, images=how.images or path)
            return [item for file in some for item in read(file, how=inside, turned=False)]
    raise DataError(f"{path} is a folder without keypoints files; expected some, or one file.")


def write_text(
    path: Path,
    annotations: Sequence[Annotation],
    format: Format | None,
    images: Path | None,
    settings: Mapping[str, Any],
) -> Text:
    """The text of a file in a format, or in that of the path's ending; of a folder the texts of its files."""
    output = OUTPUTS[format or by_ending(path)]
    if path.suffix.lower() != output.ending:
        wanted = output.ending or "a folder, which has none,"
        raise DataError(f"{path} has the ending {path.suffix!r}; expected {wanted} for {output.title}.")
    turned = output.write in (tps.write, matrices.write_nts)
    for item in annotations:
        if item.y_up and item.names and not turned:
            raise DataError(
                f"{item.source}: y counts from the bottom, and the height of {item.image} is not known; expected the "
                "photograph, as large as it was annotated, or its size."
            )
    if output.needs_sizes or output.write == coco.write:
        annotations = with_sizes(annotations, Photographs(path.parent, images))
    if output.write in (native.write, coco.write) and settings:
        return output.write(annotations, settings=settings)
    return output.write(annotations)


def by_ending(path: Path) -> Format:
    """The name of the format that a path's ending asks for, the first that has it."""
    found = next((name for name, o in OUTPUTS.items() if o.ending and o.ending == path.suffix.lower()), None)
    if found is None:
        endings = dict.fromkeys(output.ending for output in OUTPUTS.values() if output.ending)
        raise DataError(f"{path} has the ending {path.suffix!r}; expected {', '.join(endings)} or a folder.")
    return found


def with_sizes(annotations: Sequence[Annotation], photographs: Photographs) -> list[Annotation]:
    """The objects with the sizes of their photographs, as far as these are found."""
    sizes: dict[str, tuple[int, int] | None] = {}
    for item in annotations:
        if item.size is None and not item.y_up and item.image not in sizes:
            file = photographs.find(item.image)
            sizes[item.image] = upright_size(file) if file else None
    return [replace(item, size=item.size or sizes.get(item.image)) for item in annotations]


def losses(annotations: Sequence[Annotation], format: Format) -> list[str]:
    """What a format cannot hold of these objects, in words."""
    output = OUTPUTS[format]
    names = list(dict.fromkeys(name for item in annotations for name in item.order))
    in_image: dict[str, int] = {}
    for item in annotations:
        in_image[item.image] = in_image.get(item.image, 0) + bool(item.names)
    kinds = [item.landmarks for item in annotations if item.landmarks]
    found: dict[str, Sequence[Any]] = {
        "names": [n for n in names if n != str(names.index(n) + 1)],
        "several": [n for n in in_image.values() if n > 1],
        "classes": list({item.label for item in annotations if item.label}),
        "objects": [item.object for item in annotations if item.object],
        "boxes": [item.box for item in annotations if item.box],
        "hidden": [1 for item in annotations if item.visible is not None for seen in item.visible if not seen],
        "absent": [name for item in annotations for name in item.absent],
        "scores": [s for item in annotations if item.scores is not None for s in item.scores if np.isfinite(s)],
        "splits": [item.split for item in annotations if item.split],
        "scale": [item.scale for item in annotations if item.scale],
        "skeleton": list({edge for kind in kinds for edge in kind.skeleton}),
        "pairs": list({pair for kind in kinds for pair in kind.pairs}),
        "curves": [curve for item in annotations for curve in item.curves],
        "empty": [item.image for item in annotations if not item.names and not item.absent],
    }
    return [WORDS[what].format(len(some)) for what, some in found.items() if some and what not in output.holds]


WORDS = {
    "names": "the names of {} landmarks, which are known by their order from now on",
    "several": "which landmarks belong together, in {} photographs with several objects",
    "classes": "{} names of classes",
    "objects": "the names of {} objects",
    "boxes": "{} boxes",
    "hidden": "that {} landmarks are hidden, which stay as if they were seen",
    "absent": "that {} landmarks are absent rather than not annotated",
    "scores": "{} scores",
    "splits": "the splits of {} objects",
    "scale": "the scale of {} photographs",
    "skeleton": "{} lines of the skeleton",
    "pairs": "{} pairs of left and right",
    "curves": "{} curves",
    "empty": "{} photographs or objects without landmarks",
}
