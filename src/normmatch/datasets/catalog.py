"""The datasets by name: the one place that training, evaluation and the command line open them from."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normmatch.config import DataConfig, DatasetName, ProtocolName
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import Dataset, PreparedSplit, Split
from normmatch.errors import ConfigError, DataError

WITH_PROTOCOLS = ("pascal-voc", "spair-71k")  # the others are read in one way


@dataclass(frozen=True)
class Reading:
    """Choices that a dataset leaves to its reader; None and nothing are its own."""

    grid: int | None = None  # hpatches, images with warped copies: keypoints a side
    magnitude: tuple[float, float] | None = None  # images with warped copies: how far their corners move
    only: tuple[str, ...] = ()  # spair-71k: allowed labels of a pair, such as viewpoint_variation=0,1

    def __str__(self) -> str:
        """Part of a file name; empty where there is no choice."""
        parts = [f"grid{self.grid}"] if self.grid is not None else []
        parts += [f"magnitude{self.magnitude[0]:g}to{self.magnitude[1]:g}"] if self.magnitude else []
        return "-".join(["", *parts, *sorted(self.only)])

    def filters(self) -> dict[str, set[int]]:
        """Allowed values by label."""
        found = {}
        for text in self.only:
            label, _, values = text.partition("=")
            if not all(value.isdigit() for value in values.split(",")):
                raise ConfigError(f"the filter is {text!r}, expected a label and numbers, as in truncation=0,1")
            found[label] = {int(value) for value in values.split(",")}
        return found


def open_dataset(
    name: DatasetName, root: Path, protocol: ProtocolName = "nmt", reading: Reading | None = None
) -> Dataset:
    """Read the annotations of a dataset.

    `synthetic` are the figures that `normmatch data download synthetic` drew into the folder; or, in any other folder
    of images, those images, each paired with warped copies of itself.
    """
    root = Path(root)
    if protocol != "nmt" and name not in WITH_PROTOCOLS:
        get_protocol(protocol)
        raise ConfigError(f"{name} has no protocol {protocol!r}; only {' and '.join(WITH_PROTOCOLS)} have.")
    try:
        return _load(name, root, protocol, reading or Reading())
    except OSError as error:
        raise DataError(f"{error.filename or root} cannot be read: {error.strerror or error}.") from error


def _load(name: DatasetName, root: Path, protocol: ProtocolName, reading: Reading) -> Dataset:
    from normmatch.datasets import drawn, folder, hpatches, pascal_voc, spair, warped, willow

    from_images = name == "synthetic" and not drawn.is_drawn(root)
    _check_reading(name, reading, from_images)
    grid: dict[str, Any] = {} if reading.grid is None else {"grid": reading.grid}
    if from_images:
        magnitude: dict[str, Any] = {"magnitude": reading.magnitude} if reading.magnitude else {}
        return warped.load(root, **grid, **magnitude)

    if name == "pascal-voc":
        return pascal_voc.load(root, protocol=protocol)
    if name == "spair-71k":
        return spair.load(root, protocol=protocol, filters=reading.filters())
    if name == "willow":
        return willow.load(root)
    if name == "hpatches":
        return hpatches.load(root, **grid)
    if name == "folder":
        return folder.load(root)
    if name == "synthetic":
        return folder.load(root, name=name)
    raise ConfigError(f"There is no dataset {name!r}.")


def _check_reading(name: str, reading: Reading, warped: bool) -> None:
    """Refuse a choice that the dataset does not leave: it would change nothing."""
    if reading.grid is not None and not (name == "hpatches" or warped):
        raise ConfigError(f"{name} has no grid of keypoints; only hpatches and images with warped copies have.")
    if reading.magnitude and not warped:
        raise ConfigError(f"{name} has no magnitude; only images with warped copies (synthetic) have.")
    if reading.only and name != "spair-71k":
        raise ConfigError(f"{name} has no labels of pairs to filter by; only spair-71k has.")


def prepared_folder(
    name: DatasetName,
    root: Path,
    protocol: ProtocolName = "nmt",
    size: int | None = None,
    reading: Reading | None = None,
) -> Path:
    """Where `normmatch data prepare` puts the cache of a dataset; the size is the protocol's unless given."""
    size = get_protocol(protocol).size if size is None else size
    return Path(root) / "prepared" / f"{name}-{protocol}-{size}{reading or ''}"


def load_splits(
    name: DatasetName,
    root: Path,
    protocol: ProtocolName = "nmt",
    size: int | None = None,
    needed: Collection[str] = ("train", "val"),
    reading: Reading | None = None,
) -> dict[str, PreparedSplit]:
    """Open a dataset's prepared splits; it is prepared first where that is not done, and checked in any case.

    An image that cannot be used is an error in a user's own folder; in a benchmark it is left out with a warning.
    """
    from normmatch.datasets.prepared import load_prepared, prepare

    dataset = open_dataset(name, root, protocol, reading)
    _check_needed(name, root, dataset.splits, needed)
    size = get_protocol(protocol).size if size is None else size
    folder = prepared_folder(name, root, protocol, size, reading)
    prepare(dataset, folder, size, strict=name == "folder")
    splits = load_prepared(folder)  # just made of this dataset, or compared with it
    _check_needed(name, root, splits, needed)
    return splits


def load_training(data: DataConfig, size: int, also: Collection[str] = ()) -> dict[str, PreparedSplit]:
    """The prepared splits of what a training names, and those of `also`; prepared and checked like `load_splits`."""
    from normmatch.datasets import mixture
    from normmatch.datasets.prepared import load_prepared, prepare

    needed = (*data.needed_splits, *also)
    if data.plain:
        return load_splits(data.names[0], data.root, data.protocol, size, needed)
    dataset = mixture.load(data.names, data.root, data.protocol, data.exclude, data.exclude_classes)
    _check_needed(data.name, data.root, dataset.splits, needed)
    folder = training_folder(data, size)
    prepare(dataset, folder, size)
    return load_prepared(folder)


def training_folder(data: DataConfig, size: int) -> Path:
    """Where the cache of what a training names is."""
    without = "".join(f"-no-{name}" for name in (*data.exclude, *data.exclude_classes))
    return Path(data.root) / "prepared" / f"{data.name}{without}-{data.protocol}-{size}"


def _check_needed(
    name: str, root: Path, splits: Mapping[str, Split] | Mapping[str, PreparedSplit], needed: Collection[str]
) -> None:
    """Whether every needed split has objects; a sentence says which one has not."""
    missing = [split for split in needed if split not in splits or not splits[split].objects]
    if not missing:
        return
    if name == "hpatches":
        raise DataError("hpatches has no training objects; it is for evaluation.")
    if missing[0] == "val" and name != "spair-71k":  # which brings its own
        way_out = ", or --data.no-validation-split" if "train" in needed else ""
        raise DataError(
            f"{name} in {root} has too few objects for a validation split; "
            f"expected at least two images more of a class{way_out}."
        )
    raise DataError(
        f"{name} in {root} has no objects for the split {missing[0]!r}; it has {', '.join(splits)} (--split)."
    )
