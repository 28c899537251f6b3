"""`normmatch data`: get, prepare and look at datasets."""

from pathlib import Path

from tyro.conf import Positional

from normmatch.config import DatasetName, ProtocolName
from normmatch.datasets.protocols import get_protocol
from normmatch.errors import DataError

FIGURE_SIZE = 192  # pixels, of the drawn figures


def download(
    name: Positional[DatasetName], root: Path, archives: Path | None = None, count: int = 250, seed: int = 0
) -> None:
    """Download a dataset, check it and unpack it.

    A download that breaks off goes on where it stopped when the command is given again.

    Args:
        name: the dataset; synthetic is drawn, not downloaded
        root: the folder to put it into
        archives: a folder with archives that you already have; nothing is downloaded then
        count: synthetic only, how many training figures of each class are drawn
        seed: synthetic only, fixes the figures
    """
    if name == "folder":
        raise DataError(
            f"There is nothing to download for your own data: put the images and a CSV or JSON into {root}."
        )
    if name == "synthetic":
        from normmatch.datasets import drawn

        drawn.write(root, count, FIGURE_SIZE, seed)
        print(f"{name} is drawn in {root}")
        return
    from normmatch.datasets.download import install

    files = install(name, root, archives)
    print(f"{name} is in {root}, unpacked from {', '.join(file.name for file in files)}")


def prepare(
    name: Positional[DatasetName],
    root: Path,
    protocol: ProtocolName = "nmt",
    size: int | None = None,
) -> None:
    """Decode, crop and resize every object once, into a cache that training and evaluation read.

    The cache goes to ROOT/prepared.

    Args:
        name: the dataset
        root: the folder that it lies in
        protocol: the rules to read the annotations by
        size: side of the square images in pixels; the protocol's if not given
    """
    from normmatch.datasets import prepared
    from normmatch.datasets.catalog import open_dataset, prepared_folder

    dataset = open_dataset(name, root, protocol)
    size = get_protocol(protocol).size if size is None else size
    folder = prepared_folder(name, root, protocol, size)
    report = prepared.prepare(dataset, folder, size, strict=name == "folder")
    print(f"{report.objects:,} objects are in {folder} ({len(report.skipped):,} skipped, {report.seconds:.0f} s)")


def check(
    names: Positional[tuple[DatasetName, ...]],
    root: Path,
    protocol: ProtocolName = "nmt",
    exclude: tuple[DatasetName, ...] = (),
    exclude_classes: tuple[str, ...] = (),
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Count what a dataset holds, name what is missing, and draw a sheet of random crops with their keypoints.

    Of several datasets, or with something excluded: what a training on them would see.

    Args:
        names: the dataset, or several
        root: the folder that they lie in
        protocol: the rules to read the annotations by
        exclude: more benchmarks of the folder whose validation and test photographs are left out
        exclude_classes: classes that are left out
        out: the PNG to draw; NAME-check.png in the current folder if not given
        overwrite: replace a picture that NormMatch did not write, too
    """
    from normmatch.config import DataConfig
    from normmatch.datasets.catalog import open_dataset
    from normmatch.datasets.check import contact_sheet, print_summary
    from normmatch.outputs import check_outputs

    data = DataConfig(names, exclude=exclude, exclude_classes=exclude_classes, root=root, protocol=protocol)
    out = out or Path(f"{data.name}-check.png")
    check_outputs({"--out": out}, (root,), overwrite)
    proof = ""
    if data.plain:
        dataset = open_dataset(names[0], root, protocol)
    else:
        from normmatch.datasets import mixture

        dataset = mixture.load(names, root, protocol, exclude, exclude_classes)
        proof = mixture.prove(dataset, names, root, exclude)
    contact_sheet(dataset, out)
    print_summary(dataset, get_protocol(protocol).fewest_shared)
    if proof:
        print(proof)
    print(f"the contact sheet is {out}")
