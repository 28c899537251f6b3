"""JSON with shapes drawn on photographs: labelme (a file a photograph), VIA (also its CSV), AlphaTracker, old SLEAP.

Points count, other shapes do not, but for rectangles, which are the box of the object of their group. Points without a
name are counted from 1 within their photograph.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

from normmatch.annotations import Annotation, Landmarks, Row, make_annotation
from normmatch.annotations.reading import Reading
from normmatch.errors import DataError
from normmatch.io import parse_json

NAMING = ("name", "landmark", "label", "keypoint", "id", "type")  # attributes of VIA that may name a point
Item = dict[str, Any]


def read_labelme(path: Path, content: Any, how: Reading) -> list[Annotation]:
    """The objects of a photograph, by `group_id`."""
    image, size = how.image(path, str(content.get("imagePath") or ""), path.stem)
    width, height = (content.get(f"image{side}") for side in ("Width", "Height"))
    size = (width, height) if isinstance(width, int) and isinstance(height, int) and width > 0 < height else size
    groups: dict[Any, list[tuple[str, Row]]] = {}
    boxes: dict[Any, tuple[list[float], str]] = {}
    for number, shape in enumerate(content["shapes"]):
        where = f"{path.name} shape {number}"
        try:
            group, places = shape.get("group_id"), shape["points"]
            if shape["shape_type"] == "point":
                x, y = places[0]
                groups.setdefault(group, []).append((where, {"name": str(shape["label"]), "x": x, "y": y}))
            elif shape["shape_type"] == "rectangle":
                (x0, y0), (x1, y1) = places[0], places[2 if len(places) == 4 else 1]
                boxes[group] = [min(x0, x1), min(y0, y1), abs(x1 - x0), abs(y1 - y0)], str(shape["label"])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DataError(f"{where} is {short(shape)}; expected a label, points and a shape_type.") from error
    found = []
    for group, rows in groups.items():
        box, label = boxes.get(group, (None, "")) if group is not None else (None, "")
        about = {"object": "" if group is None else str(group), "box": box, "label": label}
        found.append(make_annotation(f"{path.name} group {group}", image, rows, size=size, **about))
    return found or [make_annotation(path.name, image, [], size=size)]


def write_labelme(annotations: Sequence[Annotation]) -> dict[str, str]:
    """A file for each photograph, which labelme opens beside it."""
    images: dict[str, list[Annotation]] = {}
    for item in annotations:
        images.setdefault(item.image, []).append(item)
    files = {}
    for image, items in images.items():
        shapes: list[Item] = []
        for number, item in enumerate(items, 1):
            group = int(item.object) if item.object.isdigit() else number
            own = group if len(items) > 1 or item.box else None
            if item.box:
                x, y, w, h = item.box
                shapes.append(_shape(item.label or "object", [[x, y], [x + w, y + h]], own, "rectangle"))
            shapes += [
                _shape(name, [xy], own, "point") for name, xy in zip(item.names, item.keypoints.tolist(), strict=True)
            ]
        width, height = items[0].size or (None, None)
        content: Item = {"version": "5.5.0", "flags": {}, "shapes": shapes, "imagePath": image, "imageData": None}
        text = json.dumps(content | {"imageHeight": height, "imageWidth": width}, indent=1, ensure_ascii=False)
        name = f"{Path(image).with_suffix('').as_posix().lstrip('/')}.json"
        if name in files:
            raise DataError(f"Two photographs would both have the labels {name}; expected different names.")
        files[name] = text
    return files


def _shape(label: str, points: list[list[float]], group: int | None, kind: str) -> Item:
    return {"label": label, "points": points, "group_id": group, "description": "", "shape_type": kind, "flags": {}}


def read_via(path: Path, content: Any, how: Reading) -> list[Annotation]:
    """The photographs of a project of VIA 1 or 2."""
    content = content.get("_via_img_metadata", content)
    found = []
    for key, entry in content.items():
        regions = entry.get("regions") or []
        regions = list(regions.values()) if isinstance(regions, dict) else regions
        found.append(_via_object(path, key, str(entry["filename"]), regions, how))
    return found


def read_via_csv(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The photographs of VIA's CSV, whose shapes are JSON in cells."""
    reader = csv.DictReader(io.StringIO(text.lstrip("#"), newline=""))
    images: dict[str, list[Item]] = {}
    for row in reader:
        regions = images.setdefault(row["filename"], [])
        shape, about = (
            parse_json(path, row.get(key) or "{}") for key in ("region_shape_attributes", "region_attributes")
        )
        regions.append({"shape_attributes": shape, "region_attributes": about})
    return [_via_object(path, name, name, regions, how) for name, regions in images.items()]


def _via_object(path: Path, key: str, name: str, regions: Sequence[Any], how: Reading) -> Annotation:
    where = f"{path.name} {short(key)}"
    image, size = how.image(path, name)
    rows: list[tuple[str, Row]] = []
    for region in regions:
        try:
            shape, about = region["shape_attributes"], region["region_attributes"]
            if shape.get("name") == "point":
                words = {k: v for k, v in about.items() if isinstance(v, str) and v.strip()}
                called = next((words[k] for k in (*NAMING, *words) if k in words), str(len(rows) + 1))
                rows.append((where, {"name": called, "x": shape["cx"], "y": shape["cy"]}))
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{where}: a region is {short(region)}; expected VIA's shape and attributes.") from error
    return make_annotation(where, image, rows, size=size)


def read_alphatracker(path: Path, content: Any, how: Reading) -> list[Annotation]:
    """The animals of AlphaTracker: a rectangle begins one, the points behind it are its landmarks."""
    most = max((sum(1 for _ in points) for entry in content for _, points in _animals(entry)), default=0)
    landmarks = how.landmarks(path.name, most)
    found = []
    for number, entry in enumerate(content):
        where = f"{path.name} image {number}"
        image, size = how.image(path, str(entry["filename"]))
        for index, (face, points) in enumerate(_animals(entry)):
            rows = [
                (where, {"name": name, "x": point.get("x"), "y": point.get("y")})
                for name, point in zip(landmarks.names, points, strict=False)
            ]
            box = [face.get(key) for key in ("x", "y", "width", "height")] if face else None
            about = {"box": box, "label": str(face.get("class", "")), "object": str(index), "landmarks": landmarks}
            found.append(make_annotation(where, image, rows, size=size, **about))
    return found


def _animals(entry: Item) -> list[tuple[Item, list[Item]]]:
    animals: list[tuple[Item, list[Item]]] = []
    for shape in entry.get("annotations", []):
        if shape.get("class") != "point":
            animals.append((shape, []))
        elif animals:
            animals[-1][1].append(shape)
        else:
            animals.append(({}, [shape]))
    return animals


def read_sleap(path: Path, content: Any, how: Reading) -> list[Annotation]:
    """The instances of SLEAP's old JSON, whose coordinates count from the corner of the first pixel."""
    try:
        return list(_instances(path, content, how))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"{path} cannot be read as labels of SLEAP ({type(error).__name__}: {error}).") from error


def _instances(path: Path, content: Item, how: Reading) -> Iterable[Annotation]:
    kinds = []
    for skeleton in content["skeletons"]:
        ids = [node["id"] if isinstance(node["id"], int) else node["id"]["py/id"] - 1 for node in skeleton["nodes"]]
        kinds.append(Landmarks(tuple(content["nodes"][k]["name"] for k in ids)))
    for frame in content["labels"]:
        video = content["videos"][int(frame["video"])]["backend"].get("filename", "")
        name = f"{Path(video.replace(chr(92), '/')).name}:{frame['frame_idx']}" if video else str(frame["frame_idx"])
        for number, instance in enumerate(frame["_instances"]):
            where = f"{path.name} frame {frame['frame_idx']} instance {number}"
            kind = kinds[int(instance["skeleton"])]
            rows = [
                (where, {"name": kind.names[int(k)], "x": p["x"], "y": p["y"], "visible": bool(p.get("visible", True))})
                for k, p in instance["_points"].items()
                if p["x"] == p["x"]  # not nan
            ]
            yield make_annotation(where, name, rows, landmarks=kind, object=str(number))
