"""Sample photographs: they lie inside installed packages, their keypoints were marked by hand in `samples.json`.

The cheetah, the lion and the cub come with gradio, the cat and the motorcycle with scikit-image; both are in the extra
`demo`. The names of the keypoints are PascalVOC's; left is the animal's left.
"""

import csv
import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.native import as_entry
from normmatch.errors import InputError
from normmatch.extras import missing
from normmatch.io import whole_file, write_json, writing

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
    points: Annotation  # whose image is the path

    @property
    def path(self) -> Path:
        """Where it lies."""
        return Path(self.points.image)


def find_samples() -> list[Sample]:
    """The samples whose packages are installed; none of the packages is imported."""
    placed = [(TITLES[points.image], points, _place(points.image)) for points in annotations.read(POINTS)]
    return [Sample(title, replace(points, image=str(path))) for title, points, path in placed if path is not None]


def get_sample(title: str, samples: Sequence[Sample] | None = None) -> Sample:
    """The sample of that title."""
    samples = find_samples() if samples is None else samples
    for sample in samples:
        if sample.title == title:
            return sample
    if not samples:
        raise missing("gradio")
    known = ", ".join(sample.title for sample in samples)
    raise InputError(f"There is no sample photograph {title!r}; expected one of {known}.")


def copy_samples(samples: Sequence[Sample], folder: Path) -> None:
    """Put photographs into a folder with the files that the commands read: points.json, reference.json, pairs.csv.

    The reference is the first sample; the pairs are the first with each of the others.
    """
    names = [f"{sample.title}{sample.path.suffix}" for sample in samples]
    entries = [as_entry(replace(s.points, image=name)) for s, name in zip(samples, names, strict=True)]
    with writing(folder):
        for sample, name in zip(samples, names, strict=True):
            with whole_file(folder / name) as partial:
                shutil.copyfile(sample.path, partial)
        write_json(folder / "points.json", {"images": entries})
        write_json(folder / "reference.json", {"images": entries[:1]})
        with whole_file(folder / "pairs.csv") as partial, partial.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("image0", "image1"), *((names[0], name) for name in names[1:])])


def _place(image: str) -> Path | None:
    """Where the file lies, None if its package is not installed or comes without it."""
    package, *rest = image.split("/")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent.joinpath(*rest)
    return path if path.is_file() else None
