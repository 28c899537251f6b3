"""The photographs of an opened folder: small copies and tiles for the browser, made when they are asked for, and kept.

Only files that the project lists are read, and none is ever written.
"""

import io
import math
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from normmatch.annotations.images import upright_size
from normmatch.io import read_image
from normmatch.matching.matcher import LRUCache

THUMB, VIEW, TILE = 320, 1500, 512  # pixels, the longer side
LEVELS = (1, 2, 4)
JPEGS, OPEN = 1500, 3  # copies and tiles, and decoded photographs, that are kept
QUALITY = 88
MAX_PIXELS = 200_000_000


class Photographs:
    """The files of a folder by the names that the project has for them."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self.folder, self.files = folder, frozenset(files)
        self._jpegs, self._open = LRUCache(JPEGS), LRUCache(OPEN)
        self._decoding = threading.Lock()

    def path(self, file: str) -> Path:
        """Where a photograph lies; what the project does not list is no photograph."""
        if file not in self.files:
            raise KeyError(file)
        return self.folder / file

    def stamp(self, file: str) -> str:
        """Changes when the file does, so that a browser may keep its copies."""
        try:
            info = self.path(file).stat()
        except OSError:
            return "0"
        return f"{info.st_mtime_ns ^ info.st_size << 40:x}"[-12:]

    def read(self, file: str, least: int = 0) -> np.ndarray:
        """A photograph (H, W, 3), upright; with `least` perhaps smaller, its longer side of at least so many pixels."""
        return read_image(self.path(file), MAX_PIXELS, file, least)

    def copy(self, file: str, side: int) -> bytes:
        """A JPEG of the whole photograph, its longer side of at most so many pixels."""

        def make() -> Image.Image:
            image = Image.fromarray(self.read(file, side))
            image.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
            return image

        return self._kept((file, self.stamp(file), str(side)), make)

    def tile(self, file: str, level: int, column: int, row: int) -> bytes:
        """A JPEG of a part of the photograph at 1 / level; KeyError where there is none."""
        self.path(file)
        if level not in LEVELS or min(column, row) < 0:
            raise KeyError(level)

        def make() -> Image.Image:
            array = self._level(file, level)
            part = array[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
            if not part.size:
                raise KeyError((column, row))
            return Image.fromarray(part)

        return self._kept((file, self.stamp(file), f"{level}/{column}/{row}"), make)

    def _level(self, file: str, level: int) -> np.ndarray:
        """A decoded photograph at 1 / level; the last few are kept, and none is decoded twice at a time."""
        key = (file, self.stamp(file), level)
        with self._decoding:
            array: np.ndarray | None = self._open.find([key]).get(key)
            if array is None:
                side = max(upright_size(self.path(file)) or (0, 0))
                array = self.read(file, side // level)
                left = level // factor_of(side, array)
                array = array if left == 1 else np.asarray(Image.fromarray(array).reduce(left))
                self._open.keep({key: array})
        return array

    def _kept(self, key: tuple[str, ...], make: Callable[[], Image.Image]) -> bytes:
        jpeg: bytes | None = self._jpegs.find([key]).get(key)
        if jpeg is None:
            file = io.BytesIO()
            make().save(file, "JPEG", quality=QUALITY)
            jpeg = file.getvalue()
            self._jpegs.keep({key: jpeg})
        return jpeg


def factor_of(side: int, array: np.ndarray) -> int:
    """By how much a photograph whose longer side has so many pixels was made smaller when it was read: 1, 2, 4 or 8."""
    return 1 << round(math.log2(max(side, 1) / max(array.shape[:2])))


def fault_of(photographs: Photographs, file: str) -> str | None:
    """The sentence that says why a photograph cannot be read; only its header is."""
    path = photographs.path(file)
    if not path.is_file():
        return f"The photograph {file} is not in {photographs.folder}."
    return None if upright_size(path) else f"The photograph {file} is no image that can be read."
