"""Finding a dataset's folders and images on disk, lenient about one folder level more or less."""

from collections.abc import Iterable
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from normmatch.errors import DataError

IMAGE_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp"})
EXIF_ORIENTATION = 0x0112


def find_folder(root: Path, candidates: Iterable[str], holds: str) -> Path:
    """The first of the candidate folders under `root` that holds a file or folder of that name (or pattern)."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; expected the one that the dataset was unpacked into.")
    for candidate in candidates:
        folder = root / candidate
        if folder.is_dir() and next(folder.glob(holds), None) is not None:
            return folder
    raise DataError(f"There is no {holds} in {root}; expected the folder that the dataset was unpacked into.")


def image_files(folder: Path, recursive: bool = False) -> list[Path]:
    """The images of a folder by their endings, sorted by name; hidden files are passed over."""
    found = folder.rglob("*") if recursive else folder.iterdir()
    return sorted(p for p in found if p.suffix.lower() in IMAGE_ENDINGS and not p.name.startswith(".") and p.is_file())


def upright_size(path: Path) -> tuple[int, int] | None:
    """(width, height) as a viewer shows the image, EXIF rotation applied; None where the file is no readable image.

    Only the header is read, so a file that breaks off later is found when it is decoded.
    """
    try:
        with Image.open(path) as image:
            width, height = image.size
            turned = image.getexif().get(EXIF_ORIENTATION) in (5, 6, 7, 8)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError, SyntaxError):
        return None
    return (height, width) if turned else (width, height)
