"""The label project: landmarks, photographs and their points, in one JSON file beside the photographs.

{"format": "normmatch project", "format_version": 1, "made_by": "NormMatch 0.2.0", "id": "p-5f3a", "revision": 42,
 "name": "Beetles",
 "landmarks": [{"name": "Left eye", "color": "#4fd0ff", "pair": "Right eye"}, ...],
 "skeleton": [["Left eye", "Right eye"], ...], "settings": {"turned": false, "mirrored": false}, "improved": null,
 "photographs": [
  {"file": "beetle_020.jpg", "width": 6000, "height": 4000, "reviewed": false, "skipped": false, "changed": 0,
   "box": [x, y, width, height] or null,
   "scale": {"per_pixel": 0.012, "unit": "mm"} or {"points": [[x, y], [x, y]], "length": 10, "unit": "mm"} or null,
   "points": {"Left eye": {"x": 1288.4, "y": 772, "from": "proposed", "score": 0.89, "visible": 0.97, "spread": 31.5},
              "Right eye": {"absent": true, "from": "person", "was": {...the proposal that it replaced}}}}, ...]}

A landmark that is not among the points is not set. `from` says who set it: `person`, `kept` (a proposal that a person
accepted), `copied` (from another photograph, not looked at yet) or `proposed`. `revision` grows with each edit. The
version before the last is kept beside it, as normmatch.previous.json. Reading and writing: `project_file.py`.
"""

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from normmatch.annotations import Annotation, Landmarks
from normmatch.geometry import Box
from normmatch.outputs import MADE_BY

FORMAT, FORMAT_VERSION = "normmatch project", 1
ORIGINS = ("person", "kept", "copied", "proposed")
UNITS = {"µm": 0.001, "um": 0.001, "mm": 1.0, "cm": 10.0, "m": 1000.0, "in": 25.4}  # millimetres
Json = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """A landmark in a photograph, as somebody set it or the machine proposes it."""

    origin: str
    xy: tuple[float, float] | None = None  # pixels of the upright photograph; None where nobody says
    absent: bool = False  # not in the picture
    score: float | None = None
    visible: float | None = None
    spread: float | None = None
    was: "Point | None" = None  # the proposal that a person replaced

    @property
    def certainty(self) -> float:
        """Of a proposal: the probability that it is right."""
        value = self.visible if self.absent else self.score
        return 0.0 if value is None else 1 - value if self.absent else value

    def as_json(self) -> Json:
        values = {"score": self.score, "visible": self.visible, "spread": self.spread}
        return {
            **({"absent": True} if self.absent else {}),
            **({} if self.xy is None else {"x": round(self.xy[0], 3), "y": round(self.xy[1], 3)}),
            "from": self.origin,
            **{key: round(value, 4) for key, value in values.items() if value is not None},
            **({} if self.was is None else {"was": self.was.as_json()}),
        }


@dataclass(frozen=True)
class Landmark:
    name: str
    color: str | None = None
    pair: str | None = None  # the landmark that it is exchanged with in a mirrored thing


@dataclass(frozen=True)
class Photograph:
    """A photograph and its points, by the landmarks' names; it is never changed, only replaced."""

    file: str  # as seen from the project's folder, with /
    width: int
    height: int
    points: Mapping[str, Point] = field(default_factory=dict)
    reviewed: bool = False
    skipped: bool = False
    changed: int = 0  # the revision that touched it last
    box: Box | None = None
    scale: Mapping[str, Any] | None = None

    @cached_property
    def text(self) -> str:
        """As JSON; kept, since most photographs are the same from one save to the next."""
        return json.dumps(self.as_json(), ensure_ascii=False)

    def as_json(self) -> Json:
        points = {name: point.as_json() for name, point in self.points.items()}
        return {
            "file": self.file, "width": self.width, "height": self.height, "reviewed": self.reviewed,
            "skipped": self.skipped, "changed": self.changed, "box": self.box and list(self.box),
            "scale": self.scale and dict(self.scale), "points": points,
        }  # fmt: skip


@dataclass(frozen=True)
class Project:
    name: str
    landmarks: tuple[Landmark, ...] = ()
    photographs: Mapping[str, Photograph] = field(default_factory=dict)  # by file, in their order
    skeleton: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, bool] = field(default_factory=lambda: {"turned": False, "mirrored": False})
    improved: Mapping[str, Any] | None = None
    revision: int = 0
    saved_by: str = ""  # the window, and its edit, that made this revision
    saved_edit: str = ""
    id: str = field(default_factory=lambda: f"p-{secrets.token_hex(6)}")  # for the page, which keeps unsent edits by it

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(landmark.name for landmark in self.landmarks)

    @property
    def reviewed(self) -> list[Photograph]:
        return [one for one in self.photographs.values() if one.reviewed]

    def keypoints(self, photograph: Photograph) -> np.ndarray:
        """(K, 2) in the landmarks' order; NaN where one is absent or not set."""
        points = (photograph.points.get(name) for name in self.names)
        places = [p.xy if p and p.xy and not p.absent else (math.nan, math.nan) for p in points]
        return np.array(places, dtype=np.float64).reshape(-1, 2)

    def head(self) -> Json:
        """All but the photographs, as JSON."""
        return {
            "format": FORMAT, "format_version": FORMAT_VERSION, "made_by": MADE_BY, "id": self.id,
            "revision": self.revision, "saved_by": self.saved_by, "saved_edit": self.saved_edit, "name": self.name,
            "landmarks": [{"name": one.name, "color": one.color, "pair": one.pair} for one in self.landmarks],
            "skeleton": [list(line) for line in self.skeleton], "settings": dict(self.settings),
            "improved": self.improved and dict(self.improved),
        }  # fmt: skip

    def text(self, **more: Any) -> str:
        """As JSON, a photograph a line; `more` goes before the photographs."""
        head = json.dumps({**self.head(), **more}, ensure_ascii=False)
        return head[:-1] + ', "photographs": [\n' + ",\n".join(one.text for one in self.photographs.values()) + "\n]}\n"

    def as_annotations(self, everything: bool = False) -> list[Annotation]:
        """The points of reviewed photographs, or of all that have some, with the scores of proposals."""
        pairs = tuple((one.name, one.pair) for one in self.landmarks if one.pair and one.name < one.pair)
        kind, found = Landmarks(self.names, self.skeleton, pairs), []
        for one in self.photographs.values():
            if not one.points or not (one.reviewed or everything):
                continue
            seen = {n: p for n in self.names if (p := one.points.get(n)) and p.xy and not p.absent}
            scores = [p.score if p.origin == "proposed" and p.score is not None else math.nan for p in seen.values()]
            found.append(
                Annotation(
                    one.file,
                    tuple(seen),
                    np.array([p.xy for p in seen.values()], dtype=np.float64).reshape(-1, 2),
                    box=one.box,
                    scores=np.array(scores) if any(map(math.isfinite, scores)) else None,
                    source=one.file,
                    landmarks=kind,
                    absent=tuple(n for n in self.names if n in one.points and n not in seen),
                    size=(one.width, one.height),
                    scale=millimetres(one.scale),
                )
            )
        return found


def millimetres(scale: Mapping[str, Any] | None) -> float | None:
    """Millimetres per pixel, of a photograph's scale; None where that is not known, or its unit."""
    if scale is None or scale["unit"] not in UNITS:
        return None
    if "per_pixel" in scale:
        return float(scale["per_pixel"]) * UNITS[scale["unit"]]
    (x0, y0), (x1, y1) = scale["points"]
    apart = math.hypot(x1 - x0, y1 - y0)
    return float(scale["length"]) * UNITS[scale["unit"]] / apart if apart else None
