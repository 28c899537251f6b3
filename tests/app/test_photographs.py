"""Copies and tiles of photographs: the right pixels, upright, kept, and of listed files alone."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch.app.photographs import TILE, Photographs, factor_of, fault_of


def gradient(width: int, height: int) -> np.ndarray:
    """(H, W, 3): red says x, green y."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.stack([x, y, np.full_like(x, 90)], -1).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    image = Image.fromarray(gradient(1301, 900))
    image.save(tmp_path / "a.jpg", quality=95)
    image.save(tmp_path / "b.png")
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn clockwise
    image.save(tmp_path / "c.jpg", quality=95, exif=turned)
    (tmp_path / "d.jpg").write_text("no image")
    image.save(tmp_path / "unlisted.jpg")
    return tmp_path


@pytest.fixture
def photographs(folder: Path) -> Photographs:
    return Photographs(folder, ["a.jpg", "b.png", "c.jpg", "d.jpg", "gone.jpg"])


def opened(jpeg: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(jpeg)) as image:
        assert image.format == "JPEG"
        return np.asarray(image.convert("RGB")).astype(int)


@pytest.mark.parametrize("file", ["a.jpg", "b.png"])
def test_tiles_together_are_the_photograph(photographs: Photographs, file: str) -> None:
    for level in (1, 2, 4):
        width, height = -(-1301 // level), -(-900 // level)
        whole = np.zeros((height, width, 3), int)
        for row in range(-(-height // TILE)):
            for column in range(-(-width // TILE)):
                tile = opened(photographs.tile(file, level, column, row))
                whole[row * TILE : row * TILE + len(tile), column * TILE : column * TILE + tile.shape[1]] = tile
        expected = np.asarray(Image.fromarray(gradient(1301, 900)).resize((width, height), Image.Resampling.BOX))
        assert np.abs(whole - expected.astype(int)).mean() < 3
        for outside in ((column + 1, 0), (0, row + 1), (-1, 0)):
            with pytest.raises(KeyError):
                photographs.tile(file, level, *outside)
    with pytest.raises(KeyError):
        photographs.tile(file, 3, 0, 0)


def test_copies_are_small_and_upright(photographs: Photographs) -> None:
    assert opened(photographs.copy("a.jpg", 320)).shape == (221, 320, 3)
    upright = opened(photographs.copy("c.jpg", 320))
    assert upright.shape == (320, 221, 3)
    assert upright[0, 0, 1] > 240  # what was below on the left is above
    assert upright[0, -1, 0] < 15
    assert opened(photographs.copy("b.png", 5000)).shape == (900, 1301, 3)  # never larger than it is


def test_a_large_jpeg_is_read_smaller_at_a_power_of_two(photographs: Photographs) -> None:
    for least, factor in ((0, 1), (1000, 1), (650, 2), (300, 4)):
        array = photographs.read("a.jpg", least)
        assert factor_of(1301, array) == factor
        assert max(array.shape) >= least
    assert photographs.read("b.png", 300).shape == (900, 1301, 3)


def test_only_listed_files_are_read(photographs: Photographs, folder: Path) -> None:
    for name in ("unlisted.jpg", "../a.jpg", "", str(folder / "a.jpg")):
        with pytest.raises(KeyError):
            photographs.copy(name, 320)
        with pytest.raises(KeyError):
            photographs.tile(name, 1, 0, 0)
    assert fault_of(photographs, "a.jpg") is None
    assert "no image" in str(fault_of(photographs, "d.jpg"))
    assert "is not in" in str(fault_of(photographs, "gone.jpg"))


def test_what_was_made_is_kept_until_the_file_changes(
    photographs: Photographs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, stamp = photographs.copy("a.jpg", 320), photographs.stamp("a.jpg")
    read = Photographs.read
    monkeypatch.setattr(Photographs, "read", lambda *_: pytest.fail("it was read again"))
    assert photographs.copy("a.jpg", 320) is first
    monkeypatch.setattr(Photographs, "read", read)
    Image.new("RGB", (1301, 900), "white").save(folder / "a.jpg")
    assert photographs.stamp("a.jpg") != stamp
    assert opened(photographs.copy("a.jpg", 320)).min() > 250
