"""Articulated figures as lists of parts: a person and a beetle in random poses.

A sketch lives in a plane of its own (x right, y down, a figure is one to two units long) and knows nothing of pixels;
`drawn.py` places, draws, covers and collects them. Left and right are always the figure's own. Its paired parts
look alike, so that only context tells them apart:

    person   seen from the front (a face) or from the back (hair, a backpack), which swaps the sides in the picture
    beetle   seen from above; its head may point any way that `drawn.HEADINGS` allows
"""

import colorsys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Point = tuple[float, float]
Color = tuple[int, int, int]

INK: Color = (38, 34, 46)  # outlines, pupils, thin limbs
WHITE: Color = (250, 248, 242)
MIN_GAP = 0.13  # two keypoints of a figure are never closer than this, in its own units
SKIN: tuple[Color, ...] = ((255, 219, 190), (241, 194, 155), (213, 160, 115), (160, 108, 72))
HAIR: tuple[Color, ...] = ((60, 42, 34), (120, 66, 30), (205, 150, 60), (96, 96, 104))


@dataclass(frozen=True)
class Part:
    """A chain of points with a radius each (one point is a disc), or, without radii, a polygon."""

    points: tuple[Point, ...]
    color: Color
    radii: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sketch:
    """A posed figure: its parts from back to front, and its visible keypoints in the order of its class."""

    parts: tuple[Part, ...]
    keypoints: dict[str, Point]


def vivid(rng: np.random.Generator) -> Color:
    """A random strong colour; backgrounds are pale, so that figures stand out."""
    r, g, b = colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.45, 0.85), rng.uniform(0.65, 0.95))
    return int(255 * r), int(255 * g), int(255 * b)


def shade(color: Color, factor: float) -> Color:
    """The colour, darker (factor below 1) or brighter."""
    r, g, b = (min(255, int(factor * value)) for value in color)
    return r, g, b


def step(start: Point, length: float, degrees: float, side: float = 1.0) -> Point:
    """The point `length` away; 0 degrees is down, 90 is outward: to the right where `side` is 1, to the left for -1."""
    angle = np.deg2rad(degrees)
    return start[0] + side * length * float(np.sin(angle)), start[1] + length * float(np.cos(angle))


def ellipse(
    center: Point, radii: Point, degrees: float = 0.0, span: tuple[float, float] = (0, 360)
) -> tuple[Point, ...]:
    """The outline of an ellipse turned by `degrees`, or its arc over `span`."""
    t = np.deg2rad(np.linspace(*span, 28))
    x, y = radii[0] * np.cos(t), radii[1] * np.sin(t)
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return tuple(zip((center[0] + c * x - s * y).tolist(), (center[1] + s * x + c * y).tolist(), strict=True))


def person(rng: np.random.Generator) -> Sketch:
    """Seen from the front, the left hand is on the picture's right; seen from the back, on its left."""
    front = rng.random() < 0.5
    shirt, trousers, pack = vivid(rng), vivid(rng), vivid(rng)
    skin, hair = SKIN[rng.integers(len(SKIN))], HAIR[rng.integers(len(HAIR))]
    points: dict[str, Point] = {}
    arms: list[Part] = []
    legs: list[Part] = []
    for name in ("left", "right"):
        side = 1.0 if (name == "left") == front else -1.0
        shoulder, hip = (0.23 * side, 0.40), (0.12 * side, 0.90)
        raised, spread = rng.uniform(15, 105), rng.uniform(0, 32)
        elbow = step(shoulder, 0.26, raised, side)
        hand = step(elbow, 0.26, raised + rng.uniform(-15, 60), side)
        knee = step(hip, 0.30, spread, side)
        foot = step(knee, 0.32, spread + rng.uniform(-30, 5), side)
        arms.append(Part((shoulder, elbow, hand), shirt, (0.085, 0.07, 0.055)))
        arms.append(Part((hand,), skin, (0.075,)))
        legs.append(Part((hip, knee, foot), trousers, (0.11, 0.09, 0.07)))
        legs.append(Part((foot, step(foot, 0.08, 70, side)), INK, (0.07, 0.055)))
        points |= {f"{name}_shoulder": shoulder, f"{name}_elbow": elbow, f"{name}_hand": hand}
        points |= {f"{name}_knee": knee, f"{name}_foot": foot}
        if front:
            points[f"{name}_eye"] = (0.105 * side, 0.02)
    points["head_top"] = (0.0, -0.27)
    torso = Part(((0.24, 0.33), (0.17, 0.95), (-0.17, 0.95), (-0.24, 0.33)), shirt)
    head = person_face(skin, hair) if front else person_back(hair, pack)
    return Sketch((*legs, torso, *head, *arms), points)


def person_face(skin: Color, hair: Color) -> list[Part]:
    """The head from the front: eyes, a mouth, hair above."""
    eyes = [Part(((0.105 * side, 0.02),), WHITE, (0.07,)) for side in (1, -1)]
    pupils = [Part(((0.105 * side, 0.03),), INK, (0.028,)) for side in (1, -1)]
    mouth = Part(ellipse((0, 0.12), (0.09, 0.06), span=(0, 180)), (190, 60, 60))
    fringe = Part(ellipse((0, -0.02), (0.28, 0.26), span=(195, 345)), hair)
    return [Part(((0, 0.02),), skin, (0.27,)), fringe, *eyes, *pupils, mouth]


def person_back(hair: Color, pack: Color) -> list[Part]:
    """The head from the back is all hair; a backpack hangs below it."""
    bag = Part(((0.15, 0.42), (0.16, 0.84), (-0.16, 0.84), (-0.15, 0.42)), pack)
    pocket = Part(((0.1, 0.62), (0.1, 0.79), (-0.1, 0.79), (-0.1, 0.62)), shade(pack, 0.75))
    return [bag, pocket, Part(((0, 0.02),), hair, (0.28,)), Part(((0, 0.2),), hair, (0.14,))]


def beetle(rng: np.random.Generator) -> Sketch:
    """From above, head up: its left is the picture's left until the figure is turned."""
    shell, skin = vivid(rng), shade(vivid(rng), 0.6)
    points: dict[str, Point] = {}
    limbs: list[Part] = []
    eyes: list[Part] = []
    for name, side in (("left", -1.0), ("right", 1.0)):
        for place, y, angle in (("front", -0.22, 125), ("middle", 0.0, 90), ("hind", 0.22, 55)):
            out = angle + rng.uniform(-14, 14)
            knee = step((0.2 * side, y), 0.26, out, side)
            foot = step(knee, 0.24, out + rng.uniform(-30, 30), side)
            limbs.append(Part(((0.15 * side, y), knee, foot), skin, (0.06, 0.05, 0.035)))
            points[f"{name}_{place}_foot"] = foot
        base = (0.06 * side, -0.58)
        bend = step(base, 0.16, rng.uniform(150, 175), side)
        antenna = step(bend, 0.18, rng.uniform(105, 165), side)
        limbs += [Part((base, bend, antenna), skin, (0.03,) * 3), Part((antenna,), shell, (0.05,))]
        eye = (0.12 * side, -0.56)
        eyes += [Part((eye,), WHITE, (0.075,)), Part((eye,), INK, (0.026,))]
        points |= {f"{name}_antenna": antenna, f"{name}_eye": eye}
    points |= {"neck": (0.0, -0.32), "tail": (0.0, 0.56)}
    body = (
        Part(((0, -0.48),), skin, (0.17,)),
        *eyes,
        Part(ellipse((0, 0.12), (0.30, 0.45)), shell),
        Part(ellipse((0, -0.3), (0.24, 0.14)), skin),
        Part(((0, -0.17), (0, 0.54)), INK, (0.012, 0.012)),  # where the wings meet
    )
    return Sketch((*limbs, *body), points)


FIGURES: dict[str, Callable[[np.random.Generator], Sketch]] = {
    "person": person,
    "beetle": beetle,
}


def sketch(label: str, rng: np.random.Generator) -> Sketch:
    """A random pose of the class in which no two keypoints fall together, with its names in one order."""
    while True:
        figure = FIGURES[label](rng)
        xy = np.array(list(figure.keypoints.values()))  # (K, 2)
        gaps = np.linalg.norm(xy[:, None] - xy[None], axis=-1)  # (K, K)
        if gaps[~np.eye(len(xy), dtype=bool)].min() >= MIN_GAP:
            return Sketch(figure.parts, dict(sorted(figure.keypoints.items())))
