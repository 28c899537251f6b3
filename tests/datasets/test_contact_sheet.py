"""The contact sheet: dots at the keypoints, the same for the same seed, and why a crop is missing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from normmatch import viz
from normmatch.datasets import contact_sheet as module
from normmatch.datasets.contact_sheet import choose, contact_sheet, draw, make_tile, name_colors
from normmatch.datasets.types import AnnotatedObject, Dataset, Split
from normmatch.errors import DataError, InputError


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
    return Dataset("pets", "nmt", {"train": Split((*cats, bird)), "test": test})


def test_dots_lie_on_the_pixels_of_their_keypoints(dataset: Dataset) -> None:
    """The source image is bright where the keypoints are, so the tile must be bright where the dots are."""
    item = dataset.splits["train"].objects[4]
    image = np.full((80, 100, 3), 90, np.uint8)
    for x, y in item.keypoints.astype(int):
        image[y - 2 : y + 3, x - 2 : x + 3] = 255
    Image.fromarray(image).save(item.image)
    one = Dataset("pets", "nmt", {"train": Split((item,))})
    colors = name_colors(one)
    (axes,) = viz.panels(draw([("train", item)], colors, 1))
    (dots,) = axes.collections
    tile, points = make_tile(item)
    np.testing.assert_array_equal(dots.get_offsets(), points)
    hexes = [to_hex(color) for color in dots.get_facecolors()]
    assert hexes == [colors["bird", name] for name in item.names]
    assert len(set(hexes)) == len(hexes)
    for x, y in points.astype(int):
        assert tile[y, x].min() > 200
    bright = np.argwhere((tile[:, :, 0] > 200) & (tile[:, :, 0] != module.FRAME))[:, ::-1] + 0.5
    near = np.linalg.norm(bright[:, None] - points, axis=2).argmin(1)
    centers = [bright[near == i].mean(0) for i in range(len(points))]
    np.testing.assert_allclose(centers, points, atol=0.5 * module.TILE / 80 + 1)


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
    item.image.write_bytes(b"no image")
    contact_sheet(dataset, tmp_path / "broken.png")
    (axes,) = viz.panels(draw([("train", item)], name_colors(dataset), 1))
    sentence = next(text for text in axes.texts if text.get_color() == module.RED)
    assert "2.png" in sentence.get_text().replace("\n", "")
    assert not len(axes.collections[0].get_offsets())


def test_points_outside_of_the_tile_are_counted(dataset: Dataset) -> None:
    item = dataset.splits["train"].objects[4]
    far = replace(item, keypoints=item.keypoints + np.array([[0, 0], [500, 0]], np.float32))
    (axes,) = viz.panels(draw([("train", far)], name_colors(dataset), 1))
    assert len(axes.collections[0].get_offsets()) == 1
    assert "1 outside" in [text.get_text() for text in axes.texts]


def test_many_points_are_drawn_without_names(tmp_path: Path) -> None:
    item = make_item(tmp_path, 0, "grid", tuple(f"a very long name {i}" for i in range(300)))
    dataset = Dataset("grid", "nmt", {"train": Split((item,))})
    (axes,) = viz.panels(draw([("train", item)], name_colors(dataset), 1))
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
