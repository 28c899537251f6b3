"""The check of a dataset: right counts, everything missing named, and a contact sheet with dots at the keypoints."""

import io
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image
from rich.console import Console

from normmatch.data import check
from normmatch.data.check import contact_sheet, print_summary, summarize
from normmatch.data.pairs import AnnotatedObject, Dataset, Split
from normmatch.errors import DataError


def make_item(folder: Path, number: int, label: str, names: tuple[str, ...]) -> AnnotatedObject:
    path = folder / f"{number}.png"
    Image.new("RGB", (100, 80), (90, 90, 90)).save(path)
    points = np.stack([np.linspace(20, 80, len(names)), np.linspace(20, 60, len(names))], axis=1)
    return AnnotatedObject(path, label, names, points.astype(np.float32), (10.0, 10.0, 80.0, 60.0))


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    names = [("eye", "ear", "tail"), ("eye", "ear"), ("tail", "paw"), ("eye", "ear", "tail"), ("wing", "beak")]
    cats = [make_item(tmp_path, i, "cat", names[i]) for i in range(4)]
    bird = make_item(tmp_path, 4, "bird", names[4])
    test = Split((bird, cats[0], cats[1]), np.array([[1, 2], [2, 1]]))
    return Dataset("pets", "nmt", {"train": Split((*cats, bird)), "test": test}, Counter({"xml without bounds": 7}))


def test_counts(dataset: Dataset) -> None:
    summary = summarize(dataset)
    rows = {(row.split, row.label): row for row in summary.counts}
    assert list(rows) == [("train", "bird"), ("train", "cat"), ("test", "bird"), ("test", "cat")]
    cats = rows["train", "cat"]
    assert (cats.objects, cats.images, cats.keypoints, cats.names) == (4, 4, 10, 4)
    assert cats.pairs == 3  # 0-1, 0-3, 1-3 share two names; 2 shares one
    assert rows["train", "bird"].pairs == 0
    assert (rows["test", "bird"].pairs, rows["test", "cat"].pairs) == (0, 2)  # as listed
    assert summarize(dataset, fewest_shared=3).counts[1].pairs == 1
    assert summary.missing == ()


def test_possible_pairs_equal_a_plain_count() -> None:
    rng = np.random.default_rng(0)
    names = np.array(list("abcdef"))
    items = [
        AnnotatedObject(Path("x"), "cat", tuple(names[rng.random(6) < 0.5]), np.zeros((0, 2), np.float32))
        for _ in range(60)
    ]
    plain = sum(len(set(a.names) & set(b.names)) >= 2 for i, a in enumerate(items) for b in items[:i])
    assert check._possible_pairs(items, 2) == plain


def test_summary_names_what_is_missing(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "2.png").unlink()
    console = Console(file=io.StringIO(), width=100)
    print_summary(summarize(dataset), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("pets (nmt), train", "pets (nmt), test", "cat", "bird", "7 x xml without bounds", "1 image files"):
        assert part in text
    assert str(tmp_path / "2.png") in text


def test_summary_of_a_whole_dataset(dataset: Dataset) -> None:
    dataset.skipped.clear()
    console = Console(file=io.StringIO(), width=100)
    print_summary(summarize(dataset), console)
    assert "nothing is missing, nothing was left out" in console.file.getvalue()  # type: ignore[attr-defined]


def test_contact_sheet_has_dots_at_the_keypoints(tmp_path: Path, dataset: Dataset) -> None:
    item = dataset.splits["train"].objects[4]
    one = Dataset("pets", "nmt", {"train": Split((item,))})
    contact_sheet(one, tmp_path / "sheet.png")
    sheet = np.array(Image.open(tmp_path / "sheet.png")).astype(float)
    assert sheet.shape == (2 * check.GAP + check.TITLE + check.TILE, 2 * check.GAP + check.TILE, 3)
    colours = check._hues(one)["bird"]
    side = check.TILE - 2 * check.MARGIN / check.SHARP  # 80 x 60 pixels of the crop fill this width
    for name, point in zip(item.names, item.keypoints, strict=True):
        close = np.abs(sheet - colours[name]).max(axis=2) < 12
        y, x = np.argwhere(close).mean(axis=0) + 0.5
        left = check.GAP + check.MARGIN / check.SHARP
        top = check.GAP + check.TITLE + (check.TILE - side * 60 / 80) / 2
        expected = np.array([left, top]) + (point - 10) * side / 80
        np.testing.assert_allclose([x, y], expected, atol=0.7)


def test_contact_sheet_follows_its_seed(tmp_path: Path, dataset: Dataset) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 5)):
        contact_sheet(dataset, tmp_path / "out" / f"{name}.png", seed=seed, columns=2, rows=1)
    a, b, c = ((tmp_path / "out" / f"{name}.png").read_bytes() for name in "abc")
    assert a == b
    assert a != c
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.png", "b.png", "c.png"]


def test_classes_take_turns(dataset: Dataset) -> None:
    labels = [item.label for _, item in check._choose(dataset, 5, seed=0)]
    assert labels == ["bird", "cat", "bird", "cat", "cat"]


def test_contact_sheet_shows_why_a_crop_is_missing(tmp_path: Path, dataset: Dataset) -> None:
    contact_sheet(dataset, tmp_path / "whole.png")
    (tmp_path / "2.png").write_bytes(b"no image")
    contact_sheet(dataset, tmp_path / "broken.png")
    red = [
        (np.array(Image.open(tmp_path / f"{n}.png")) == (179, 38, 30)).all(axis=2).any() for n in ("whole", "broken")
    ]
    assert red == [False, True]


def test_many_points_are_drawn_without_names(tmp_path: Path) -> None:
    item = make_item(tmp_path, 0, "grid", tuple(f"a very long name {i}" for i in range(300)))
    contact_sheet(Dataset("grid", "nmt", {"train": Split((item,))}), tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").stat().st_size > 0


def test_labels_do_not_cover_each_other() -> None:
    points = np.random.default_rng(0).uniform(100, 580, (12, 2)).astype(np.float32)
    labels = check._place_labels(points, [150.0] * 12, 30, 680)
    overlaps = [check._overlap(a, b) for i, a in enumerate(labels) for b in labels[:i]]
    assert max(overlaps) < 0.1 * 150 * 30
    assert np.min(labels) >= 0
    assert np.max(labels) <= 680


def test_errors(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(DataError, match="no objects"):
        contact_sheet(Dataset("empty", "nmt", {}), tmp_path / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(DataError, match=r"folder\.png cannot be written"):
        contact_sheet(dataset, tmp_path / "folder.png")
    assert not (tmp_path / "folder.png.tmp").exists()


def test_real_ducks(tmp_path: Path, shared_datasets: Path) -> None:
    with tarfile.open(shared_datasets / "WILLOW-Duck-sample.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    names = tuple(str(i) for i in range(10))
    ducks = tuple(
        AnnotatedObject(
            path.with_suffix(".png"), "Duck", names, scipy.io.loadmat(path)["pts_coord"].T.astype(np.float32)
        )
        for path in sorted(tmp_path.rglob("*.mat"))
    )
    dataset = Dataset("willow", "nmt", {"train": Split(ducks)})
    row = summarize(dataset).counts[0]
    assert (row.objects, row.images, row.keypoints, row.names, row.pairs) == (12, 12, 120, 10, 66)
    contact_sheet(dataset, tmp_path / "sheet.png", columns=4, rows=3)
    assert Image.open(tmp_path / "sheet.png").size == (4 * (check.TILE + check.GAP) + check.GAP, 1196)
