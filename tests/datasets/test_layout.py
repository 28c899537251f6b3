"""The account of what is left out, and which files count as images."""

import warnings
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from normmatch.annotations.images import image_files, upright_size
from normmatch.datasets.layout import Skipped, main_reasons, report
from normmatch.io import read_image


def damaged() -> Skipped:
    skipped = Skipped()
    skipped.add("objects that are difficult", "cat/1.xml", expected=True, times=14496)
    for number in range(5):
        skipped.add("images missing", Path(f"/data/voc/JPEGImages/{number}.jpg"))
    skipped.add("lists broken", "val.txt")
    return skipped


def test_report_is_one_sentence_with_the_first_damaged_file() -> None:
    assert report(damaged()) == (
        "left out: 14,496 objects that are difficult; 5 images missing (first: JPEGImages/0.jpg); "
        "1 lists broken (first: val.txt)"
    )
    assert report(Skipped()) is None
    assert report(Counter({"odd things": 2})) == "left out: 2 odd things"
    assert main_reasons(Skipped()) == "nothing was found"


def test_examples_are_few() -> None:
    assert damaged().examples["images missing"] == [f"JPEGImages/{number}.jpg" for number in range(3)]
    assert damaged() == {"objects that are difficult": 14496, "images missing": 5, "lists broken": 1}


def test_only_damage_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="not whole") as caught:
        damaged().warn("voc")
    sentence = (
        "voc is not whole, left out: 5 images missing (first: JPEGImages/0.jpg); 1 lists broken (first: val.txt)."
    )
    assert [str(warning.message) for warning in caught] == [sentence]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = Skipped()
        quiet.add("objects that are difficult", "cat/1.xml", expected=True)
        quiet.warn("voc")


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
