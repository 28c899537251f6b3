"""CVAT's XML, of images and of video.

A `<skeleton>` is an object whose sub-labels are its landmarks; `outside` is absent, `occluded` hidden. One `<points>`
with many places is an object whose landmarks have no names; several with one place each are the landmarks of one
object, by their labels, if no label is there twice; points of one label alone have no identity. Boxes go to the only
object of a photograph, or to that of their group. Names and addresses of people in the file are not read.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from normmatch.annotations import Annotation, Landmarks, Row, make_annotation
from normmatch.annotations.reading import Reading
from normmatch.annotations.tps import all_names
from normmatch.checks import read_number
from normmatch.errors import DataError

Node = ElementTree.Element
Points = list[tuple[str, Row]]
ALONE = "point "  # what objects of one point are called


def read(path: Path, text: str, how: Reading) -> list[Annotation]:
    """The objects of all images, or frames."""
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"{path} is not an XML file that can be read ({error}).") from error
    if root.tag != "annotations":
        what = "a labelling configuration" if root.tag == "View" else f"<{root.tag[:30]}>"
        raise DataError(f"{path} has no landmarks, it is {what}; expected the <annotations> of CVAT.")
    order = _order(root)
    names = Counter(image.get("name", "") for image in root.iter("image"))
    found = []
    for image in [*root.iter("image"), *_frames(root)]:
        name, part = image.get("name", ""), image.get("subset", "")
        called, size = how.image(path, f"{part}/{name}" if names[name] > 1 and part else name)
        width, height = (read_number(image.get(side)) for side in ("width", "height"))
        size = (int(width), int(height)) if width > 0 and height > 0 else size
        about = {"size": size, "split": part.lower() if part.lower() in ("train", "val", "test") else ""}
        found += _objects(f"{path.name} image {name!r}", called, image, order, how, about)
    alone = sum(item.object.startswith(ALONE) for item in found)
    if alone:
        warnings.warn(
            f"{path.name}: {alone} points share their label with others of their photograph, so nothing says which "
            "landmark each is; they are read as objects of one point",
            stacklevel=2,
        )
    return found


def _order(root: Node) -> dict[str, list[str]]:
    """The sub-labels of each skeleton in their order."""
    order: dict[str, list[str]] = {}
    for label in root.iter("label"):
        if label.findtext("parent"):
            order.setdefault(label.findtext("parent") or "", []).append(label.findtext("name") or "")
    return order


def _frames(root: Node) -> Iterator[Node]:
    """The frames of a video with what the tracks have in them, like images."""
    frames: dict[int, Node] = {}
    size = root.find(".//original_size")
    for track in root.iter("track"):
        for shape in track:
            if shape.get("frame", "").isdigit() and shape.get("outside") != "1":
                number = int(shape.get("frame", "0"))
                sides = {side: size.findtext(side) or "" for side in ("width", "height")} if size is not None else {}
                frame = frames.setdefault(number, ElementTree.Element("image", {"name": str(number), **sides}))
                shape.set("label", shape.get("label") or track.get("label") or "")
                shape.set("object", track.get("id") or "")
                frame.append(shape)
    yield from (frames[number] for number in sorted(frames))


def _objects(
    where: str, image: str, node: Node, order: dict[str, list[str]], how: Reading, about: dict[str, Any]
) -> list[Annotation]:
    found: list[tuple[str, dict[str, Any], Points]] = []  # group, what is known, points
    single: list[Node] = []
    for shape in node:
        label, places = shape.get("label", ""), shape.get("points", "").split(";")
        known = {"label": label, "object": shape.get("object", ""), "group": shape.get("group_id", "")}
        if shape.tag == "skeleton":
            parts = [(part, _places(where, part)) for part in shape.findall("points")]
            absent = [part.get("label", "") for part, _ in parts if part.get("outside") == "1"]
            names = order.get(label) or [part.get("label", "") for part, _ in parts]
            points = [
                (where, _row(part.get("label", ""), xy[0], part)) for part, xy in parts if part.get("outside") != "1"
            ]
            found.append((label, known | {"landmarks": Landmarks(tuple(names)), "absent": tuple(absent)}, points))
        elif shape.tag == "points" and len(places) > 1:
            listed = _places(where, shape)
            landmarks = how.landmarks(where, len(listed))
            points = [(where, _row(name, xy, shape)) for name, xy in zip(landmarks.names, listed, strict=True)]
            found.append((label, known | {"landmarks": landmarks}, points))
        elif shape.tag == "points" and shape.get("outside") != "1":
            single.append(shape)
    found += _singles(where, single)
    boxes = node.findall("box")
    objects = []
    for _, known, points in found:
        group = known.pop("group")
        own = [box for box in boxes if (len(found) == len(boxes) == 1) or (group and box.get("group_id") == group)]
        box = _box(own[0]) if len(own) == 1 else None
        objects.append(make_annotation(where, image, points, box=box, **known, **about))
    return objects or [make_annotation(where, image, [], **about)]


def _singles(where: str, shapes: Sequence[Node]) -> list[tuple[str, dict[str, Any], Points]]:
    """Elements with one place each: one object if their labels tell them apart, else objects of one point."""
    rows = [(where, _row(shape.get("label", ""), _places(where, shape)[0], shape)) for shape in shapes]
    names = [row["name"] for _, row in rows]
    if len(set(names)) == len(names):
        return [("", {"group": ""}, rows)] if rows else []
    abouts = [{"group": "", "object": f"{ALONE}{number}"} for number in range(1, len(rows) + 1)]
    return [(name, about, [row]) for name, about, row in zip(names, abouts, rows, strict=True)]


def _row(name: str, xy: tuple[str, str], node: Node) -> Row:
    return {"name": name, "x": xy[0], "y": xy[1], "visible": node.get("occluded") != "1"}


def _places(where: str, node: Node) -> list[tuple[str, str]]:
    places = [tuple(place.split(",")) for place in node.get("points", "").split(";")]
    if any(len(place) != 2 for place in places):
        raise DataError(f"{where}: the points are {node.get('points', '')[:40]!r}; expected x,y;x,y.")
    return places  # type: ignore[return-value]


def _box(node: Node) -> list[float] | None:
    left, top, right, bottom = (read_number(node.get(side)) for side in ("xtl", "ytl", "xbr", "ybr"))
    return [left, top, right - left, bottom - top] if right > left and bottom > top else None


def write(annotations: Sequence[Annotation]) -> str:
    """The text of a file for images: each object is a skeleton, whose labels must be those of the task."""
    images: dict[str, list[Annotation]] = {}
    names: dict[str, list[str]] = {}
    for item in annotations:
        images.setdefault(item.image, []).append(item)
        names.setdefault(item.label or "object", [])
    for label in names:
        names[label] = all_names([item for item in annotations if (item.label or "object") == label])
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        "<annotations>",
        "  <version>1.1</version>",
        "  <meta><task><labels>",
    ]
    for label, parts in names.items():
        lines.append(f"    <label><name>{_text(label)}</name><type>skeleton</type></label>")
        for part in parts:
            kind = f"<type>points</type><parent>{_text(label)}</parent>"
            lines.append(f"    <label><name>{_text(part)}</name>{kind}</label>")
    lines.append("  </labels></task></meta>")
    for number, (image, items) in enumerate(images.items()):
        size = items[0].size
        if size is None:
            raise DataError(f"The size of {image} is not known, and CVAT wants it; expected the photograph.")
        part = f' subset="{items[0].split}"' if items[0].split else ""
        sides = f'width="{size[0]}" height="{size[1]}"'
        lines.append(f'  <image id="{number}" name={quoteattr(image)}{part} {sides}>')
        for group, item in enumerate(items, 1):
            if item.names or item.absent:
                lines += _skeleton(item, names[item.label or "object"], group)
        lines.append("  </image>")
    return "\n".join([*lines, "</annotations>"]) + "\n"


def _text(text: str) -> str:
    return quoteattr(text)[1:-1].replace("&quot;", '"')


def _skeleton(item: Annotation, names: Sequence[str], group: int) -> list[str]:
    label, tie = quoteattr(item.label or "object"), f'group_id="{group}"'
    lines = [f'    <skeleton label={label} source="manual" z_order="0" {tie}>']
    places = {
        name: (index, xy) for index, (name, xy) in enumerate(zip(item.names, item.keypoints.tolist(), strict=True))
    }
    for name in names:
        index, (x, y) = places.get(name, (-1, (0.0, 0.0)))
        hidden = int(index >= 0 and item.visible is not None and not item.visible[index])
        state = f'outside="{int(index < 0)}" occluded="{hidden}"'
        lines.append(f'      <points label={quoteattr(name)} {state} points="{x:.10g},{y:.10g}"></points>')
    lines.append("    </skeleton>")
    if item.box:
        x, y, w, h = item.box
        corners = f'xtl="{x:.10g}" ytl="{y:.10g}" xbr="{x + w:.10g}" ybr="{y + h:.10g}"'
        lines.append(f'    <box label={label} source="manual" occluded="0" {corners} z_order="0" {tie}></box>')
    return lines
