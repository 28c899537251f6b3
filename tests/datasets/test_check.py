"""The check of a dataset: right counts, and everything missing is named."""

import io
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image
from rich.console import Console

from normmatch.annotations import Annotation
from normmatch.datasets import drawn
from normmatch.datasets.check import contact_sheet, count_classes, print_summary
from normmatch.datasets.types import Dataset, Split
from tests.command_line import run


def make_item(folder: Path, number: int, label: str, names: tuple[str, ...]) -> Annotation:
    path = folder / f"{number}.png"
    Image.new("RGB", (100, 80), (90, 90, 90)).save(path)
    points = np.stack([np.linspace(20, 80, len(names)), np.linspace(20, 60, len(names))], axis=1)
    return Annotation(str(path), names, points, (10.0, 10.0, 80.0, 60.0), label)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    names = [("eye", "ear", "tail"), ("eye", "ear"), ("tail", "paw"), ("eye", "ear", "tail"), ("wing", "beak")]
    cats = [make_item(tmp_path, i, "cat", names[i]) for i in range(4)]
    bird = make_item(tmp_path, 4, "bird", names[4])
    test = Split((bird, cats[0], cats[1]), np.array([[1, 2], [2, 1]]))
    return Dataset("pets", "nmt", {"train": Split((*cats, bird)), "test": test}, Counter({"xml without bounds": 7}))


def test_counts(dataset: Dataset) -> None:
    rows = {(row.split, row.label): row for name, split in dataset.splits.items() for row in count_classes(name, split)}
    assert list(rows) == [("train", "bird"), ("train", "cat"), ("test", "bird"), ("test", "cat")]
    cats = rows["train", "cat"]
    assert (cats.objects, cats.images, cats.keypoints, cats.names) == (4, 4, 10, 4)
    assert cats.pairs == 3  # 0-1, 0-3, 1-3 share two names; 2 shares one
    assert rows["train", "bird"].pairs == 0
    assert (rows["test", "bird"].pairs, rows["test", "cat"].pairs) == (0, 2)  # as listed
    assert count_classes("train", dataset.splits["train"], fewest_shared=3)[1].pairs == 1


def test_summary_names_what_is_missing(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "2.png").unlink()
    console = Console(file=io.StringIO(), width=100)
    print_summary(dataset, console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("pets (nmt), train", "pets (nmt), test", "cat", "bird", "7 x xml without bounds", "1 image files"):
        assert part in text
    assert str(tmp_path / "2.png") in text


def test_summary_of_a_whole_dataset(dataset: Dataset) -> None:
    dataset.skipped.clear()
    console = Console(file=io.StringIO(), width=100)
    print_summary(dataset, console=console)
    assert "nothing is missing, nothing was left out" in console.file.getvalue()  # type: ignore[attr-defined]


def test_real_ducks(tmp_path: Path, shared_datasets: Path) -> None:
    with tarfile.open(shared_datasets / "WILLOW-Duck-sample.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    names = tuple(str(i) for i in range(10))
    ducks = tuple(
        Annotation(str(path.with_suffix(".png")), names, scipy.io.loadmat(path)["pts_coord"].T, label="Duck")
        for path in sorted(tmp_path.rglob("*.mat"))
    )
    dataset = Dataset("willow", "nmt", {"train": Split(ducks)})
    (row,) = count_classes("train", dataset.splits["train"])
    assert (row.objects, row.images, row.keypoints, row.names, row.pairs) == (12, 12, 120, 10, 66)
    contact_sheet(dataset, tmp_path / "sheet.png", columns=4, rows=3)
    width, height = Image.open(tmp_path / "sheet.png").size
    assert 1.1 < width / height < 4 / 3  # four by three tiles, and their titles


def test_the_sheet_does_not_go_onto_the_users_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn.write(tmp_path / "data", 2, 64, seed=0)
    (photo,) = list((tmp_path / "data").rglob("*.png"))[:1]
    command = ("data", "check", "synthetic", "--root", tmp_path / "data", "--out")
    before = photo.read_bytes()
    code, _, err = run(capsys, *command, photo, "--overwrite")
    assert (code, "which this command reads" in err, photo.read_bytes() == before) == (2, True, True)
    mine = tmp_path / "mine.png"
    mine.write_bytes(before)
    assert run(capsys, *command, mine)[0] == 2
    assert mine.read_bytes() == before
    for _ in range(2):
        assert run(capsys, *command, tmp_path / "new.png")[0] == 0
