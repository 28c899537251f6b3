"""Photographs on disk: which files of a folder are images, and how large they are upright."""

import functools
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from normmatch.io import FORMATS

EXIF_ORIENTATION = 0x0112


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
