"""COCO-keypoints JSON, with two keys more where keypoints have scores.

An annotation's `keypoint_scores` has the score of each of its category's names, 0 where there is no such keypoint, and
`score` is the mean of the others; an image may have a `split`. An annotation without a labelled keypoint (v > 0) is
read as an object without keypoints, and so is an image without an annotation. Tools do not agree whether the centre of
the first pixel is at 0 or 0.5; nothing is added here. Nor do they agree on the rest: names may be left out (points are
counted from 1 then), categories too, v may be 0 and 1 alone (1 is visible then), edges may count from 0 or 1.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

from normmatch.annotations import Annotation, Landmarks, Row, filled, known_scores, make_annotation
from normmatch.checks import read_number
from normmatch.errors import DataError
from normmatch.outputs import MADE_BY

DIGITS = 6  # of a mean score
Item = dict[str, Any]


def read(path: Path, content: Any, _: Any = None) -> list[Annotation]:
    """The objects of a file, given what it holds."""
    images, categories, annotations = (_list(path, content, key) for key in ("images", "categories", "annotations"))
    files, classes = _by_id(path, "image", images), _by_id(path, "category", categories)
    kinds: dict[Any, Landmarks] = {}
    flags = {v for annotation in annotations for v in _values(annotation)[2::3] if isinstance(v, int | float)}
    seen = 1 if flags <= {0, 1} else 2  # the v of what can be seen
    found = []
    for number, annotation in enumerate(annotations):
        where = f"{path.name} annotation {short(annotation.get('id', f'number {number}')).strip(chr(39))}"
        image, key = _lookup(files, annotation.get("image_id")), annotation.get("category_id")
        category = _lookup(classes, key) or {"name": f"category {key}"}
        if image is None or not isinstance(key, int | str):
            raise DataError(f"{where}: its image_id or category_id is not in the file's images or categories.")
        if not (isinstance(image.get("file_name"), str) and isinstance(category.get("name"), str)):
            raise DataError(f"{where}: its image needs a `file_name` and its category a `name`.")
        if key not in kinds:
            kinds[key] = _landmarks(where, category, len(_values(annotation)) // 3)
        rows = _rows(where, annotation, kinds[key].names, seen)
        box = annotation.get("bbox") if rows else None  # the unlabelled ones may have boxes of any kind
        about = {"label": category["name"], "box": box, "landmarks": kinds[key], **_about(image)}
        about |= {"object": annotation["object"]} if isinstance(annotation.get("object"), str) else {}
        found.append(make_annotation(where, filled(where, image, "file_name"), rows, **about))
    named = {annotation.get("image_id") for annotation in annotations}
    for key, image in files.items():
        if key not in named and isinstance(image.get("file_name"), str) and found:
            found.append(make_annotation(f"{path.name} image {key}", image["file_name"], [], **_about(image)))
    return found


def _about(image: Item) -> Item:
    """What an image says of all its objects."""
    width, height = (read_number(image.get(side)) for side in ("width", "height"))
    scale = read_number(image.get("mm_per_pixel"))
    return {
        "split": "" if image.get("split") is None else image["split"],
        "size": (int(width), int(height)) if 0 < min(width, height) < 1e6 > max(width, height) else None,
        "scale": scale if 0 < scale < float("inf") else None,
    }


def _landmarks(where: str, category: Item, count: int) -> Landmarks:
    """The names of a category, or numbers, and its skeleton."""
    names = category.get("keypoints") or [*map(str, range(1, count + 1))]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise DataError(f"{where}: the keypoints of its category must be a list of different names.")
    edges = category.get("skeleton") or []
    ends = [end for edge in edges for end in edge] if all(isinstance(edge, list) for edge in edges) else ["?"]
    first = 0 if 0 in ends else 1
    if not all(isinstance(end, int) and first <= end < first + len(names) for end in ends):
        edges = []  # of other numbers than the names': not worth refusing the points
    return Landmarks(tuple(names), tuple((names[a - first], names[b - first]) for a, b in edges))


def write(
    annotations: Sequence[Annotation],
    sizes: Mapping[str, tuple[int, int]] | None = None,
    about: str = "",
    settings: Mapping[str, Any] | None = None,
) -> str:
    """The text of a file.

    Args:
        annotations: the objects.
        sizes: the widths and heights of images that are known, beside those that the objects know.
        about: describes it all.
        settings: how the keypoints came about.
    """
    images: dict[str, Item] = {}
    categories: dict[str, Item] = {}
    for item in annotations:
        image: Item = {"id": len(images) + 1, "file_name": item.image} | ({"split": item.split} if item.split else {})
        width, height = (sizes or {}).get(item.image, item.size or (0, 0))
        image |= {"mm_per_pixel": item.scale} if item.scale else {}
        images.setdefault(item.image, image | ({"width": width, "height": height} if width else {}))
        category: Item = {"id": len(categories) + 1, "name": item.label or "object", "keypoints": [], "skeleton": []}
        category = categories.setdefault(item.label, category)
        names = category["keypoints"]
        names += [name for name in dict.fromkeys((*item.order, *item.names)) if name not in names]
        for a, b in item.landmarks.skeleton if item.landmarks else ():
            edge = [names.index(a) + 1, names.index(b) + 1]
            category["skeleton"] += [edge] if edge not in category["skeleton"] else []
    entries = [
        {"id": number, "image_id": images[item.image]["id"], **_annotation(item, categories[item.label])}
        for number, item in enumerate(annotations, 1)
    ]
    content = {"images": [*images.values()], "annotations": entries, "categories": [*categories.values()]}
    info = ({"description": about} if about else {}) | ({"settings": dict(settings)} if settings else {})
    head: Item = {"made_by": MADE_BY} | ({"info": info} if info else {})
    return json.dumps(head | content)


def _annotation(item: Annotation, category: Item) -> Item:
    """An object with x, y, v for each name of its category: v is 0 for those it has not, 1 hidden, 2 visible."""
    seen = [2] * len(item.names) if item.visible is None else [1 + int(v) for v in item.visible]
    points = {name: [*xy, v] for name, xy, v in zip(item.names, item.keypoints.tolist(), seen, strict=True)}
    entry: Item = {"category_id": category["id"], "iscrowd": 0}
    entry["keypoints"] = [value for name in category["keypoints"] for value in points.get(name, [0, 0, 0])]
    entry["num_keypoints"] = len(points)
    entry |= {"object": item.object} if item.object else {}
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


def _values(annotation: Item) -> list[Any]:
    values = annotation.get("keypoints") or []
    return values if isinstance(values, list) else [None]


def _rows(where: str, annotation: Item, names: Sequence[str], seen: int) -> list[tuple[str, Row]]:
    """The keypoints [x, y, v, x, y, v, ...] by the category's names, without those of v = 0."""
    values = _values(annotation)
    if len(values) not in (0, 3 * len(names)):
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
        (where, {"name": name, "x": x, "y": y, "visible": v >= seen, "score": score})
        for name, x, y, v, score in points
        if v
    ]
