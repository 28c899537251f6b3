"""Sample photographs, which are in the package, and their keypoints, which were marked by hand.

Where they come from and that they are free is said in `sample_pictures/README.md`. Left is the animal's left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from normmatch import annotations
from normmatch.annotations import Annotation, native
from normmatch.errors import InputError
from normmatch.outputs import whole_file, writing

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


def copies(samples: Sequence[Sample], folder: Path) -> dict[Path, bytes]:
    """What `copy_samples` puts into a folder; a file of that name that is there already must be the same."""
    names = [f"{sample.title}{sample.path.suffix}" for sample in samples]
    points = [replace(s.points, image=name) for s, name in zip(samples, names, strict=True)]
    content = {name: sample.path.read_bytes() for sample, name in zip(samples, names, strict=True)}
    content |= {"points.json": native.write(points).encode(), "reference.json": native.write(points[:1]).encode()}
    content["pairs.csv"] = "".join(
        f"{line}\n" for line in ("image0,image1", *(f"{names[0]},{n}" for n in names[1:]))
    ).encode()
    for name, wanted in content.items():
        with writing(folder):
            if (folder / name).exists() and (not (folder / name).is_file() or (folder / name).read_bytes() != wanted):
                raise InputError(f"{folder / name} is there already and differs; expected another folder to copy to.")
    return {folder / name: wanted for name, wanted in content.items()}


def copy_samples(samples: Sequence[Sample], folder: Path) -> None:
    """Put photographs into a folder with the files that the commands read: points.json, reference.json, pairs.csv.

    The reference is the first sample; the pairs are the first with each of the others.
    """
    with writing(folder):
        for path, content in copies(samples, folder).items():
            if not path.exists():
                with whole_file(path) as partial:
                    partial.write_bytes(content)
