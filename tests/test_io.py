"""Every kind of image becomes upright RGB; everything else becomes one sentence that names the file."""

import os
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch import io
from normmatch.errors import InputError
from normmatch.io import read_image
from normmatch.outputs import whole_file

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def corners() -> Image.Image:
    """24 wide, 16 high; red, green, blue and white quarters, so that any turn shows."""
    image = Image.new("RGB", (24, 16), RED)
    image.paste(GREEN, (12, 0, 24, 8))
    image.paste(BLUE, (0, 8, 12, 16))
    image.paste(WHITE, (12, 8, 24, 16))
    return image


def quarters(array: np.ndarray) -> list[list[int]]:
    height, width = array.shape[:2]
    return [array[y * height // 4, x * width // 4].tolist() for y in (1, 3) for x in (1, 3)]


def is_one_sentence_about(error: pytest.ExceptionInfo[InputError], path: Path) -> bool:
    message = str(error.value)
    return path.name in message and message.endswith(".") and "\n" not in message and len(message) < 400


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "ppm", "gif", "jpg", "webp"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    corners().save(path, quality=95)
    array = read_image(path)
    assert array.shape == (16, 24, 3)
    assert array.dtype == np.uint8
    assert np.abs(np.array(quarters(array)) - [RED, GREEN, BLUE, WHITE]).max() < 40


def test_open_files_stay_open_and_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    corners().save(path)
    with path.open("rb") as file:
        np.testing.assert_array_equal(read_image(file), read_image(path))
        np.testing.assert_array_equal(read_image(file), read_image(path))
        assert file.tell() == 0
    with pytest.raises(InputError, match="the picture is an open file that cannot be read"):
        read_image(file, name="the picture")
    for content in (b"", b"no image"):
        with pytest.raises(InputError, match="expected an undamaged JPEG"):
            read_image(BytesIO(content))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_exif_orientation(tmp_path: Path, orientation: int, suffix: str) -> None:
    """Stored turned and tagged so, the picture comes back as it was."""
    undo = [None, 0, 3, 1, 5, 2, 6, 4][orientation - 1]  # the inverse of what the tag asks for, as Pillow's Transpose
    stored = corners() if undo is None else corners().transpose(Image.Transpose(undo))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{suffix}"
    stored.save(path, exif=exif, quality=95)
    array = read_image(path)
    assert array.shape == (16, 24, 3)
    assert np.abs(np.array(quarters(array)) - [RED, GREEN, BLUE, WHITE]).max() < 40


def test_damaged_exif_is_no_reason_to_refuse(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    path = tmp_path / "a.jpg"
    corners().save(path, exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff12345")
    assert read_image(path).shape == (16, 24, 3)
    assert not recwarn.list


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_16_bit_is_scaled(tmp_path: Path, suffix: str) -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(1, 256).repeat(4, axis=0)
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(ramp).save(path)
    array = read_image(path)
    np.testing.assert_allclose(array[0, :, 0], np.arange(256), atol=1)
    assert (array == array[:, :, :1]).all()


def test_16_bit_colour(tmp_path: Path) -> None:
    """A PNG with 16 bits a channel, written by hand because Pillow does not write it."""
    pixels = np.array([[[65535, 32896, 257]]], dtype=">u2")

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0" + pixels.tobytes()))
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IEND", b""))
    assert read_image(path)[0, 0].tolist() == [255, 128, 1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([-3.0, 0.0, 3.0], [0, 128, 255]),
        ([0.0, 2047.5, 4095.0], [0, 128, 255]),
        ([np.nan, 0.25, np.inf], [0, 64, 0]),
        ([7.0, 7.0, 7.0], [7, 7, 7]),
        ([-3e38, 0.0, 3e38], [0, 128, 255]),
    ],
)
def test_float_tiff(tmp_path: Path, values: list[float], expected: list[int]) -> None:
    path = tmp_path / "a.tif"
    Image.fromarray(np.array([values], dtype=np.float32)).save(path)
    np.testing.assert_allclose(read_image(path)[0, :, 1], expected, atol=1)


@pytest.mark.parametrize("largest", [255, 1023, 4095, 16383])
@pytest.mark.parametrize(("kind", "suffix"), [(np.uint16, "png"), (np.uint16, "tif"), (np.int32, "tif")])
def test_few_bits_in_many_are_not_read_as_black(tmp_path: Path, largest: int, kind: type, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(np.array([[0, largest // 2, largest]]).astype(kind).repeat(3, axis=0)).save(path)
    with pytest.warns(UserWarning, match=f"grey values up to {largest:,} in .* bits are read as 0 to {largest:,}"):
        array = read_image(path)
    np.testing.assert_allclose(array[0, :, 1], [0, 127, 255], atol=1)


def test_warnings_of_others_are_heard_while_images_are_read(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    with io.QUIET:
        warnings.warn("torch.compile does not work", stacklevel=1)
        warnings.warn_explicit("damaged EXIF", UserWarning, "PIL/Image.py", 1, module="PIL.Image")
    assert [str(warning.message) for warning in recwarn.list] == ["torch.compile does not work"]


def test_integer_tiff(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    Image.fromarray(np.array([[-100_000, 0, 100_000]], dtype=np.int32)).save(path)
    np.testing.assert_allclose(read_image(path)[0, :, 1], [0, 128, 255], atol=1)


@pytest.mark.parametrize(
    ("mode", "suffix"), [("L", "png"), ("1", "png"), ("P", "gif"), ("CMYK", "jpg"), ("YCbCr", "tif")]
)
def test_modes_keep_colours(tmp_path: Path, mode: str, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    corners().convert(mode).save(path, quality=95, compression="jpeg")  # Pillow 12.3 cannot read its plain YCbCr TIFFs
    expected = np.array(quarters(np.array(corners().convert(mode).convert("RGB"))))
    assert np.abs(np.array(quarters(read_image(path))) - expected).max() < 40


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_is_laid_on_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (4, 1), (0, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    image.putpixel((2, 0), (0, 0, 0, 128))
    path = tmp_path / "a.png"
    image.convert(mode).save(path)
    np.testing.assert_allclose(read_image(path)[0, :3, 0], [0, 255, 127], atol=1)


def test_transparent_palette_is_laid_on_white(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putpixel((1, 0), 1)
    path = tmp_path / "a.png"
    image.save(path, transparency=1)
    assert read_image(path)[0].tolist() == [[255, 0, 0], [255, 255, 255]]


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif", "ppm"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_truncated(tmp_path: Path, suffix: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / f"cut.{suffix}"
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputError) as error:
        read_image(path)
    assert is_one_sentence_about(error, path)


def test_not_an_image(tmp_path: Path) -> None:
    for name, content in (("text.jpg", b"hello, world"), ("empty.png", b""), ("head.png", b"\x89PNG\r\n\x1a\n")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError) as error:
            read_image(path)
        assert is_one_sentence_about(error, path)


def test_folder_missing_and_pipe(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        read_image(tmp_path)
    with pytest.raises(InputError, match=r"nothing\.jpg does not exist"):
        read_image(tmp_path / "nothing.jpg")
    with pytest.raises(InputError, match="cannot be opened"):
        read_image("a\0b.jpg")
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputError, match="not a regular file"):  # and does not wait for it
        read_image(tmp_path / "pipe.png")


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    corners().save(path)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(io.Image, "open", refuse)  # the tests may run as root, who is never refused
    with pytest.raises(InputError, match=r"a\.png cannot be opened: permission denied"):
        read_image(path)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"  # an EPS under a false name: Pillow would start Ghostscript for it
    corners().save(path, format="EPS")
    with pytest.raises(InputError, match="is not a readable image"):
        read_image(path)


@pytest.mark.parametrize("size", [(40_000, 3_000), (40_000, 40_000)])  # above our limit, above Pillow's
def test_too_large_is_refused_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    path = tmp_path / "wide.ppm"
    path.write_bytes(b"P6 %d %d 255\n" % size + bytes(1000))
    monkeypatch.setattr(io.Image.Image, "load", lambda self: pytest.fail("decoded"))
    with pytest.raises(InputError, match="100,000,000") as error:
        read_image(path)
    assert is_one_sentence_about(error, path)


def test_smallest(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("L", (1, 1), 200).save(path)
    assert read_image(str(path)).tolist() == [[[200, 200, 200]]]


def test_whole_file_makes_folders_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "picture.png"
    for colour in (RED, GREEN):
        with whole_file(path) as temporary:
            assert temporary.parent == path.parent
            Image.new("RGB", (4, 4), colour).save(temporary)  # by its ending
            assert not path.exists() or read_image(path)[0, 0].tolist() == list(RED)
    assert read_image(path)[0, 0].tolist() == list(GREEN)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_whole_file_keeps_the_old_one_when_it_fails(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "notes"
    path.write_text("old")
    with pytest.raises(error), whole_file(path) as temporary:
        raise error(temporary.write_text("half"))
    assert path.read_text() == "old"
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError), whole_file(tmp_path / "taken") as temporary:
        temporary.write_text("new")
    assert sorted(os.listdir(tmp_path)) == ["notes", "taken"]


def test_files_are_read_without_torch() -> None:
    subprocess.run([sys.executable, "-c", "import sys, normmatch.io; assert 'torch' not in sys.modules"], check=True)


@pytest.mark.parametrize("address", ["https://example.org/a.jpg", "s3://bucket/a.jpg", "file:///a.jpg"])
def test_a_web_address(address: str) -> None:
    for path in (address, Path(address)):
        with pytest.raises(InputError, match="is a web address; expected an image file on this computer"):
            read_image(path)


def test_threads_that_read_leave_warnings_as_they_were() -> None:
    """The first to come is not the last to go: it must not hand on the silence that it found or made."""
    before = warnings.filters[:]
    both_are_in, first_is_out = threading.Barrier(2), threading.Event()

    def first() -> None:
        with io.QUIET:
            both_are_in.wait(10)
        first_is_out.set()

    def second() -> None:
        with io.QUIET:
            both_are_in.wait(10)
            assert first_is_out.wait(10)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(first), pool.submit(second)]:
            done.result()
    assert warnings.filters == before
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", stacklevel=1)


def test_what_is_written_is_for_everybody_the_umask_allows(tmp_path: Path) -> None:
    with whole_file(tmp_path / "hidden.bin") as temporary:
        temporary.touch(mode=0o600)  # as some libraries do
    (tmp_path / "usual.bin").touch()
    assert (tmp_path / "hidden.bin").stat().st_mode == (tmp_path / "usual.bin").stat().st_mode
