"""Photographs: which files are images, and whose annotations are meant by the path of one."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch.annotations import Annotation
from normmatch.annotations.images import ImageIndex, find_image, image_files, upright_size
from normmatch.errors import DataError
from normmatch.io import read_image


def of(*images: str) -> list[Annotation]:
    return [Annotation(image, ("eye",), np.ones((1, 2))) for image in images]


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_an_image_is_seen_from_the_first_folder_that_has_it(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "images/a.jpg", "images/b.jpg")
    folders = (tmp_path, tmp_path / "images")
    assert find_image("a.jpg", folders) == tmp_path / "a.jpg"
    assert find_image("b.jpg", folders) == tmp_path / "images/b.jpg"
    for name in ("c.jpg", "images", "null\0.jpg", "/" * 5000 + "c.jpg"):
        assert find_image(name, folders) is None


def test_annotations_are_found_by_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "x/1.jpg", "y/1.jpg")
    sets = of("x/1.jpg", "y/1.jpg")
    index = ImageIndex(sets, tmp_path / "p.json")
    assert index.find(tmp_path / "y/1.jpg") is sets[1]
    assert ImageIndex(sets, "p.json").find("y/1.jpg") is sets[1]
    monkeypatch.chdir(tmp_path / "x")
    assert index.find("1.jpg") is sets[0]
    assert ImageIndex(sets, "elsewhere/p.json", tmp_path).find(tmp_path / "y/1.jpg") is sets[1]


@pytest.mark.parametrize("there", [True, False])
def test_an_image_of_another_folder_is_not_taken_for_it(tmp_path: Path, there: bool) -> None:
    """It was: day2/001.jpg had the points of day1/001.jpg."""
    touch(tmp_path, "day2/001.jpg", *(["day1/001.jpg"] if there else []))
    sets = of("other.jpg", "day1/001.jpg", "001.png")
    index = ImageIndex(sets, tmp_path / "p.json")
    assert index.all(tmp_path / "day2/001.jpg") == []
    with pytest.raises(
        DataError, match=r"no keypoints of .*day2/001.jpg; it has those of day1/001.jpg, other.jpg, 001"
    ):
        index.find(tmp_path / "day2/001.jpg")
    assert index.find(tmp_path / "day1/001.jpg") is sets[1]


def test_a_file_elsewhere_is_found_by_the_end_of_its_path(tmp_path: Path) -> None:
    touch(tmp_path, "photos/day1/1.jpg", "photos/2.jpg", "photos/day2/2.jpg")
    sets = of("day1/1.jpg", "./2.jpg")
    index = ImageIndex(sets, tmp_path / "points/p.json")
    assert index.find(tmp_path / "photos/day1/1.jpg") is sets[0]
    assert index.find(tmp_path / "photos/2.jpg") is sets[1]
    assert index.find(tmp_path / "photos/2.jpg") is sets[1]  # again
    with pytest.raises(DataError, match=r"has keypoints of 2.jpg; is that .*photos/2.jpg or .*photos/day2/2.jpg"):
        index.find(tmp_path / "photos/day2/2.jpg")


def test_two_names_that_fit(tmp_path: Path) -> None:
    index = ImageIndex(of("1.jpg", "x/1.jpg"), tmp_path / "p.json")
    with pytest.raises(DataError, match=r"has keypoints of 1.jpg and x/1.jpg; which of them is elsewhere/x/1.jpg"):
        index.find("elsewhere/x/1.jpg")


def test_a_name_that_a_file_beside_the_annotations_has(tmp_path: Path) -> None:
    """`1.jpg` is the file beside them, and not another of that name."""
    touch(tmp_path, "1.jpg", "more/1.jpg")
    assert ImageIndex(of("1.jpg"), tmp_path / "p.json").all(tmp_path / "more/1.jpg") == []


def test_objects_without_keypoints_count_only_alone() -> None:
    empty = Annotation("1.jpg", (), np.zeros((0, 2)))
    (item,) = of("1.jpg")
    assert ImageIndex([empty, item, empty], "p.json").find("1.jpg") is item
    assert ImageIndex([empty, empty], "p.json").find("1.jpg") is empty


def test_many_names_are_not_all_listed() -> None:
    with pytest.raises(DataError, match=r"it has those of 0.jpg, 1.jpg, 2.jpg, 3.jpg, 4.jpg and 3 more\.$"):
        ImageIndex(of(*(f"{i}.jpg" for i in range(8))), "p.json").find("a.jpg")


@pytest.mark.parametrize("ending", [".jpg", ".JPEG", ".png", ".gif", ".jp2", ".webp", ".tif", ".ppm", ".bmp"])
def test_images_are_those_that_can_be_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"image{ending}"
    Image.new("RGB", (30, 20)).save(path)
    assert image_files(tmp_path) == [path]
    assert upright_size(path) == (30, 20)
    assert read_image(path).shape == (20, 30, 3)


def test_other_formats_are_no_images(tmp_path: Path) -> None:
    for name in ("a.eps", "b.pdf", "c.ico", ".hidden.png"):
        Image.new("RGB", (32, 32)).save(tmp_path / name)
    (tmp_path / "a.eps").rename(tmp_path / "a.png")  # reading this one would start a program
    assert image_files(tmp_path) == [tmp_path / "a.png"]
    assert upright_size(tmp_path / "a.png") is None
