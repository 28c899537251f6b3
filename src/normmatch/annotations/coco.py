"""COCO-keypoints JSON, read as the rows that a CSV of the same annotations would have (see `folder`)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from normmatch.datasets.layout import Skipped
from normmatch.errors import DataError

Item = dict[str, Any]


def coco_rows(path: Path, content: Any, skipped: Skipped) -> Iterator[tuple[str, Item]]:
    """The labelled keypoints (v > 0) of the file with their places; annotations without one are counted."""
    images, categories, annotations = (_list(path, content, key) for key in ("images", "categories", "annotations"))
    files, classes = _by_id(path, "image", images), _by_id(path, "category", categories)
    for number, annotation in enumerate(annotations):
        where = f"{path.name} annotation {annotation.get('id', f'number {number}')}"
        image, category = _lookup(files, annotation.get("image_id")), _lookup(classes, annotation.get("category_id"))
        if image is None or category is None:
            raise DataError(f"{where}: its image_id or category_id is not in the file's images or categories.")
        points = _points(where, annotation.get("keypoints") or [], category.get("keypoints") or [])
        if not points:
            skipped.add("annotations without a labelled keypoint", where, expected=True)
            continue
        if not (isinstance(image.get("file_name"), str) and isinstance(category.get("name"), str)):
            raise DataError(f"{where}: its image needs a `file_name` and its category a `name`.")
        row = {"image": image["file_name"], "class": category["name"], "split": image.get("split", "train")}
        row |= {"object": str(number), **_box(where, annotation.get("bbox"))}
        for name, x, y in points:
            yield where, {**row, "name": name, "x": x, "y": y}


def _list(path: Path, content: Any, key: str) -> list[Item]:
    items = content.get(key) if isinstance(content, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise DataError(f"{path} is not a COCO-keypoints file: expected lists of images, annotations and categories.")
    return items


def _by_id(path: Path, kind: str, items: list[Item]) -> dict[Any, Item]:
    found: dict[Any, Item] = {}
    for item in items:
        key = item.get("id")
        if not isinstance(key, int | str) or key in found:
            raise DataError(f"{path}: the {kind} id {key!r} is missing, used twice or no number.")
        found[key] = item
    return found


def _lookup(items: dict[Any, Item], key: Any) -> Item | None:
    return items.get(key) if isinstance(key, int | str) else None


def _points(where: str, values: Any, names: Any) -> list[tuple[str, Any, Any]]:
    """[x, y, v, x, y, v, ...] by the category's names, without those of v = 0."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise DataError(f"{where}: the keypoints of its category must be a list of different names.")
    if not isinstance(values, list) or len(values) not in (0, 3 * len(names)):
        raise DataError(f"{where}: `keypoints` must hold x, y, v for each of the {len(names)} names of its category.")
    triples = list(zip(names, values[0::3], values[1::3], values[2::3], strict=False))
    if any(v not in (0, 1, 2) for *_, v in triples):
        raise DataError(f"{where}: the visibility v of a keypoint is not 0 (not labelled), 1 (hidden) or 2 (visible).")
    return [(name, x, y) for name, x, y, v in triples if v]


def _box(where: str, bbox: Any) -> Item:
    if bbox is None:
        return {}
    if not isinstance(bbox, list) or len(bbox) != 4:
        raise DataError(f"{where}: the box must be xmin, ymin, width and height.")
    return dict(zip(("xmin", "ymin", "width", "height"), bbox, strict=True))
