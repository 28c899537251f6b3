"""The datasets by name: the one place that training, evaluation and the command line open them from."""

from collections.abc import Collection, Mapping
from pathlib import Path

from normmatch.config import DatasetName, ProtocolName
from normmatch.data.pairs import Dataset, PreparedSplit, Split
from normmatch.data.protocols import get_protocol
from normmatch.errors import ConfigError, DataError

WITH_PROTOCOLS = ("pascal-voc", "spair-71k")  # the others are read in one way


def open_dataset(name: DatasetName, root: Path, protocol: ProtocolName = "nmt") -> Dataset:
    """Read the annotations of a dataset.

    `synthetic` are the figures that `normmatch data download synthetic` drew into the folder; or, in any other folder
    of images, those images, each paired with warped copies of itself.
    """
    root = Path(root)
    if protocol != "nmt" and name not in WITH_PROTOCOLS:
        get_protocol(protocol)
        raise ConfigError(f"{name} has no protocol {protocol!r}; only {' and '.join(WITH_PROTOCOLS)} have.")
    try:
        return _load(name, root, protocol)
    except OSError as error:
        raise DataError(f"{error.filename or root} cannot be read: {error.strerror or error}.") from error


def _load(name: DatasetName, root: Path, protocol: ProtocolName) -> Dataset:
    from normmatch.data import folder, homography, hpatches, pascal_voc, spair, synthetic, willow

    if name == "pascal-voc":
        return pascal_voc.load(root, protocol=protocol)
    if name == "spair-71k":
        return spair.load(root, protocol=protocol)
    if name == "willow":
        return willow.load(root)
    if name == "hpatches":
        return hpatches.load(root)
    if name == "folder":
        return folder.load(root)
    if name == "synthetic":
        return folder.load(root, name=name) if synthetic.is_drawn(root) else homography.load(root)
    raise ConfigError(f"There is no dataset {name!r}.")


def prepared_folder(name: DatasetName, root: Path, protocol: ProtocolName = "nmt", size: int | None = None) -> Path:
    """Where `normmatch data prepare` puts the cache of a dataset; the size is the protocol's unless given."""
    return Path(root) / "prepared" / f"{name}-{protocol}-{get_protocol(protocol).size if size is None else size}"


def load_splits(
    name: DatasetName,
    root: Path,
    protocol: ProtocolName = "nmt",
    size: int | None = None,
    needed: Collection[str] = ("train", "val"),
) -> dict[str, PreparedSplit]:
    """Open a dataset's prepared splits; it is prepared first where that is not done, and checked in any case.

    An image that cannot be used is an error in a user's own folder; in a benchmark it is left out with a warning.
    """
    from normmatch.data.cache import load_prepared, prepare

    dataset = open_dataset(name, root, protocol)
    _check_needed(name, root, dataset.splits, needed)
    size = get_protocol(protocol).size if size is None else size
    folder = prepared_folder(name, root, protocol, size)
    prepare(dataset, folder, size, strict=name == "folder")
    splits = load_prepared(folder, dataset, size)
    _check_needed(name, root, splits, needed)
    return splits


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
        raise DataError(
            f"{name} in {root} has too few objects for a validation split; "
            "expected at least two images more of a class."
        )
    raise DataError(f"{name} in {root} has no objects for the split {missing[0]!r}; it has {', '.join(splits)}.")
