"""What a keypoints file does not say itself: where its photographs are, how large they are, where y begins."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from normmatch.annotations import Landmarks
from normmatch.annotations.images import find_image, image_files, upright_size
from normmatch.config import Vertical
from normmatch.errors import DataError

Size = tuple[int, int]  # width, height
FITS = 0.02  # of the photograph's side: how far outside points may lie before it is taken for another one


@dataclass(frozen=True)
class Reading:
    """What the user knows of a file.

    Args:
        images: the folder of the photographs; beside the file and one folder further down is looked at, too.
        names: the landmarks in their order, for files that only count them.
        y: from where y counts: as the format says, up from the bottom, or down from the top.
        size: width and height of the photographs, where they are not at hand.
        negative_missing: a point with a negative coordinate is missing, not only -1 -1 (TPS, NTS).
    """

    images: Path | None = None
    names: tuple[str, ...] = ()
    y: Vertical = "file"
    size: Size | None = None
    negative_missing: bool = False
    folders: dict[Path, "Photographs"] = field(default_factory=dict, repr=False, compare=False)  # looked at already

    def photographs(self, path: Path) -> "Photographs":
        """The photographs that a file may be about."""
        folder = path if path.is_dir() else path.parent
        return self.folders.setdefault(folder, Photographs(folder, self.images))

    def image(self, path: Path, *names: str) -> tuple[str, Size | None]:
        """What to call the photograph that a file calls by the first of these names, and its size if it is at hand."""
        cleaned = [name for name in map(clean, names) if name]
        for name in cleaned:
            found = self.photographs(path).find(name)
            if found:
                known = found.as_posix().endswith(f"/{name}") or found.as_posix() == name
                called = name if known else Path(os.path.relpath(found, self.photographs(path).folder)).as_posix()
                return called, self.size or upright_size(found)
        return (cleaned or [path.stem])[0], self.size

    def landmarks(self, where: str, count: int) -> Landmarks:
        """The names of points that the file counts."""
        if self.names and len(self.names) != count:
            raise DataError(f"{where} has {count} landmarks; expected the {len(self.names)} that names are given for.")
        return Landmarks(self.names or tuple(map(str, range(1, count + 1))))

    def turn(self, points: Sequence[np.ndarray], size: Size | None, up: bool) -> tuple[list[np.ndarray], bool]:
        """Points (N, 2) each, with y counted downwards, and whether it still counts upwards.

        A photograph that the points do not fit into is not the one that they were set in, nor is its height.
        """
        up = up if self.y == "file" else self.y == "up"
        if not up:
            return list(points), False
        every = np.concatenate([*points, np.zeros((0, 2))])
        every = every[np.isfinite(every).all(1)]
        if size is None or (np.abs(every / size - 0.5) > 0.5 + FITS).any() or (every.size and every.max() <= 1):
            return list(points), True
        return [np.stack([xy[:, 0], size[1] - xy[:, 1]], 1) for xy in points], False


@dataclass(frozen=True)
class Photographs:
    """The photographs of some folders, found by names as files have them: another case, no ending, other folders."""

    folder: Path  # of the file
    images: Path | None = None

    @cached_property
    def by_name(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for file in dict.fromkeys(self._files()):
            for key in {_key(file.name), _key(file.stem)}:
                found.setdefault(key, []).append(file)
        return found

    def find(self, name: str) -> Path | None:
        """The photograph of that name; None where there is none, or where several may be meant."""
        folders = [self.folder, *([self.images] if self.images else [])]
        exact = find_image(name, folders) if Path(name).suffix else None
        if exact:
            return exact
        base = _key(name.rsplit("/", 1)[-1])
        found = self.by_name.get(base) or self.by_name.get(_key(base.rpartition(".")[0]), [])
        if len(found) > 1:  # in several folders: that of the name's own
            found = [file for file in found if file.as_posix().lower().endswith(name.lower())]
        return found[0] if len(found) == 1 else None

    def _files(self) -> Iterable[Path]:
        if self.images and self.images.is_dir():
            yield from image_files(self.images, recursive=True)
        if self.folder.is_dir():
            yield from image_files(self.folder)
            for folder in sorted(self.folder.iterdir()):
                if folder.is_dir() and not folder.name.startswith(".") and os.access(folder, os.R_OK | os.X_OK):
                    yield from image_files(folder)


def _key(name: str) -> str:
    """Alike for names that some programs change: no blank before the ending, _ for those within."""
    return re.sub(r"\s+", "_", re.sub(r"\s+(?=\.[^.]*$)", "", name.strip().lower()))


def clean(name: str) -> str:
    """A photograph's name as paths are written here: no address, no drive, / between folders."""
    name = re.sub(r"^file:/*(?=[A-Za-z]:)|^file://", "", name.strip()).replace("\\", "/")
    if re.match(r"[A-Za-z]:/|//", name) or (name.startswith("/") and not os.path.exists(name)):
        name = name.rsplit("/", 1)[-1]
    return name.removeprefix("./")
