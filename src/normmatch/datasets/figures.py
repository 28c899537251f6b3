"""Articulated figures as lists of parts: a person, a horse, a bird and a beetle in random poses.

A sketch lives in a plane of its own (x right, y down, a figure is one to two units long) and knows nothing of pixels;
`drawn.py` places, draws, covers and collects them. Left and right are always the figure's own. Its paired parts
look alike, so that only context tells them apart:

    person   seen from the front (a face) or from the back (hair, a backpack), which swaps the sides in the picture
    horse    faces right (its right side is near) or left; the far legs are darker, whichever side they belong to
    bird     the same, with wings
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
FAR_SHADE = 0.45  # brightness of a far leg or wing: the smaller, the easier near and far are told apart
MIN_GAP = 0.13  # two keypoints of a figure are never closer than this, in its own units
SOCK: Color = (244, 236, 218)
SKIN: tuple[Color, ...] = ((255, 219, 190), (241, 194, 155), (213, 160, 115), (160, 108, 72))
HAIR: tuple[Color, ...] = ((60, 42, 34), (120, 66, 30), (205, 150, 60), (96, 96, 104))


@dataclass(frozen=True)
class Part:
    """A chain of points with a radius each (one point is a disc), or, without radii, a polygon."""

    points: tuple[Point, ...]
    color: Color
    radii: tuple[float, ...] = ()
    textured: bool = False


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
        arms.append(Part((shoulder, elbow, hand), shirt, (0.085, 0.07, 0.055), textured=True))
        arms.append(Part((hand,), skin, (0.075,)))
        legs.append(Part((hip, knee, foot), trousers, (0.11, 0.09, 0.07)))
        legs.append(Part((foot, step(foot, 0.08, 70, side)), INK, (0.07, 0.055)))
        points |= {f"{name}_shoulder": shoulder, f"{name}_elbow": elbow, f"{name}_hand": hand}
        points |= {f"{name}_knee": knee, f"{name}_foot": foot}
        if front:
            points[f"{name}_eye"] = (0.105 * side, 0.02)
    points["head_top"] = (0.0, -0.27)
    torso = Part(((0.24, 0.33), (0.17, 0.95), (-0.17, 0.95), (-0.24, 0.33)), shirt, textured=True)
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


def turned(sketch: Sketch, facing_left: bool) -> Sketch:
    """The sketch as drawn, facing right, or its mirror image; names are given after `facing_left` already."""
    if not facing_left:
        return sketch

    def mirrored(points: tuple[Point, ...]) -> tuple[Point, ...]:
        return tuple((-x, y) for x, y in points)

    parts = tuple(Part(mirrored(part.points), part.color, part.radii, part.textured) for part in sketch.parts)
    return Sketch(parts, {name: (-x, y) for name, (x, y) in sketch.keypoints.items()})


def horse(rng: np.random.Generator) -> Sketch:
    """From the side; the side that is near is the left one where the horse faces left."""
    facing_left = rng.random() < 0.5
    near, far = ("left", "right") if facing_left else ("right", "left")
    coat, mane = vivid(rng), HAIR[rng.integers(len(HAIR))]
    dark = shade(coat, FAR_SHADE)
    points: dict[str, Point] = {}
    legs: dict[str, list[Part]] = {near: [], far: []}
    for name, color, shift in ((near, coat, -0.05), (far, dark, 0.07)):
        for place, x in (("front", 0.36), ("hind", -0.38)):
            hip, swing = (x + shift, 0.10), rng.uniform(-32, 32)
            knee = step(hip, 0.32, swing)
            foot = step(knee, 0.30, swing + rng.uniform(-40, 5))
            legs[name].append(Part((hip, knee, foot), color, (0.11, 0.075, 0.06), textured=name == near))
            legs[name].append(Part((foot,), shade(SOCK, 1.0 if name == near else FAR_SHADE), (0.07,)))
            points |= {f"{name}_{place}_knee": knee, f"{name}_{place}_foot": foot}
    withers = (0.38, -0.12)
    poll = step(withers, 0.46, rng.uniform(115, 160))  # the top of the neck
    nose = step(poll, 0.34, rng.uniform(35, 85))
    eye = (0.75 * poll[0] + 0.25 * nose[0], 0.75 * poll[1] + 0.25 * nose[1] - 0.02)
    near_ear, far_ear = step(poll, 0.27, rng.uniform(185, 215)), step(poll, 0.27, rng.uniform(140, 165))
    tail_base = (-0.56, -0.08)
    tail = step(tail_base, 0.24, rng.uniform(-115, -50))
    tail_tip = step(tail, 0.26, rng.uniform(-70, 0))
    points |= {f"{near}_ear": near_ear, f"{far}_ear": far_ear, f"{near}_eye": eye}
    points |= {"nose": nose, "withers": withers, "tail_base": tail_base, "tail_tip": tail_tip}
    parts = (
        *legs[far],
        Part((poll, far_ear), dark, (0.08, 0.03)),
        Part((tail_base, tail, tail_tip), mane, (0.05, 0.07, 0.04)),
        Part(((-0.38, 0.0), (0.0, 0.03), (0.36, 0.0)), coat, (0.23, 0.20, 0.22), textured=True),
        Part((step(withers, 0.1, -90), step(poll, 0.1, -120)), mane, (0.07, 0.08)),
        Part(((0.36, 0.0), poll), coat, (0.17, 0.12), textured=True),
        Part((poll, nose), coat, (0.14, 0.09)),
        Part((nose,), shade(coat, 1.35), (0.09,)),
        Part((poll, near_ear), coat, (0.08, 0.03)),
        Part((eye,), WHITE, (0.075,)),
        Part((eye,), INK, (0.026,)),
        *legs[near],
    )
    return turned(Sketch(parts, points), facing_left)


def bird(rng: np.random.Generator) -> Sketch:
    """From the side with both wings raised; near and far as for the horse."""
    facing_left = rng.random() < 0.5
    near, far = ("left", "right") if facing_left else ("right", "left")
    coat, beak_color = vivid(rng), (240, 160, 40)
    dark, bright = shade(coat, FAR_SHADE), shade(coat, 1.35)
    points: dict[str, Point] = {}
    wings: dict[str, Part] = {}
    legs: dict[str, Part] = {}
    front, rear = (
        (0.08, -183.0),
        (-0.08, -122.0),
    )  # where a wing begins and how it is lifted; either may be the near one
    near_wing, far_wing = (front, rear) if rng.random() < 0.5 else (rear, front)
    for name, color, (x, lift), shift in ((near, bright, near_wing, -0.12), (far, dark, far_wing, 0.12)):
        root, lift = (x, -0.05), lift + rng.uniform(-10, 10)
        bend = step(root, 0.42, lift)
        tip = step(bend, 0.42, lift + rng.uniform(15, 55))
        wings[name] = Part((root, bend, tip), color, (0.16, 0.13, 0.05), textured=name == near)
        hip = (shift, 0.2)
        knee = step(hip, 0.2, rng.uniform(-25, 25))
        foot = step(knee, 0.2, rng.uniform(-30, 30))
        leg_color = shade(beak_color, 1 if name == near else FAR_SHADE)
        legs[name] = Part((hip, knee, foot, step(foot, 0.12, 80)), leg_color, (0.05, 0.04, 0.035, 0.03))
        points |= {f"{name}_wing_bend": bend, f"{name}_wing_tip": tip, f"{name}_foot": foot}
    head = (0.46 + rng.uniform(-0.06, 0.06), -0.28 + rng.uniform(-0.08, 0.1))
    beak = step(head, 0.38, rng.uniform(70, 110))
    eye, crown = (head[0] + 0.06, head[1] - 0.04), (head[0] - 0.03, head[1] - 0.19)
    tail = step((-0.36, 0.05), 0.42, rng.uniform(-120, -70))
    points |= {"beak": beak, f"{near}_eye": eye, "crown": crown, "breast": (0.34, 0.12), "tail_tip": tail}
    parts = (
        wings[far],
        legs[far],
        legs[near],
        Part(((-0.25, 0.05), tail), dark, (0.10, 0.13)),
        Part(ellipse((0.0, 0.05), (0.44, 0.25), -12), coat, textured=True),
        Part(((0.25, -0.05), head), coat, (0.18, 0.17)),
        Part(((head[0] + 0.08, head[1] - 0.08), beak, (head[0] + 0.08, head[1] + 0.1)), beak_color),
        Part((eye,), WHITE, (0.075,)),
        Part((eye,), INK, (0.026,)),
        wings[near],
    )
    return turned(Sketch(parts, points), facing_left)


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
        Part(ellipse((0, 0.12), (0.30, 0.45)), shell, textured=True),
        Part(ellipse((0, -0.3), (0.24, 0.14)), skin),
        Part(((0, -0.17), (0, 0.54)), INK, (0.012, 0.012)),  # where the wings meet
    )
    return Sketch((*limbs, *body), points)


FIGURES: dict[str, Callable[[np.random.Generator], Sketch]] = {
    "person": person,
    "horse": horse,
    "bird": bird,
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
