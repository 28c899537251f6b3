"""Photographs on disk: which files of a folder are images, how large they are, and which one an annotation is about."""

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from normmatch.annotations import Annotation
from normmatch.errors import DataError
from normmatch.io import FORMATS

EXIF_ORIENTATION = 0x0112
SHOWN = 5  # how many names a message lists


@functools.cache
def image_endings() -> frozenset[str]:
    """The endings of the formats that `normmatch.io` reads, such as ".jpg"."""
    return frozenset(ending for ending, kind in Image.registered_extensions().items() if kind in FORMATS)


def image_files(folder: Path, recursive: bool = False) -> list[Path]:
    """The images of a folder by their endings, sorted by name; hidden files are passed over."""
    found = folder.rglob("*") if recursive else folder.iterdir()
    endings = image_endings()
    return sorted(p for p in found if p.suffix.lower() in endings and not p.name.startswith(".") and p.is_file())


def upright_size(path: Path) -> tuple[int, int] | None:
    """(width, height) as a viewer shows the image, EXIF rotation applied; None where the file is no readable image.

    Only the header is read, so a file that breaks off later is found when it is decoded.
    """
    try:
        with Image.open(path) as image:
            if image.format not in FORMATS:
                return None
            width, height = image.size
            turned = image.getexif().get(EXIF_ORIENTATION) in (5, 6, 7, 8)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError, SyntaxError):
        return None
    return (height, width) if turned else (width, height)


def find_image(name: str, folders: Iterable[Path]) -> Path | None:
    """The file that an annotation calls `name`, seen from the first of the folders that has it."""
    return next((folder / name for folder in folders if os.path.isfile(folder / name)), None)


class ImageIndex:
    """Finds the annotations of an image among those of a file, whose images are named as seen from its folder.

    Images may be named as seen from other `folders`, too. Where there is no such file, the name must be the end of the
    path that is asked for: `day1/001.jpg` is found for `/photos/day1/001.jpg`, and never for `day2/001.jpg`.
    """

    def __init__(self, annotations: Sequence[Annotation], source: Path | str, *folders: Path) -> None:
        self.source = Path(source)
        self.by_file: dict[str, list[Annotation]] = {}  # by the images that may be meant
        self.absent: dict[str, list[Annotation]] = {}  # those whose images are in none of the folders, by their names
        self.asked: dict[str, str] = {}  # the file that each of these was found for
        self.known = list(dict.fromkeys(item.image for item in annotations))
        for item in annotations:
            places = {_real(folder / item.image) for folder in (self.source.parent, *folders)}
            for place in places:
                self.by_file.setdefault(place, []).append(item)
            if not any(map(os.path.isfile, places)):
                self.absent.setdefault(str(item.path), []).append(item)

    def all(self, image: Path | str) -> list[Annotation]:
        """The objects of an image; one without keypoints counts only where it is the only one."""
        found = self.by_file.get(_real(image)) or self._by_name(image)
        places = sorted({item.image for item in found})
        if len(places) > 1:
            raise DataError(f"{self.source} has keypoints of {places[0]} and {places[1]}; which of them is {image}?")
        return [item for item in found if item.names] or found[:1]

    def find(self, image: Path | str) -> Annotation:
        """The one object of an image."""
        found = self.all(image)
        if len(found) > 1:
            raise DataError(f"{self.source} has {len(found)} objects in {image}; expected keypoints of one.")
        if not found:
            alike = [name for name in self.known if Path(name).name == Path(image).name]
            names = list(dict.fromkeys([*alike, *self.known]))
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise DataError(
                f"{self.source} has no keypoints of {image}; it has those of {', '.join(names[:SHOWN])}{more}."
            )
        return found[0]

    def _by_name(self, image: Path | str) -> list[Annotation]:
        """The objects whose image's name is the end of this path, unless they were another file's before."""
        parts, file = Path(os.path.abspath(image)).parts, _real(image)
        found = []
        for name in (str(Path(*parts[start:])) for start in range(1, len(parts))):
            for item in self.absent.get(name, []):
                other = self.asked.setdefault(name, file)
                if other != file:
                    raise DataError(f"{self.source} has keypoints of {name}; is that {other} or {file}?")
                found.append(item)
        return found


def _real(path: Path | str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a null byte in the name
        return str(path)
