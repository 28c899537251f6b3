"""Mixtures: no photograph that is tested on is trained on, whatever the dataset that shows it."""

import json
from pathlib import Path

import pytest

from normmatch.config import DataConfig
from normmatch.datasets import mixture
from normmatch.datasets.catalog import load_training
from normmatch.errors import ConfigError, DataError
from tests.datasets.layouts import make_spair, make_voc


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Both benchmarks in one folder; of SPair-71k's four images a class two are for training and two for the test."""
    make_voc(tmp_path, classes=("cat",), train_images=12, test_images=4)
    make_spair(tmp_path)
    for split, kept in (("trn", (0, 1)), ("val", ()), ("test", (2, 3))):
        path = tmp_path / "SPair-71k" / "Layout" / "large" / f"{split}.txt"
        lines = [line for line in path.read_text().split() if _numbers(line) <= set(kept)]
        path.write_text("\n".join(lines))
    return tmp_path


def _numbers(line: str) -> set[int]:
    """Which of its class's four images a pair such as 000001-2009_000004-2009_000006:dog has."""
    return {int(name[-6:]) % 4 for name in line.partition(":")[0].split("-")[1:]}


def rename_photograph(root: Path, old: str, new: str) -> None:
    """Call a photograph of SPair-71k by another name, everywhere."""
    top = root / "SPair-71k"
    for path in sorted(top.rglob("*.json")) + sorted(top.rglob("*.txt")):
        path.write_text(path.read_text().replace(old, new))
    for path in sorted(top.rglob(f"*{old}*")):
        path.rename(path.with_name(path.name.replace(old, new)))


def names_of(root: Path, split: str) -> list[str]:
    from normmatch.datasets.catalog import open_dataset

    found = {}
    for name in ("pascal-voc", "spair-71k"):
        found[name] = sorted({item.path.stem for item in open_dataset(name, root).splits[split].objects})  # type: ignore[arg-type]
    return [found["pascal-voc"][0], found["spair-71k"][0]]


def test_no_photograph_is_in_two_places(root: Path) -> None:
    voc_train, spair_test = names_of(root, "train")[0], names_of(root, "test")[1]
    voc_test, spair_train = names_of(root, "test")[0], names_of(root, "train")[1]
    rename_photograph(root, spair_test, voc_train)
    rename_photograph(root, spair_train, voc_test)
    names = ("pascal-voc", "spair-71k")
    mixed = mixture.load(names, root, val_share=0.2)
    trained = mixture.photographs(mixed.splits["train"].objects) | mixture.photographs(mixed.splits["val"].objects)
    assert {Path(voc_train), Path(voc_test)}.isdisjoint(trained)
    assert sum(count for reason, count in mixed.skipped.items() if "tests" in reason) >= 2
    labels = {item.label for split in mixed.splits.values() for item in split.objects}
    assert {"pascal-voc/cat", "spair-71k/cat"} <= labels
    assert mixed.splits["train"].pairs is None
    tested = mixture.tested_photographs(mixture.open_parts(names, root, "nmt", ()), names)
    assert not mixture.shared_photographs(mixed, tested)
    tested["pascal-voc"].add(mixture.photograph(mixed.splits["train"].objects[0]))
    assert mixture.shared_photographs(mixed, tested)  # it can find what there is


def test_one_benchmark_without_what_another_tests(root: Path) -> None:
    voc_train, spair_test = names_of(root, "train")[0], names_of(root, "test")[1]
    rename_photograph(root, spair_test, voc_train)
    alone = mixture.load(("pascal-voc",), root, exclude=("spair-71k",))
    assert Path(voc_train) not in mixture.photographs(alone.splits["train"].objects)
    assert {item.label for item in alone.splits["train"].objects} == {"pascal-voc/cat"}


def test_classes_are_left_out_and_unknown_ones_refused(root: Path) -> None:
    mixed = mixture.load(("pascal-voc", "spair-71k"), root, exclude_classes=("cat",))
    assert {item.label for split in mixed.splits.values() for item in split.objects} == {"spair-71k/dog"}
    with pytest.raises(ConfigError, match="'tiger'; expected some of cat, dog"):
        mixture.load(("pascal-voc", "spair-71k"), root, exclude_classes=("tiger",))


def test_a_benchmark_whose_test_photographs_are_unknown_is_refused(root: Path) -> None:
    for path in (root / "SPair-71k").rglob("test.txt"):
        path.unlink()
    with pytest.raises(DataError, match="spair-71k in .* has no test split"):
        mixture.load(("pascal-voc", "spair-71k"), root)


def test_data_check_counts_and_proves(root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from normmatch.commands import main

    where = ["--root", str(root), "--out", str(tmp_path / "sheet.png")]
    main(["data", "check", "pascal-voc", "spair-71k", *where])
    said = " ".join(capsys.readouterr().out.split())
    assert "none of them is in both, or among those that are tested (4 by pascal-voc, 4 by spair-71k)" in said
    assert "pascal-voc/cat" in said
    main(["data", "check", "pascal-voc", *where])
    assert "none of them" not in capsys.readouterr().out


def test_a_mixture_is_prepared_once_and_checked(root: Path) -> None:
    data = DataConfig(names=("pascal-voc", "spair-71k"), root=root)
    splits = load_training(data, 32)
    assert set(splits) == {"train", "val"}
    assert splits["train"].images.shape[1:] == (32, 32, 3)
    folder = root / "prepared" / "pascal-voc+spair-71k-nmt-32"
    assert json.loads((folder / "manifest.json").read_text())["dataset"] == "pascal-voc+spair-71k"
