"""YOLO pose: a text file for each photograph with shares of its width and height, and a data.yaml.

    labels/train/img.txt   a line an object: class xc yc w h x1 y1 v1 x2 y2 v2 ...; of kpt_shape [N, 2] without v
    data.yaml              kpt_shape, flip_idx (where each point is in the mirrored image), names of the classes

v is 0 where a point was not annotated, whatever its place, 1 hidden, 2 visible; without v, 0 0 was not annotated. Names
of points are in `kpt_names` where there are any. The photographs are looked for in `images` beside `labels`.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from reprlib import repr as short
from typing import Any

import numpy as np
import yaml

from normmatch.annotations import MAX_BYTES, Annotation, Landmarks, make_annotation
from normmatch.annotations.reading import Reading, Size
from normmatch.annotations.tps import all_names
from normmatch.checks import read_number
from normmatch.errors import DataError
from normmatch.io import read_text

CONFIGS = ("data.yaml", "config.yaml", "data.yml", "dataset.yaml")
ABOVE = 5  # folders of a labels file in which its data.yaml may lie
DIGITS = 6  # of pixels that were shares
BOX = 5  # values of a line before the points: class and box
MARGIN = 0.05  # of the points' extent, around those of an object without a box


def read(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The objects of one labels file, or of all that a data.yaml is about."""
    if path.suffix.lower() in (".yaml", ".yml"):
        config = _config(path, text)
        return [item for file in _label_files(path, config) for item in _labels(file, _text(file), config, how)]
    file = next((f / name for f in path.parents[:ABOVE] for name in CONFIGS if (f / name).is_file()), None)
    return _labels(path, text, _config(file, _text(file)) if file else {}, how)


def read_folder(path: Path, how: Reading) -> list[Annotation]:
    """The objects of a dataset's folder with a data.yaml."""
    file = next(path / name for name in CONFIGS if (path / name).is_file())
    return read(file, _text(file), how)


def _text(path: Path) -> str:
    return read_text(path, MAX_BYTES)


def _config(path: Path, text: str) -> dict[str, Any]:
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DataError(
            f"{path} is not a YAML file that can be read ({' '.join(str(error).split())[:100]})."
        ) from error
    shape = config.get("kpt_shape") if isinstance(config, dict) else None
    if not (
        isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) for n in shape) and shape[1] in (2, 3)
    ):
        raise DataError(
            f"{path} has no points: expected `kpt_shape: [N, 2]` or `[N, 3]` of YOLO pose, with labels beside it."
        )
    return dict(config)


def _label_files(path: Path, config: dict[str, Any]) -> list[Path]:
    root = Path(str(config.get("path") or ".").replace("\\", "/"))
    root = root if root.is_dir() and root.is_absolute() else path.parent / root
    roots = [root, path.parent, path.parent / Path(root).name]
    files = []
    for part in ("train", "val", "test"):
        listed = config.get(part)
        for name in listed if isinstance(listed, list) else [listed] if listed else []:
            images = PurePosixPath(str(name).replace("\\", "/"))
            labels = PurePosixPath(*("labels" if piece == "images" else piece for piece in images.parts))
            folder = next((r / labels for r in roots if (r / labels).is_dir()), None)
            files += sorted(folder.rglob("*.txt")) if folder else []
    files = files or sorted((path.parent / "labels").rglob("*.txt"))
    if not files:
        raise DataError(f"{path} describes points, but there are no labels/*.txt beside it; expected a whole dataset.")
    return list(dict.fromkeys(files))


def _labels(path: Path, text: str, config: dict[str, Any], how: Reading) -> list[Annotation]:
    lines = [(n, line.split()) for n, line in enumerate(text.splitlines(), 1) if line.split("#")[0].strip()]
    image, size = _photograph(path, how)
    part = next((p for p in ("train", "val", "test") if p in path.parts), "")
    if not lines:
        return [make_annotation(str(path.name), image, [], size=size, split=part)]
    if size is None:
        raise DataError(f"{path.name} has shares of a photograph that was not found; expected {image} or its size.")
    count, values = config.get("kpt_shape") or _shape(path, [words for _, words in lines])
    landmarks = _landmarks(path, config, count, how)
    classes = config.get("names") or {}
    classes = dict(enumerate(classes)) if isinstance(classes, list) else classes
    found = []
    for number, words in lines:
        where = f"{path.name} line {number}"
        numbers = np.array([read_number(word) for word in words])
        if len(numbers) not in (BOX + count * values, BOX + count * values + 1) or not np.isfinite(numbers).all():
            raise DataError(f"{where}: {len(words)} values; expected {BOX + count * values} numbers.")
        label = str(classes.get(int(numbers[0]), int(numbers[0])))
        points = numbers[BOX : BOX + count * values].reshape(count, values)
        rows = [(where, row) for row in _rows(points, landmarks.names, size)]
        box = _box(numbers[1:BOX], size)
        found.append(
            make_annotation(where, image, rows, box=box, label=label, landmarks=landmarks, size=size, split=part)
        )
    return found


def _photograph(path: Path, how: Reading) -> tuple[str, Size | None]:
    """The photograph of a labels file: beside it, or in `images` where this is in `labels`."""
    parts = list(path.parent.parts)
    if "labels" in parts:
        parts[len(parts) - 1 - parts[::-1].index("labels")] = "images"
        name, size = Reading(size=how.size).image(Path(*parts) / path.name, path.stem)
        if name != path.stem:
            return name, size
    return how.image(path, path.stem)


def _shape(path: Path, lines: list[list[str]]) -> tuple[int, int]:
    """Points of a line and values of a point, as no data.yaml says it."""
    count = min(map(len, lines)) - BOX
    flags = {word for words in lines for word in words[BOX + 2 :: 3]}
    values = 3 if count % 3 == 0 and all(read_number(flag) in (0, 1, 2) for flag in flags) else 2
    if count <= 0 or count % values:
        raise DataError(f"{path.name} has no points of YOLO pose; expected class, box and points in each line.")
    return count // values, values


def _landmarks(path: Path, config: dict[str, Any], count: int, how: Reading) -> Landmarks:
    listed = config.get("kpt_names")
    listed = next(iter(listed.values()), None) if isinstance(listed, dict) else listed
    names = how.landmarks(path.name, count).names
    if not how.names and isinstance(listed, list) and len(set(map(str, listed))) == count == len(listed):
        names = tuple(map(str, listed))
    flip = config.get("flip_idx") or []
    if flip and (not isinstance(flip, list) or sorted(map(str, flip)) != sorted(map(str, range(count)))):
        raise DataError(f"{path.name}: flip_idx is {short(flip)}; expected each number from 0 to {count - 1} once.")
    return Landmarks(names, (), tuple((names[k], names[j]) for k, j in enumerate(flip) if k < j))


def _rows(points: np.ndarray, names: Sequence[str], size: Size) -> list[dict[str, Any]]:
    rows = []
    for name, point in zip(names, points, strict=True):
        annotated = point[2] > 0 if len(point) == 3 else point[:2].any()
        if annotated:
            x, y = (point[:2] * size).round(DIGITS).tolist()
            rows.append({"name": name, "x": x, "y": y, "visible": len(point) == 2 or bool(point[2] > 1)})
    if rows and not any(row["visible"] for row in rows):  # some tools write 1 for all that there are
        rows = [row | {"visible": True} for row in rows]
    return rows


def _box(values: np.ndarray, size: Size) -> list[float] | None:
    middle, extent = values[:2] * size, values[2:] * size
    return (
        [*(middle - extent / 2).round(DIGITS).tolist(), *extent.round(DIGITS).tolist()] if (extent > 0).all() else None
    )


def write(annotations: Sequence[Annotation]) -> dict[str, str]:
    """A dataset's data.yaml and labels; the photographs go to `images/...` beside `labels/...`."""
    names = all_names(annotations)
    classes = list(dict.fromkeys(item.label or "object" for item in annotations))
    files: dict[str, list[str]] = {}
    images: dict[str, str] = {}
    for item in annotations:
        name = f"labels/{item.split or 'train'}/{Path(item.image).stem}.txt"
        if images.setdefault(name, item.image) != item.image:
            raise DataError(
                f"{item.image} and {images[name]} would both have the labels {name}; expected different names."
            )
        lines = files.setdefault(name, [])
        if item.names:
            lines.append(_line(item, names, classes.index(item.label or "object")))
    pairs = {a: b for item in annotations if item.landmarks for a, b in item.landmarks.pairs}
    pairs |= {b: a for a, b in pairs.items()}
    splits = sorted({name.split("/")[1] for name in files})
    config: dict[str, Any] = {
        "path": ".",
        "train": "images/train",
        "val": f"images/{'val' if 'val' in splits else 'train'}",
    }
    config |= {"test": "images/test"} if "test" in splits else {}
    config |= {"kpt_shape": [len(names), 3], "names": dict(enumerate(classes)), "kpt_names": {0: names}}
    config["flip_idx"] = [names.index(pairs.get(name, name)) for name in names]
    text = {"data.yaml": yaml.safe_dump(config, sort_keys=False, allow_unicode=True)}
    return text | {name: "".join(f"{line}\n" for line in lines) for name, lines in files.items()}


def _line(item: Annotation, names: Sequence[str], label: int) -> str:
    if item.size is None:
        raise DataError(f"The size of {item.image} is not known, and YOLO has shares of it; expected the photograph.")
    places = dict(zip(item.names, item.keypoints, strict=True))
    seen = dict(zip(item.names, item.visible if item.visible is not None else [True] * len(item.names), strict=True))
    low, high = item.keypoints.min(0), item.keypoints.max(0)
    x, y, w, h = item.box or (*(low - MARGIN * (high - low)), *((1 + 2 * MARGIN) * (high - low)).clip(1))
    values = [value / side for value, side in zip((x + w / 2, y + h / 2, w, h), item.size * 2, strict=True)]
    for name in names:
        share = places[name] / item.size if name in places else np.zeros(2)
        values += [*share.tolist(), 1 + int(seen[name]) if name in places else 0]
    return " ".join([str(label), *(f"{value:.10g}" for value in values)])
