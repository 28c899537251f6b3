"""Sight: photographs, crops of them, and what the encoder says about a crop, which is remembered. No torch here."""

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from normmatch.annotations.images import upright_size
from normmatch.geometry import Box
from normmatch.io import load_image, read_image
from normmatch.matching.matcher import LRUCache
from normmatch.matching.references import Cells, make_cells
from normmatch.outputs import whole_file

BLOCKS = (5, 8, 11)  # of the backbone, counted from 0; 4, 7, 10 are as good, 8 and 11 alone 3 points worse
SIZE = 378  # pixels a side of a first look
BATCH = 16  # crops that are encoded together
CROPS = 600  # that are remembered, about: a first look takes 1.7 MB, a second 0.6
OPEN = 4  # photographs that stay decoded
SPARE = 1.5  # times as many pixels as a crop takes are decoded, at least


class Encoder(Protocol):
    """What runs the network: the backends of `Matcher`."""

    def maps(self, images: np.ndarray, blocks: Sequence[int]) -> np.ndarray:
        """The maps (B, C, h, w) of the blocks, beside each other, of images (B, 3, S, S) uint8."""
        ...


@dataclass(frozen=True)
class Photograph:
    """An image as `load_image` takes it, with what tells it from others: of a file its path, size and time."""

    source: Any
    name: str  # in messages
    key: bytes

    @classmethod
    def of(cls, source: Any, name: str) -> "Photograph":
        if isinstance(source, str | Path):
            try:
                info = os.stat(source)
                text = f"{os.path.realpath(source)}\0{info.st_size}\0{info.st_mtime_ns}"
                return cls(source, name, hashlib.blake2b(text.encode("utf-8", "surrogatepass")).digest())
            except (OSError, ValueError):
                pass  # reading it says what is wrong
        array = load_image(source, name)
        return cls(array, name, hashlib.blake2b(array.tobytes() + str(array.shape).encode()).digest())


class Sight:
    """Sees crops of photographs through an encoder; those that it saw last are not encoded again.

    Args:
        encoder: what runs the network, such as a `Matcher`'s backend.
        most: how many crops are remembered.
        folder: where crops are kept on disk, too. What another network wrote there is removed.
    """

    def __init__(self, encoder: Encoder, most: int = CROPS, folder: Path | None = None) -> None:
        self.encoder, self.folder = encoder, folder
        self._cells, self._open = LRUCache(most), LRUCache(OPEN)
        self._sizes: dict[bytes, tuple[int, int]] = {}
        if folder is not None:
            _check_folder(folder, encoder)

    def array(self, photograph: Photograph, smaller: int = 1) -> np.ndarray:
        """The pixels (H, W, 3); of a JPEG perhaps 2, 4 or `smaller` times smaller, which is ten times as fast."""
        known = self._open.find((photograph.key, factor) for factor in (8, 4, 2, 1) if factor <= smaller)
        if known:
            found: np.ndarray = next(iter(known.values()))
            return found
        if smaller > 1 and isinstance(photograph.source, str | Path):
            found = read_image(photograph.source, least=max(self.size(photograph)) // smaller)
        else:
            found = load_image(photograph.source, photograph.name)
        self._open.keep({(photograph.key, self._factor(photograph, found) if smaller > 1 else 1): found})
        return found

    def _factor(self, photograph: Photograph, array: np.ndarray) -> int:
        """How many times smaller an array of a photograph is."""
        return 1 << round(math.log2(max(self.size(photograph)) / max(array.shape[:2])))

    def _cut(self, photograph: Photograph, box: Box, side: int) -> np.ndarray:
        """A crop (side, side, 3), of a photograph that is decoded no larger than it takes."""
        spare = max(1.0, max(box[2:]) / side / SPARE)
        array = self.array(photograph, 1 << min(3, int(math.log2(spare))))
        x, y, width, height = (value / self._factor(photograph, array) for value in box)
        return cut(array, (x, y, width, height), side)

    def size(self, photograph: Photograph) -> tuple[int, int]:
        """Width and height; a file is not decoded for it."""
        found: tuple[int, int] | None = self._sizes.get(photograph.key)
        if found is None:
            known = upright_size(Path(photograph.source)) if isinstance(photograph.source, str | Path) else None
            found = known or self.array(photograph).shape[1::-1]
            self._sizes[photograph.key] = found
        return found

    def see(self, photograph: Photograph, box: Box, side: int = SIZE) -> Cells:
        """A crop as the encoder sees it."""
        return self.see_all([(photograph, box)], side)[0]

    def see_all(self, crops: Sequence[tuple[Photograph, Box]], side: int = SIZE, remember: bool = True) -> list[Cells]:
        """The same for many crops, some at a time."""
        keys = [hashlib.blake2b(photograph.key + str((*box, side)).encode()).digest() for photograph, box in crops]
        known = self._cells.find(keys)
        known |= {key: cells for key in keys if key not in known and (cells := self._read(key))}
        fresh = [i for i, key in enumerate(keys) if key not in known]
        for start in range(0, len(fresh), BATCH):
            some = fresh[start : start + BATCH]
            found = encode(self.encoder, [self._cut(*crops[i], side) for i in some])
            half = {keys[i]: one.half() for i, one in zip(some, found, strict=True)}
            known |= half
            for key, cells in half.items() if remember else ():
                self._write(key, cells)
        if remember:
            self._cells.keep({key: known[key] for key in keys})
        return [known[key].single() for key in keys]

    def _read(self, key: bytes) -> Cells | None:
        file = self.folder and self.folder / f"{key.hex()[:32]}.npy"
        if not file or not file.is_file():
            return None
        try:
            features = np.load(file)  # (h, w, D)
        except (OSError, ValueError, EOFError):  # cut off: it is encoded anew
            return None
        return Cells(features.reshape(-1, features.shape[2]), *features.shape[:2])

    def _write(self, key: bytes, cells: Cells) -> None:
        if self.folder:
            with whole_file(self.folder / f"{key.hex()[:32]}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, cells.features.reshape(cells.height, cells.width, -1))


def _check_folder(folder: Path, encoder: Encoder) -> None:
    """Remove what another network has seen: a folder tells by a pattern that each network sees differently."""
    ticks = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(1, 3, 28, 28)
    probe, file = encoder.maps(ticks, BLOCKS)[0], folder / "probe.npy"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        earlier = np.load(file)
        same = earlier.shape == probe.shape and np.abs(earlier - probe).max() < 0.1 * np.abs(probe).max()
    except (OSError, ValueError, EOFError):
        same = False
    if not same:
        for other in folder.glob("[0-9a-f]" * 32 + ".npy"):
            other.unlink()
        np.save(file, probe)


def encode(encoder: Encoder, crops: Sequence[np.ndarray]) -> list[Cells]:
    """Crops (S, S, 3) as the encoder sees them."""
    images = np.stack(crops).transpose(0, 3, 1, 2)  # (B, 3, S, S)
    return make_cells(encoder.maps(np.ascontiguousarray(images), BLOCKS), len(BLOCKS))


def cut(image: np.ndarray, box: Box, size: int) -> np.ndarray:
    """A box of an image (H, W, 3) as a square (size, size, 3); where it sticks out the border's pixels go on."""
    height, width = image.shape[:2]
    x, y, w, h = box
    x, y = min(max(x, 1 - w), width - 1), min(max(y, 1 - h), height - 1)  # at least a pixel of the image is in it
    left, top, right, bottom = int(np.floor(x)), int(np.floor(y)), int(np.ceil(x + w)), int(np.ceil(y + h))
    inside = image[max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
    out = ((max(-top, 0), max(bottom - height, 0)), (max(-left, 0), max(right - width, 0)), (0, 0))
    padded = Image.fromarray(np.pad(inside, out, mode="edge") if any(map(any, out)) else np.ascontiguousarray(inside))
    edges = (x - left, y - top, min(x - left + w, padded.width), min(y - top + h, padded.height))
    return np.asarray(padded.resize((size, size), Image.Resampling.BICUBIC, box=edges))


def into(points: np.ndarray, box: Box) -> np.ndarray:
    """Points (..., 2) in pixels as shares of a box."""
    return (points - box[:2]) / box[2:]


def back(points: np.ndarray, box: Box) -> np.ndarray:
    """Shares of a box as pixels."""
    return points * box[2:] + box[:2]
