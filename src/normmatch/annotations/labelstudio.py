"""Label Studio's JSON: tasks whose points are per cent of the photograph, tied to their object's box.

A point belongs to a box by `parentID` or by a relation in either direction. Of the annotations of a task the last that
was not cancelled counts, of a task without any the predictions. We write predictions where there are scores, to be
imported as pre-annotations, annotations elsewhere.
"""

import json
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from typing import Any
from urllib.parse import unquote

from normmatch.annotations import Annotation, known_scores, make_annotation
from normmatch.annotations.reading import Reading, Size
from normmatch.checks import read_number
from normmatch.errors import DataError
from normmatch.outputs import MADE_BY

HASH = re.compile(r"[0-9a-f]{8}-(?=.)")  # what uploads have before their names
Item = dict[str, Any]


def read(path: Path, content: Any, how: Reading) -> list[Annotation]:
    """The objects of all tasks; the points of a task that belong to no box are one object."""
    found: list[Annotation] = []
    for number, task in enumerate(content):
        where = f"{path.name} task {short(task.get('id', f'number {number}'))}"
        image, size = how.image(path, _image(where, task))
        results, score = _results(where, task)
        found += _objects(where, image, size, results, score, how)
    return found


def _image(where: str, task: Item) -> str:
    data = task.get("data", task)
    name = next((data[key] for key in ("image", "img", "ocr") if isinstance(data.get(key), str)), None)
    name = name or next((v for v in data.values() if isinstance(v, str) and "." in v), None)
    if name is None:
        raise DataError(f"{where}: expected the name of its photograph under `data`.")
    name = unquote(name.rpartition("?d=")[2].partition("?")[0])
    folder, _, base = name.rpartition("/")
    web = re.match(r"\w+:|/?data/|/data", name)
    return HASH.sub("", base, 1) if web or not folder else f"{folder}/{HASH.sub('', base, 1)}"


def _results(where: str, task: Item) -> tuple[list[Item], float]:
    """The items of the annotation that counts, and its score if it is a prediction's."""
    if "data" not in task:  # the short export, a list of points under each name of the configuration
        results = [
            {"type": kind, "value": v, **{key: v.get(key) for key in ("original_width", "original_height")}}
            for values in task.values() if isinstance(values, list)
            for v in values if isinstance(v, dict)
            for kind in ("keypointlabels", "rectanglelabels") if kind in v
        ]  # fmt: skip
        return results, float("nan")
    made = [a for a in task.get("annotations") or task.get("completions") or [] if not a.get("was_cancelled")]
    if len(made) > 1:
        warnings.warn(f"{where}: the last of {len(made)} annotations is read", stacklevel=2)
    chosen = made[-1] if made else next(iter(task.get("predictions") or []), {})
    results = chosen.get("result", [])
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise DataError(f"{where}: `result` must be a list of objects.")
    return results, float("nan") if made else read_number(chosen.get("score"))


def _objects(
    where: str, image: str, size: Size | None, results: list[Item], score: float, how: Reading
) -> list[Annotation]:
    boxes = {
        r.get("id"): r for r in results if r.get("type") == "rectanglelabels" or "rectanglelabels" in r.get("value", {})
    }
    points = [r for r in results if "keypointlabels" in r.get("value", {})]
    owner = {r.get("id"): r.get("parentID") for r in points}
    for relation in (r for r in results if r.get("type") == "relation"):
        ends = relation.get("from_id"), relation.get("to_id")
        for point, box in (ends, ends[::-1]):
            if point in owner and box in boxes and owner[point] not in boxes:
                owner[point] = box
    groups: dict[Any, list[tuple[str, Item]]] = {key: [] for key in (*boxes, None)}
    for index, point in enumerate(points):
        key = owner.get(point.get("id")) if owner.get(point.get("id")) in boxes else None
        if key is None and len(boxes) == 1 and all(o not in boxes for o in owner.values()):
            key = next(iter(boxes))
        x, y, width, height = _pixels(where, point, size)
        size = size or (width, height)
        row = {"name": (point["value"]["keypointlabels"] or [""])[0], "x": x, "y": y}
        own = read_number(point.get("score", score))
        groups[key].append((f"{where} point {index}", row | ({"score": own} if own == own else {})))
    found = []
    for key, rows in groups.items():
        if rows or key is not None:
            about = _about(where, boxes[key], size) if key is not None else {}
            found.append(make_annotation(where, image, rows, size=size, **about))
    return found or [make_annotation(where, image, [], size=size)]


def _pixels(where: str, result: Item, size: Size | None) -> tuple[float, float, int, int]:
    width, height = (read_number(result.get(f"original_{side}")) for side in ("width", "height"))
    if not (width > 0 and height > 0):
        width, height = size or (0, 0)
    x, y = (read_number(result["value"].get(key)) for key in "xy")
    if not width or not abs(x) + abs(y) < 1e6:
        raise DataError(
            f"{where}: a point is at {short(result['value'])}; expected per cent x and y, and original_width."
        )
    return x * width / 100, y * height / 100, int(width), int(height)


def _about(where: str, result: Item, size: Size | None) -> Item:
    x, y, w, h = _pixels(where, result, size)
    extent = [read_number(result["value"].get(key)) for key in ("width", "height")]
    box = [x, y, extent[0] * w / 100, extent[1] * h / 100]
    labels = result["value"].get("rectanglelabels") or [""]
    return {"box": box if box[2] > 0 and box[3] > 0 else None, "label": str(labels[0])}


def write(annotations: Sequence[Annotation]) -> str:
    """The text of a file: a task for each photograph."""
    tasks: dict[str, Item] = {}
    several = Counter(item.image for item in annotations)
    for number, item in enumerate(annotations):
        if item.box is None and several[item.image] > 1 and item.names:  # nothing else holds its points together
            low, high = item.keypoints.min(0), item.keypoints.max(0)
            item = replace(item, box=(*low.tolist(), *(high - low).clip(1).tolist()))
        if item.size is None:
            raise DataError(
                f"The size of {item.image} is not known, and Label Studio has per cent of it; expected the photograph."
            )
        task = tasks.setdefault(item.image, {"data": {"image": item.image}, "result": [], "scores": []})
        task["result"] += _write_object(item, number)
        task["scores"] += [score for _, score in known_scores(item)]
    content = []
    for task in tasks.values():
        scores = task["scores"]
        made: Item = {"result": task["result"]}
        if scores:
            made |= {"model_version": MADE_BY, "score": sum(scores) / len(scores)}
        content.append({"data": task["data"], "predictions" if scores else "annotations": [made]})
    return json.dumps(content, indent=1, ensure_ascii=False)


def _write_object(item: Annotation, number: int) -> list[Item]:
    assert item.size
    width, height = item.size
    common = {"to_name": "image", "original_width": width, "original_height": height, "image_rotation": 0}
    results: list[Item] = []
    if item.box:
        x, y, w, h = item.box
        value: Item = {
            "x": 100 * x / width,
            "y": 100 * y / height,
            "width": 100 * w / width,
            "height": 100 * h / height,
        }
        value |= {"rotation": 0, "rectanglelabels": [item.label or "object"]}
        results.append({"id": f"box{number}", "type": "rectanglelabels", "from_name": "bbox", "value": value, **common})
    scores = dict(known_scores(item))
    for k, (name, (x, y)) in enumerate(zip(item.names, item.keypoints.tolist(), strict=True)):
        value = {"x": 100 * x / width, "y": 100 * y / height, "width": 0.5, "keypointlabels": [name]}
        point = {
            "id": f"point{number}-{k}",
            "type": "keypointlabels",
            "from_name": "keypoints",
            "value": value,
            **common,
        }
        point |= {"parentID": f"box{number}"} if item.box else {}
        results.append(point | ({"score": scores[k]} if k in scores else {}))
    return results
