"""The one type for named keypoints: what every format is read into, what is matched, trained on and written."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normmatch.geometry import Box


@dataclass(frozen=True, eq=False)
class Annotation:
    """The named keypoints of one object in one image.

    Coordinates are x right, y down, in pixels of the image as a viewer shows it, the centre of the first pixel at 0.5.
    They are float64, as files have them; of a prepared crop, in whose pixels they are then, float32, as the network
    takes them.
    """

    image: str  # the file, as the annotations call it or as a path that can be opened
    names: tuple[str, ...]  # N different ones
    keypoints: np.ndarray  # (N, 2) xy; may lie outside the box, and a little outside the image
    box: Box | None = None  # the object's; None is the whole image
    label: str = ""  # the class
    split: str = ""  # train, val or test where the file says so
    visible: np.ndarray | None = None  # (N,) bool, False where a keypoint is hidden; None where all can be seen
    scores: np.ndarray | None = (
        None  # (N,) float64, of keypoints that were found and not marked by hand; nan is unknown
    )
    source: str = ""  # the file and the place in it, for messages
    homography: np.ndarray | None = None  # (3, 3): warps the image first; keypoints and box are in the warped one

    @property
    def path(self) -> Path:
        """The image as a path."""
        return Path(self.image)
