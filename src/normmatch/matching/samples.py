"""Sample photographs, which are in the package, and their keypoints, which were marked by hand.

Where they come from and that they are free is said in `sample_pictures/README.md`. Left is the animal's left.
"""

import csv
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.native import as_entry
from normmatch.errors import InputError
from normmatch.outputs import whole_file, write_json, writing

FOLDER = Path(__file__).parent / "sample_pictures"
POINTS = FOLDER / "points.json"


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
    """The samples: a cat, a raccoon, an astronaut."""
    return [
        Sample(Path(points.image).stem, replace(points, image=str(FOLDER / points.image)))
        for points in annotations.read(POINTS)
    ]


def get_sample(title: str) -> Sample:
    """The sample of that title."""
    samples = {sample.title: sample for sample in find_samples()}
    if title not in samples:
        raise InputError(f"There is no sample photograph {title[:60]!r}; expected one of {', '.join(samples)}.")
    return samples[title]


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
