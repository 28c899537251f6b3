"""The contact sheet: dots at the keypoints, the same for the same seed, and why a crop is missing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch import viz
from normmatch.annotations import Annotation
from normmatch.datasets import check as module
from normmatch.datasets.check import choose, contact_sheet, draw
from normmatch.datasets.types import Dataset, Split
from normmatch.errors import DataError, InputError


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


def test_dots_lie_on_the_pixels_of_their_keypoints(dataset: Dataset) -> None:
    """The source image is bright where the keypoints are, so the tile must be bright where the dots are."""
    item = dataset.splits["train"].objects[4]
    image = np.full((80, 100, 3), 90, np.uint8)
    for x, y in item.keypoints.astype(int):
        image[y - 2 : y + 3, x - 2 : x + 3] = 255
    Image.fromarray(image).save(item.path)
    figure = draw([("train", item)], 1)
    (axes,) = viz.panels(figure)
    (dots,) = axes.collections
    points = dots.get_offsets()
    tile = figure.axes[0].images[0].get_array()
    assert len(points) == len(item.names)
    for x, y in points.astype(int):
        assert tile[y, x].min() > 200
    bright = np.argwhere(tile[:, :, 0] > 200)[:, ::-1] + 0.5
    near = np.linalg.norm(bright[:, None] - points, axis=2).argmin(1)
    centers = [bright[near == i].mean(0) for i in range(len(points))]
    np.testing.assert_allclose(centers, points, atol=0.5 * module.TILE / 60 + 1)


def test_contact_sheet_follows_its_seed(tmp_path: Path, dataset: Dataset) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 5)):
        contact_sheet(dataset, tmp_path / "out" / f"{name}.png", seed=seed, columns=2, rows=1)
    a, b, c = ((tmp_path / "out" / f"{name}.png").read_bytes() for name in "abc")
    assert a == b
    assert a != c
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.png", "b.png", "c.png"]


def test_classes_take_turns(dataset: Dataset) -> None:
    labels = [item.label for _, item in choose(dataset, 5, seed=0)]
    assert labels == ["bird", "cat", "bird", "cat", "cat"]


def test_contact_sheet_shows_why_a_crop_is_missing(tmp_path: Path, dataset: Dataset) -> None:
    item = dataset.splits["train"].objects[2]
    item.path.write_bytes(b"no image")
    contact_sheet(dataset, tmp_path / "broken.png")
    figure = draw([("train", item)], 1)
    assert "2.png" in figure.axes[0].get_title().replace("\n", "")
    assert not len(viz.panels(figure)[0].collections[0].get_offsets())


def test_points_outside_of_the_tile_are_left_out(dataset: Dataset) -> None:
    item = dataset.splits["train"].objects[4]
    far = replace(item, keypoints=item.keypoints + np.array([[0, 0], [500, 0]], np.float32))
    (axes,) = viz.panels(draw([("train", far)], 1))
    assert len(axes.collections[0].get_offsets()) == 1


def test_many_points_are_drawn_without_names(tmp_path: Path) -> None:
    item = make_item(tmp_path, 0, "grid", tuple(f"a very long name {i}" for i in range(300)))
    (axes,) = viz.panels(draw([("train", item)], 1))
    assert len(axes.collections[0].get_offsets()) == 300
    assert not any("long name" in text.get_text() for text in axes.texts)


def test_every_text_is_taken_as_it_is(tmp_path: Path) -> None:
    item = make_item(tmp_path, 0, r"$\bad{$", (r"$\bad{$", "b"))
    contact_sheet(Dataset("odd", "nmt", {"$train$": Split((item,))}), tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").is_file()


def test_errors(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(DataError, match="no objects"):
        contact_sheet(Dataset("empty", "nmt", {}), tmp_path / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match=r"folder\.png cannot be written"):
        contact_sheet(dataset, tmp_path / "folder.png")
    assert {path.suffix for path in tmp_path.iterdir()} == {".png"}
    assert not list(tmp_path.glob(".*"))
