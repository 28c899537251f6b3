"""What the readers of datasets share: finding folders on disk, and an account of what they leave out."""

import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from normmatch.errors import DataError

MOST_REASONS = 3  # reasons that an error lists
UNUSABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)  # what broken files raise

# Here the centre of an image's first pixel is at 0.5. Where a dataset puts integers at the centres instead, add these.
MATLAB_TO_OURS = -0.5  # the first pixel is 1
ZERO_BASED_TO_OURS = 0.5  # the first pixel is 0


def find_folder(root: Path, candidates: Iterable[str], holds: str) -> Path:
    """The first of the candidate folders under `root` that holds a file or folder of that name (or pattern)."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; expected the one that the dataset was unpacked into.")
    for candidate in candidates:
        folder = root / candidate
        if folder.is_dir() and next(folder.glob(holds), None) is not None:
            return folder
    raise DataError(f"There is no {holds} in {root}; expected the folder that the dataset was unpacked into.")


class Skipped(Counter[str]):
    """How much was left out, by reason. A reason that the benchmark's rules do not expect is damage."""

    def __init__(self) -> None:
        super().__init__()
        self.damage: dict[str, str] = {}  # by reason: the first file, with the folder it is in

    def add(self, reason: str, file: Path | str, expected: bool = False, times: int = 1) -> None:
        """Count one thing, or `times`, of a file or of a named entry."""
        self[reason] += times
        if not expected:
            self.damage.setdefault(reason, "/".join(file.parts[-2:]) if isinstance(file, Path) else file)

    def listed(self, counts: Iterable[tuple[str, int]]) -> str:
        """`3 images without their .mat (first: Duck/060_0000.png); ...`; files are named for damage only."""
        first = {reason: f" (first: {file})" for reason, file in self.damage.items()}
        return "; ".join(f"{count:,} {reason}{first.get(reason, '')}" for reason, count in counts)

    def warn(self, dataset: str) -> None:
        """One warning that counts what is damaged, if anything is, and names the first file of each kind."""
        if self.damage:
            counts = [(reason, count) for reason, count in self.most_common() if reason in self.damage]
            warnings.warn(f"{dataset} is not whole, left out: {self.listed(counts)}.", stacklevel=3)


def main_reasons(skipped: Skipped) -> str:
    """The few most frequent reasons, for the error that nothing is left."""
    return skipped.listed(skipped.most_common(MOST_REASONS)) or "nothing was found"
