"""The images of a prepared split: a memory-mapped file that is cheap to hand to other processes."""

from pathlib import Path
from typing import Any

import numpy as np


class ImageFile:
    """Rows of a memory-mapped (n, S, S, 3) file, indexed like an array.

    It pickles as a path and row numbers and opens the file when first read, so that the workers of a DataLoader share
    the pages of one file; a slice of np.memmap would be pickled with all its pixels.
    """

    def __init__(self, path: Path, rows: np.ndarray) -> None:
        self.path, self.rows = path, rows
        self.dtype = np.dtype(np.uint8)
        self._mapped: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": None}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """A copy of the images at `index`: (S, S, 3) for an int, (len(index), S, S, 3) for several."""
        return self._open().take(self.rows[index], axis=0)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._open().shape[1:])

    def _open(self) -> np.ndarray:
        if self._mapped is None:
            self._mapped = np.load(self.path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        return self._mapped
