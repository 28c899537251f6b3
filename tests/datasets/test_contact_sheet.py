"""The contact sheet: dots at the keypoints, the same for the same seed, and why a crop is missing."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch.annotations import Annotation
from normmatch.datasets import contact_sheet as module
from normmatch.datasets.contact_sheet import contact_sheet
from normmatch.datasets.types import Dataset, Split
from normmatch.errors import DataError


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
    return Dataset("pets", "nmt", {"train": Split((*cats, bird)), "test": test})


def test_contact_sheet_has_dots_at_the_keypoints(tmp_path: Path, dataset: Dataset) -> None:
    item = dataset.splits["train"].objects[4]
    one = Dataset("pets", "nmt", {"train": Split((item,))})
    contact_sheet(one, tmp_path / "sheet.png")
    sheet = np.array(Image.open(tmp_path / "sheet.png")).astype(float)
    assert sheet.shape == (2 * module.GAP + module.TITLE + module.TILE, 2 * module.GAP + module.TILE, 3)
    colours = module._hues(one)["bird"]
    side = module.TILE - 2 * module.MARGIN / module.SHARP  # 80 x 60 pixels of the crop fill this width
    for name, point in zip(item.names, item.keypoints, strict=True):
        close = np.abs(sheet - colours[name]).max(axis=2) < 12
        y, x = np.argwhere(close).mean(axis=0) + 0.5
        left = module.GAP + module.MARGIN / module.SHARP
        top = module.GAP + module.TITLE + (module.TILE - side * 60 / 80) / 2
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
    labels = [item.label for _, item in module._choose(dataset, 5, seed=0)]
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
    labels = module._place_labels(points, [150.0] * 12, 30, 680)
    overlaps = [module._overlap(a, b) for i, a in enumerate(labels) for b in labels[:i]]
    assert max(overlaps) < 0.1 * 150 * 30
    assert np.min(labels) >= 0
    assert np.max(labels) <= 680


def test_errors(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(DataError, match="no objects"):
        contact_sheet(Dataset("empty", "nmt", {}), tmp_path / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(DataError, match=r"folder\.png cannot be written"):
        contact_sheet(dataset, tmp_path / "folder.png")
    assert {path.suffix for path in tmp_path.iterdir()} == {".png"}
    assert not list(tmp_path.glob(".*"))
