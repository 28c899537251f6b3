"""Sample photographs: they lie inside installed packages, their keypoints were marked by hand in `samples.json`.

The cheetah, the lion and the cub come with gradio, the cat and the motorcycle with scikit-image; both are in the extra
`demo`. The names of the keypoints are PascalVOC's; left is the animal's left.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from normmatch.errors import InputError
from normmatch.photographs.points import PointSet, read_points

POINTS = Path(__file__).parent / "samples.json"
TITLES = {  # by the place of the file, which begins with the package
    "gradio/media_assets/images/cheetah1.jpg": "cheetah",
    "gradio/media_assets/images/lion.jpg": "lion",
    "gradio/test_data/cheetah2.jpg": "cub",
    "gradio/media_assets/images/cheetah.jpg": "running cheetah",
    "skimage/data/chelsea.png": "cat",
    "skimage/data/motorcycle_left.png": "motorcycle",
    "skimage/data/motorcycle_right.png": "motorcycle from the right",
}


@dataclass(frozen=True, eq=False)
class Sample:
    """A photograph whose keypoints are known."""

    title: str
    path: Path
    points: PointSet


def find_samples() -> list[Sample]:
    """The samples whose packages are installed; none of the packages is imported."""
    placed = [(points, _place(points.image)) for points in read_points(POINTS)]
    return [Sample(TITLES[points.image], path, points) for points, path in placed if path is not None]


def get_sample(title: str, samples: Sequence[Sample] | None = None) -> Sample:
    """The sample of that title."""
    samples = find_samples() if samples is None else samples
    for sample in samples:
        if sample.title == title:
            return sample
    known = ", ".join(sample.title for sample in samples)
    hint = f"expected one of {known}" if known else 'install them with `pip install "normmatch[demo]"`'
    raise InputError(f"There is no sample photograph {title!r}; {hint}.")


def _place(image: str) -> Path | None:
    """Where the file lies, None if its package is not installed or comes without it."""
    package, *rest = image.split("/")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent.joinpath(*rest)
    return path if path.is_file() else None
