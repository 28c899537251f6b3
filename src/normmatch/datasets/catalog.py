"""The datasets by name: the one place that training, evaluation and the command line open them from."""

from collections.abc import Collection
from pathlib import Path

from normmatch.config import DataConfig, DatasetName, ProtocolName
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import Dataset, PreparedSplit
from normmatch.errors import ConfigError, DataError

WITH_PROTOCOLS = ("pascal-voc", "spair-71k")  # the others are read in one way


def open_dataset(name: DatasetName, root: Path, protocol: ProtocolName = "nmt") -> Dataset:
    """Read the annotations of a dataset.

    `synthetic` are the figures that `normmatch data download synthetic` drew into the folder; or, in any other folder
    of images, those images, each paired with warped copies of itself.
    """
    from normmatch.datasets import drawn, folder, hpatches, pascal_voc, spair, warped, willow

    root = Path(root)
    get_protocol(protocol)
    if protocol != "nmt" and name not in WITH_PROTOCOLS:
        raise ConfigError(f"{name} has no protocol {protocol!r}; only {' and '.join(WITH_PROTOCOLS)} have.")
    try:
        if name == "pascal-voc":
            return pascal_voc.load(root, protocol)
        if name == "spair-71k":
            return spair.load(root, protocol)
        if name == "willow":
            return willow.load(root)
        if name == "hpatches":
            return hpatches.load(root)
        if name == "folder":
            return folder.load(root)
        if name == "synthetic":
            return folder.load(root, name=name) if drawn.is_drawn(root) else warped.load(root)
    except OSError as error:
        raise DataError(f"{error.filename or root} cannot be read: {error.strerror or error}.") from error
    raise ConfigError(f"There is no dataset {name!r}.")


def prepared_folder(name: DatasetName, root: Path, protocol: ProtocolName = "nmt", size: int | None = None) -> Path:
    """Where `normmatch data prepare` puts the cache of a dataset; the size is the protocol's unless given."""
    size = get_protocol(protocol).size if size is None else size
    return Path(root) / "prepared" / f"{name}-{protocol}-{size}"


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
    from normmatch.datasets.prepared import load_prepared, prepare

    dataset = open_dataset(name, root, protocol)
    _check_needed(name, root, [key for key, split in dataset.splits.items() if split.objects], needed)
    size = get_protocol(protocol).size if size is None else size
    folder = prepared_folder(name, root, protocol, size)
    prepare(dataset, folder, size, strict=name == "folder")
    splits = load_prepared(folder)  # just made of this dataset, or compared with it
    _check_needed(name, root, [key for key, split in splits.items() if split.objects], needed)
    return splits


def load_training(data: DataConfig, size: int, also: Collection[str] = ()) -> dict[str, PreparedSplit]:
    """The prepared splits of what a training names, and those of `also`; prepared and checked like `load_splits`."""
    from normmatch.datasets import mixture
    from normmatch.datasets.prepared import load_prepared, prepare

    needed = (*data.needed_splits, *also)
    if data.plain:
        return load_splits(data.names[0], data.root, data.protocol, size, needed)
    dataset = mixture.load(data.names, data.root, data.protocol, data.exclude, data.exclude_classes)
    _check_needed(data.name, data.root, [key for key, split in dataset.splits.items() if split.objects], needed)
    folder = training_folder(data, size)
    prepare(dataset, folder, size)
    return load_prepared(folder)


def training_folder(data: DataConfig, size: int) -> Path:
    """Where the cache of what a training names is."""
    without = "".join(f"-no-{name}" for name in (*data.exclude, *data.exclude_classes))
    return Path(data.root) / "prepared" / f"{data.name}{without}-{data.protocol}-{size}"


def _check_needed(name: str, root: Path, found: Collection[str], needed: Collection[str]) -> None:
    """Whether every needed split has objects; a sentence says which one has not."""
    missing = [split for split in needed if split not in found]
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
        f"{name} in {root} has no objects for the split {missing[0]!r}; it has {', '.join(found)} (--split)."
    )
