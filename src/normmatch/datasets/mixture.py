"""What a training sees of one or several benchmarks: classes kept apart, and no photograph that is tested on.

SPair-71k and PascalVOC share photographs, under one name: those of the test split of the one are in the training split
of the other. Here a photograph is known by its name, whatever the dataset, its annotation or its crop.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from normmatch.annotations import Annotation
from normmatch.config import DatasetName, ProtocolName
from normmatch.datasets.layout import Skipped
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import Dataset, Split
from normmatch.datasets.validation_split import validation_split
from normmatch.errors import ConfigError, DataError

BRINGS_VAL = "spair-71k"  # the others' validation objects are taken out of their training objects


def load(
    names: Collection[DatasetName],
    root: Path,
    protocol: ProtocolName = "nmt",
    exclude: Collection[DatasetName] = (),
    exclude_classes: Collection[str] = (),
    val_share: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Join the training objects of datasets in one folder, as the splits `train` and `val`, which share no photograph.

    Left out are the test photographs of all of them, the test and validation photographs of the benchmarks in
    `exclude`, and the classes in `exclude_classes`. A class is called dataset/class; any two of its objects may meet.
    """
    parts = open_parts(names, root, protocol, exclude)
    barred = tested_photographs(parts, names)
    skipped = Skipped()
    for name in names:
        skipped.update(parts[name].skipped)
    pool: list[Annotation] = []
    val: list[Annotation] = []
    known = {item.label for name in names for split in parts[name].splits.values() for item in split.objects}
    if unknown := set(exclude_classes) - known:
        raise ConfigError(f"data.exclude_classes names {min(unknown)!r}; expected some of {', '.join(sorted(known))}")
    for name in names:
        for split_name in ("train", "val"):
            split = parts[name].splits.get(split_name)
            objects = () if split is None else split.objects
            found = list(_clean(objects, barred, exclude_classes, skipped))
            into = val if (name, split_name) == (BRINGS_VAL, "val") else pool
            into += [replace(item, label=f"{name}/{item.label}") for item in found]
    train, held = validation_split(pool, val_share, seed, get_protocol(protocol).fewest_shared, photograph)
    val += held
    kept = photographs(val)
    train = tuple(item for item in train if photograph(item) not in kept)
    if not train:
        raise DataError(f"nothing of {' and '.join(names)} in {root} is left to train on.")
    splits = {"train": Split(train), "val": Split(tuple(val))} if val else {"train": Split(train)}
    return Dataset("+".join(names), protocol, splits, skipped)


def open_parts(
    names: Collection[DatasetName], root: Path, protocol: ProtocolName, exclude: Collection[DatasetName]
) -> dict[str, Dataset]:
    """Each dataset that is trained on or excluded."""
    from normmatch.datasets.catalog import open_dataset

    parts: dict[str, Dataset] = {name: open_dataset(name, root, protocol) for name in (*names, *exclude)}
    for name in (*(names if len(names) > 1 else ()), *exclude):
        if "test" not in parts[name].splits:
            raise DataError(
                f"{name} in {root} has no test split, whose photographs are to be left out; expected it there too."
            )
    return parts


def photograph(item: Annotation) -> Path:
    """What a photograph is known by."""
    return Path(item.path.stem)


def photographs(objects: Iterable[Annotation]) -> set[Path]:
    return {photograph(item) for item in objects}


def tested_photographs(parts: Mapping[str, Dataset], names: Collection[str]) -> dict[str, set[Path]]:
    """By benchmark, the photographs that must not be trained on; validation photographs of `names` are kept apart."""
    return {
        name: {
            photograph(item)
            for split in (("test",) if name in names else ("test", "val"))
            if split in part.splits
            for item in part.splits[split].objects
        }
        for name, part in parts.items()
    }


def prove(dataset: Dataset, names: Collection[DatasetName], root: Path, exclude: Collection[DatasetName] = ()) -> str:
    """A sentence that counts photographs, after all of them were compared; an error where one is in two places."""
    tested = tested_photographs(open_parts(names, root, dataset.protocol, exclude), names)  # type: ignore[arg-type]
    if shared := shared_photographs(dataset, tested):
        raise DataError(f"{len(shared)} photographs are in two places, such as {min(shared)}; expected none.")
    train = photographs(dataset.splits["train"].objects)
    val = photographs(dataset.splits["val"].objects) if "val" in dataset.splits else set()
    counts = ", ".join(f"{len(found):,} by {name}" for name, found in tested.items())
    return (
        f"{len(train):,} photographs are trained on and {len(val):,} validated on; none of them is in both, or among "
        f"those that are tested ({counts})"
    )


def shared_photographs(dataset: Dataset, tested: Mapping[str, set[Path]]) -> set[Path]:
    """The photographs that a mixture has in two places, among its own splits or with what is tested: none."""
    splits = [photographs(split.objects) for split in dataset.splits.values()]
    among = splits[0] & splits[1] if len(splits) > 1 else set()
    return among | (set.union(*splits) & set().union(*tested.values()))


def _clean(
    objects: Iterable[Annotation], barred: Mapping[str, set[Path]], classes: Collection[str], skipped: Skipped
) -> Iterable[Annotation]:
    for item in objects:
        by = next((name for name, tested in barred.items() if photograph(item) in tested), None)
        if by is not None:
            skipped.add(f"objects in photographs that {by} tests", item.path, expected=True)
        elif item.label in classes:
            skipped.add("objects of excluded classes", item.path, expected=True)
        else:
            yield item
