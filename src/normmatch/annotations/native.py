"""Our own JSON. All but image, x and y may be left out; a box is xmin, ymin, width and height.

{"landmarks": {"cat": {"names": ["left_eye", ...], "skeleton": [["left_eye", "nose"]], "pairs": [["left_eye", ...]]}},
 "images": [{"image": "a.jpg", "class": "cat", "split": "train", "box": [10, 20, 300, 200], "object": "Tom",
             "absent": ["tail"], "mm_per_pixel": 0.02, "size": [640, 480], "curves": [[[1, 2], [3, 4]]],
             "keypoints": [{"name": "left_eye", "x": 120.5, "y": 88, "visible": true, "score": 0.9}, ...]}, ...]}
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from normmatch.annotations import Annotation, Landmarks, filled, known_scores, make_annotation
from normmatch.errors import DataError
from normmatch.outputs import MADE_BY

KEYS = ("image", "keypoints", "box", "class", "split", "object", "absent", "mm_per_pixel", "size", "curves")
LISTS = ("names", "skeleton", "pairs")


def read(path: Path, content: Any, _: Any = None) -> list[Annotation]:
    """The objects of a file, given what it holds."""
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(
            f"{path} is no keypoints file: expected a list `images` (ours), or COCO's images, annotations and "
            "categories."
        )
    kinds = _landmarks(path, content.get("landmarks") or {})
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
        about = {"box": entry.get("box"), "label": label, "split": split, **_more(where, entry)}
        if isinstance(label, str) and label in kinds:
            about["landmarks"] = kinds[label]
        found.append(make_annotation(where, filled(where, entry, "image"), rows, **about))
    return found


def _landmarks(path: Path, content: Any) -> dict[str, Landmarks]:
    """The landmarks of each class."""
    kinds = {}
    for label, lists in content.items() if isinstance(content, dict) else []:
        try:
            names = tuple(lists["names"])
            skeleton, pairs = (tuple((a, b) for a, b in lists.get(key, [])) for key in LISTS[1:])
            if not all(isinstance(name, str) for name in names) or not {*sum(skeleton + pairs, ())} <= {*names}:
                raise ValueError
        except (TypeError, ValueError, KeyError, AttributeError):
            raise DataError(
                f"{path.name}: the landmarks of {short(label)} need `names`; skeleton and pairs hold two of them each."
            ) from None
        kinds[str(label)] = Landmarks(names, skeleton, pairs)
    return kinds


def _more(where: str, entry: dict[str, Any]) -> dict[str, Any]:
    """What an object has beside keypoints, box, class and split."""
    try:
        size, scale = entry.get("size"), entry.get("mm_per_pixel")
        absent, name = entry.get("absent") or [], entry.get("object") or ""
        if not isinstance(name, str) or not all(isinstance(word, str) for word in absent):
            raise ValueError("expected text")
        return {
            "object": name,
            "absent": tuple(absent),
            "scale": None if scale is None else float(scale),
            "size": None if size is None else (int(size[0]), int(size[1])),
            "curves": tuple(np.array(c, np.float64).reshape(-1, 2) for c in entry.get("curves") or []),
        }
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise DataError(
            f"{where}: object, absent, mm_per_pixel, size or curves cannot be read ({error}); expected text, a list of "
            "names, a number, width and height, and lists of points."
        ) from error


def write(annotations: Sequence[Annotation], settings: Mapping[str, Any] | None = None) -> str:
    """The text of a file; `settings` say how the keypoints came about."""
    kinds = {item.label: item.landmarks for item in annotations if item.landmarks and has_order(item)}
    head: dict[str, Any] = {"made_by": MADE_BY} | ({"settings": dict(settings)} if settings else {})
    if kinds:
        head["landmarks"] = {
            label: {key: getattr(kind, key) for key in LISTS if getattr(kind, key)} for label, kind in kinds.items()
        }
    return json.dumps(head | {"images": [as_entry(item) for item in annotations]})


def has_order(item: Annotation) -> bool:
    """Whether its list of landmarks says more than its own names do."""
    kind = item.landmarks
    return kind is not None and (kind.names != item.names or bool(kind.skeleton or kind.pairs))


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
    more: dict[str, Any] = {
        "class": item.label,
        "split": item.split,
        "object": item.object,
        "absent": item.absent,
        "size": item.size,
    }
    more |= {"mm_per_pixel": item.scale, "curves": [curve.tolist() for curve in item.curves]}
    return entry | {key: value for key, value in more.items() if value}
