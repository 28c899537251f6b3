"""Our own JSON. All but image, x and y may be left out; a box is xmin, ymin, width and height.

{"images": [{"image": "a.jpg", "class": "cat", "split": "train", "box": [10, 20, 300, 200],
             "keypoints": [{"name": "left_eye", "x": 120.5, "y": 88, "visible": true, "score": 0.9}, ...]}, ...]}
"""

import json
from collections.abc import Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

from normmatch.annotations import Annotation, filled, known_scores, make_annotation
from normmatch.errors import DataError
from normmatch.outputs import MADE_BY

KEYS = ("image", "keypoints", "box", "class", "split")


def read(path: Path, content: Any) -> list[Annotation]:
    """The objects of a file, given what it holds."""
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(
            f"{path} is no keypoints file: expected a list `images` (ours), or COCO's images, annotations and "
            "categories."
        )
    found = []
    for index, entry in enumerate(entries):
        where = f"{path.name} image number {index}"
        if not isinstance(entry, dict) or not isinstance(entry.get("image"), str):
            raise DataError(f"{where}: expected an object with `image`, the name of a file, and `keypoints`.")
        unknown = sorted(map(str, entry.keys() - set(KEYS)))
        if unknown:
            raise DataError(f"{where}: the key {short(unknown[0])} is unknown; expected {', '.join(KEYS)}.")
        points = entry.get("keypoints")
        if not isinstance(points, list) or not all(isinstance(p, dict) and {"x", "y"} <= p.keys() for p in points):
            raise DataError(f"{where}: `keypoints` must be a list of objects with name, x and y.")
        rows = [(f"{where} keypoint number {k}", {"name": str(k), **point}) for k, point in enumerate(points)]
        label, split = ("" if entry.get(key) is None else entry[key] for key in ("class", "split"))
        found.append(
            make_annotation(where, filled(where, entry, "image"), rows, box=entry.get("box"), label=label, split=split)
        )
    return found


def write(annotations: Sequence[Annotation]) -> str:
    """The text of a file."""
    return json.dumps({"made_by": MADE_BY, "images": [as_entry(item) for item in annotations]})


def as_entry(item: Annotation) -> dict[str, Any]:
    """An object as an entry of `images`."""
    points: list[dict[str, Any]] = [
        {"name": name, "x": x, "y": y} for name, (x, y) in zip(item.names, item.keypoints.tolist(), strict=True)
    ]
    if item.visible is not None:
        for point, seen in zip(points, item.visible.tolist(), strict=True):
            point["visible"] = seen
    for index, score in known_scores(item):
        points[index]["score"] = score
    entry: dict[str, Any] = {"image": item.image, "keypoints": points}
    if item.box is not None:
        entry["box"] = list(item.box)
    return entry | {key: value for key, value in (("class", item.label), ("split", item.split)) if value}
