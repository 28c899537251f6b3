"""COCO-keypoints JSON, with two keys more where keypoints have scores.

An annotation's `keypoint_scores` has the score of each of its category's names, 0 where there is no such keypoint, and
`score` is the mean of the others; an image may have a `split`. An annotation without a labelled keypoint (v > 0) is
read as an object without keypoints. Tools do not agree whether the centre of the first pixel is at 0 or 0.5; nothing is
added here.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

from normmatch.annotations import Annotation, Row, filled, known_scores, make_annotation
from normmatch.errors import DataError
from normmatch.outputs import MADE_BY

DIGITS = 6  # of a mean score
Item = dict[str, Any]


def read(path: Path, content: Any) -> list[Annotation]:
    """The objects of a file, given what it holds."""
    images, categories, annotations = (_list(path, content, key) for key in ("images", "categories", "annotations"))
    files, classes = _by_id(path, "image", images), _by_id(path, "category", categories)
    found = []
    for number, annotation in enumerate(annotations):
        where = f"{path.name} annotation {short(annotation.get('id', f'number {number}')).strip(chr(39))}"
        image, category = _lookup(files, annotation.get("image_id")), _lookup(classes, annotation.get("category_id"))
        if image is None or category is None:
            raise DataError(f"{where}: its image_id or category_id is not in the file's images or categories.")
        if not (isinstance(image.get("file_name"), str) and isinstance(category.get("name"), str)):
            raise DataError(f"{where}: its image needs a `file_name` and its category a `name`.")
        rows = _rows(where, annotation, category.get("keypoints") or [])
        box = annotation.get("bbox") if rows else None  # the unlabelled ones may have boxes of any kind
        about = {"label": category["name"], "split": "" if image.get("split") is None else image["split"]}
        found.append(make_annotation(where, filled(where, image, "file_name"), rows, box=box, **about))
    return found


def write(
    annotations: Sequence[Annotation], sizes: Mapping[str, tuple[int, int]] | None = None, about: str = ""
) -> str:
    """The text of a file; `sizes` are the widths and heights of the images that are known, `about` describes it all."""
    images: dict[str, Item] = {}
    categories: dict[str, Item] = {}
    for item in annotations:
        image = {"id": len(images) + 1, "file_name": item.image} | ({"split": item.split} if item.split else {})
        width, height = (sizes or {}).get(item.image, (0, 0))
        images.setdefault(item.image, image | ({"width": width, "height": height} if width else {}))
        category = {"id": len(categories) + 1, "name": item.label or "object", "keypoints": [], "skeleton": []}
        names = categories.setdefault(item.label, category)["keypoints"]
        names += [name for name in item.names if name not in names]
    entries = [
        {"id": number, "image_id": images[item.image]["id"], **_annotation(item, categories[item.label])}
        for number, item in enumerate(annotations, 1)
    ]
    content = {"images": [*images.values()], "annotations": entries, "categories": [*categories.values()]}
    head: Item = {"made_by": MADE_BY} | ({"info": {"description": about}} if about else {})
    return json.dumps(head | content)


def _annotation(item: Annotation, category: Item) -> Item:
    """An object with x, y, v for each name of its category: v is 0 for those it has not, 1 hidden, 2 visible."""
    seen = [2] * len(item.names) if item.visible is None else [1 + int(v) for v in item.visible]
    points = {name: [*xy, v] for name, xy, v in zip(item.names, item.keypoints.tolist(), seen, strict=True)}
    entry: Item = {"category_id": category["id"], "iscrowd": 0}
    entry["keypoints"] = [value for name in category["keypoints"] for value in points.get(name, [0, 0, 0])]
    entry["num_keypoints"] = len(points)
    if item.box is not None:
        entry |= {"bbox": list(item.box), "area": item.box[2] * item.box[3]}
    if item.scores is not None:
        scores = {item.names[index]: score for index, score in known_scores(item)}
        entry["score"] = round(sum(scores.values()) / max(len(scores), 1), DIGITS)
        entry["keypoint_scores"] = [scores.get(name, 0.0) for name in category["keypoints"]]
    return entry


def _list(path: Path, content: Any, key: str) -> list[Item]:
    items = content.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise DataError(f"{path} is not a COCO-keypoints file: expected lists of images, annotations and categories.")
    return items


def _by_id(path: Path, kind: str, items: list[Item]) -> dict[Any, Item]:
    found: dict[Any, Item] = {}
    for item in items:
        key = item.get("id")
        if not isinstance(key, int | str) or key in found:
            raise DataError(f"{path}: the {kind} id {short(key)} is missing, used twice or no number.")
        found[key] = item
    return found


def _lookup(items: dict[Any, Item], key: Any) -> Item | None:
    return items.get(key) if isinstance(key, int | str) else None


def _rows(where: str, annotation: Item, names: Any) -> list[tuple[str, Row]]:
    """The keypoints [x, y, v, x, y, v, ...] by the category's names, without those of v = 0."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise DataError(f"{where}: the keypoints of its category must be a list of different names.")
    values = annotation.get("keypoints") or []
    if not isinstance(values, list) or len(values) not in (0, 3 * len(names)):
        raise DataError(f"{where}: `keypoints` must hold x, y, v for each of the {len(names)} names of its category.")
    if any(v not in (0, 1, 2) for v in values[2::3]):
        raise DataError(f"{where}: the visibility v of a keypoint is not 0 (not labelled), 1 (hidden) or 2 (visible).")
    scores = annotation.get("keypoint_scores")
    if scores is not None and (not isinstance(scores, list) or len(scores) != len(names)):
        raise DataError(
            f"{where}: `keypoint_scores` is {short(scores)}; expected a score for each of {len(names)} names."
        )
    points = zip(names, values[0::3], values[1::3], values[2::3], scores or [None] * len(names), strict=False)
    return [
        (where, {"name": name, "x": x, "y": y, "visible": v == 2, "score": score})
        for name, x, y, v, score in points
        if v
    ]
