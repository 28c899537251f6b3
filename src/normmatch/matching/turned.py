"""Things that lie any way round: a photograph is turned, and mirrored, until its landmarks look like the references'.

A coarse look at eight turnings chooses one; the angle that is left is that between the landmarks found and the mean
shape of the references. No torch here.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

from normmatch.geometry import Box
from normmatch.matching.sight import cut

TURNINGS = tuple(range(0, 360, 45))  # degrees
LARGEST = 2048  # pixels a side of a turned photograph


@dataclass(frozen=True, eq=False)
class Turned:
    """A square of a photograph about the middle of a box, turned by an angle, perhaps mirrored before."""

    image: np.ndarray  # (S, S, 3)
    angle: float  # degrees
    mirrored: bool
    middle: np.ndarray  # (2,) in pixels of the photograph
    scale: float  # pixels of the photograph for one of the square

    def back(self, points: np.ndarray) -> np.ndarray:
        """Points (K, 2) in pixels of the square as pixels of the photograph."""
        turn = np.deg2rad(self.angle)
        rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        apart = (points - len(self.image) / 2) @ rotation * self.scale
        return self.middle + apart * ((-1, 1) if self.mirrored else (1, 1))


class Turntable:
    """Turns the part of a photograph (H, W, 3) about the middle of a box; the corners of the box stay in sight."""

    def __init__(self, image: np.ndarray, box: Box) -> None:
        x, y, width, height = box
        self.side = float(max(width, height)) * 1.42  # of the square, in pixels of the photograph
        self.middle = np.array((x + width / 2, y + height / 2))
        self.image, self.pixels = image, int(min(max(round(self.side), 16), LARGEST))
        self._plain: dict[int, Image.Image] = {}

    def turn(self, angle: float, mirrored: bool = False, pixels: int | None = None) -> Turned:
        """The square so many pixels wide, as many as the photograph has without, turned clockwise."""
        pixels = pixels or self.pixels
        if pixels not in self._plain:
            x, y = self.middle - self.side / 2
            self._plain[pixels] = Image.fromarray(cut(self.image, (x, y, self.side, self.side), pixels))
        plain = ImageOps.mirror(self._plain[pixels]) if mirrored else self._plain[pixels]
        colour = np.asarray(plain).mean((0, 1)).astype(int)
        turned = plain.rotate(-angle, Image.Resampling.BICUBIC, fillcolor=tuple(colour.tolist()))
        return Turned(np.asarray(turned), angle, mirrored, self.middle, self.side / pixels)


def angle_between(found: np.ndarray, shape: np.ndarray, weights: np.ndarray) -> float:
    """By how many degrees landmarks (K, 2) are turned against a shape, fitted as a similarity with weights (K,)."""
    share = weights / max(weights.sum(), 1e-9)
    first, second = found - share @ found, shape - share @ shape
    along = (share * (first * second).sum(1)).sum()
    across = (share * (second[:, 0] * first[:, 1] - second[:, 1] * first[:, 0])).sum()
    return float(np.rad2deg(np.arctan2(across, along))) if len(found) > 1 else 0.0
