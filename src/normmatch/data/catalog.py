"""The datasets by name: the one place that training, evaluation and the command line open them from."""

from pathlib import Path

from normmatch.config import DatasetName, ProtocolName
from normmatch.data.pairs import Dataset
from normmatch.data.protocols import get_protocol
from normmatch.errors import ConfigError


def open_dataset(name: DatasetName, root: Path, protocol: ProtocolName = "nmt") -> Dataset:
    """Read the annotations of a dataset.

    `synthetic` is any folder of images, which are paired with warped copies of themselves; or, where the folder has an
    annotations.csv, the figures that `normmatch data download synthetic` drew into it.
    """
    from normmatch.data import folder, homography, hpatches, pascal_voc, spair, willow

    root = Path(root)
    if name == "pascal-voc":
        return pascal_voc.load(root, protocol=protocol)
    if name == "spair-71k":
        return spair.load(root, protocol=protocol)
    if name == "willow":
        return willow.load(root)
    if name == "hpatches":
        return hpatches.load(root)
    if name == "folder" or (name == "synthetic" and (root / "annotations.csv").is_file()):
        return folder.load(root)
    if name == "synthetic":
        return homography.load(root)
    raise ConfigError(f"There is no dataset {name!r}.")


def prepared_folder(name: DatasetName, root: Path, protocol: ProtocolName = "nmt", size: int | None = None) -> Path:
    """Where `normmatch data prepare` puts the cache of a dataset; the size is the protocol's unless given."""
    return Path(root) / "prepared" / f"{name}-{protocol}-{size or get_protocol(protocol).size}"
