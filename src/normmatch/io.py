"""Reading files: any common image becomes an upright RGB array, or a sentence says why not; text, JSON, lock files."""

import functools
import io
import json
import os
import re
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from numbers import Real
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from normmatch.checks import shown
from normmatch.errors import DataError, InputError, first_line

MAX_PIXELS = 100_000_000  # larger images are refused before they are decoded: RGB alone would take 300 MB
MAX_BYTES = 1 << 29  # of an open file
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "AVIF", "TIFF", "BMP", "GIF", "PPM", "JPEG2000")  # MPO: JPEG of some phones
MIN_SIDE = 8  # pixels of an image, or of a box in it: less shows nothing that could be matched
DEPTHS = (255, 1023, 4095, 16383, 65535)  # the largest grey of 8, 10, 12, 14 and 16 bits
EXPECTED = "an undamaged JPEG, PNG, WebP, AVIF, TIFF, BMP, GIF, PPM or JPEG 2000 file"
IMAGE_KINDS = "a path, an open file, a PIL image, an array (H, W, 3) of uint8 or floats in [0, 1] or a tensor (3, H, W)"


class _Quiet:
    """Pillow's warnings are off inside, from the first thread that enters to the last that leaves; others are heard.

    `catch_warnings` changes the whole process: if each thread had its own, the last to leave could put back what
    another had set, and warnings would stay off for good.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.caught = threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.caught.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", module="PIL")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.caught.close()


QUIET = _Quiet()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; a BlockingIOError says that another process has it. A process that dies lets go."""
    if os.name == "nt":  # Windows has no flock: nobody is held off there
        yield
        return
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a network disk without locks: better none than no work at all
        if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))):
            raise BlockingIOError  # another process has removed the file, or made it anew, since we opened it
        try:
            yield
        finally:
            if not os.fstat(file.fileno()).st_size:  # a file with something in it is not ours
                path.unlink(missing_ok=True)


def read_image(
    source: Path | str | IO[bytes], max_pixels: int = MAX_PIXELS, name: str = "", least: int = 0
) -> np.ndarray:
    """Read an image file as (H, W, 3) uint8 RGB, upright (EXIF orientation applied), the first frame of an animation.

    Grey, palette and CMYK images are converted, 16-bit ones scaled to 8 bits, transparency is laid on white.

    Args:
        source: a path, or an open file or BytesIO, which stays open and where it was.
        max_pixels: larger images are refused.
        name: what messages call it; a path is called by itself.
        least: a large JPEG may be read at 1/2, 1/4 or 1/8, which is faster, if its longer side has so many pixels then.

    Raises:
        InputError: missing, not an image, cut off, damaged, or larger than `max_pixels`; the sentence names the file.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        check_file(path)
        return _decode(path, name or str(path), max_pixels, least)
    try:
        place = source.tell()
        content = source.read(MAX_BYTES + 1)
        source.seek(place)
    except (OSError, ValueError) as error:  # a closed file, a pipe
        raise InputError(f"{name or 'the image'} is an open file that cannot be read: {first_line(error)}.") from error
    if not isinstance(content, bytes) or not 0 < len(content) <= MAX_BYTES:
        raise InputError(f"{name or 'the image'} is an open file without the bytes of an image; expected {EXPECTED}.")
    return _decode(io.BytesIO(content), name or "the image", max_pixels, least)


def _decode(source: Path | io.BytesIO, name: str, max_pixels: int, least: int) -> np.ndarray:
    """The pixels of an image file (H, W, 3), or one sentence."""
    # Pillow warns of large images and of damaged EXIF blocks; we refuse the first and do without the second.
    with QUIET:
        try:
            with Image.open(source, formats=_formats()) as image:
                _check_header(image, name, max_pixels)
                if least and max(image.size) >= 2 * least:
                    image.draft(None, (image.width * least // max(image.size), image.height * least // max(image.size)))
                ImageOps.exif_transpose(image, in_place=True)  # or an upright image would be copied
                return rgb_array(image)
        except InputError:
            raise
        except UnidentifiedImageError:
            raise InputError(f"{name} is not a readable image; expected {EXPECTED}.") from None
        except Image.DecompressionBombError:
            raise InputError(f"{name} has more than the {max_pixels:,} pixels that can be read.") from None
        except PermissionError:
            raise InputError(f"{name} cannot be opened: permission denied.") from None
        except (
            Exception
        ) as error:  # the decoders raise whatever they stumble on: OSError, SyntaxError, struct.error ...
            reason = str(error).rstrip(".") or type(error).__name__
            raise InputError(f"{name} is damaged or cut off ({reason}); expected {EXPECTED}.") from error


def load_image(image: Any, name: str = "image") -> np.ndarray:
    """An image of any kind as (H, W, 3) uint8 RGB, upright: files and PIL images are turned as their EXIF data say."""
    if isinstance(image, str | Path) or hasattr(image, "read"):
        return read_image(image, name="" if isinstance(image, str | Path) else name)
    if isinstance(image, Image.Image):
        _check_image_size(*image.size, name)
        try:
            return rgb_array(ImageOps.exif_transpose(image))
        except (OSError, SyntaxError, ValueError) as error:  # a file that PIL opened, and now fails to decode
            raise InputError(f"{name} cannot be decoded ({error}); expected an undamaged image.") from error
    array = as_array(image, name)
    if hasattr(image, "detach") and array.ndim == 3:  # a tensor
        array = array.transpose(1, 2, 0)  # (H, W, 3)
    if array.ndim == 2:
        array = np.broadcast_to(array[:, :, None], (*array.shape, 3))  # grey; not copied before its size is checked
    if array.ndim != 3 or array.shape[2] != 3 or (array.dtype != np.uint8 and array.dtype.kind != "f"):
        kind = f"{array.dtype} of shape {array.shape}" if array.dtype != object else f"a {type(image).__name__}"
        raise InputError(f"{name} is {kind}; expected {IMAGE_KINDS}.")
    _check_image_size(array.shape[1], array.shape[0], name)
    return np.ascontiguousarray(array) if array.dtype == np.uint8 else _floats_to_bytes(array, name)


def _floats_to_bytes(array: np.ndarray, name: str) -> np.ndarray:
    """Floats in [0, 1] as uint8, which is what the network was trained on."""
    low, high = float(array.min()), float(array.max())
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # also when one is NaN
        raise InputError(f"{name} has floats from {low:.3g} to {high:.3g}; expected them in [0, 1], or uint8.")
    return np.rint(array.clip(0, 1) * 255).astype(np.uint8)


def _check_image_size(width: int, height: int, name: str) -> None:
    if width * height == 0:
        raise InputError(f"{name} has {width} x {height} pixels; expected at least {MIN_SIDE} a side.")
    if width * height > MAX_PIXELS:
        raise InputError(
            f"{name} has {width} x {height} pixels, more than the {MAX_PIXELS:,} that can be read; make it smaller."
        )


def rgb_array(image: Image.Image) -> np.ndarray:
    """Convert a Pillow image of any mode to (H, W, 3) uint8 RGB: deep greys scaled, transparency laid on white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        grey = _to_8_bits(np.asarray(image))  # (H, W)
        return np.repeat(grey[:, :, None], 3, axis=2)  # (H, W, 3)
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.new("RGB", image.size, "white")
        image.paste(rgba, mask=rgba.getchannel("A"))
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))  # (H, W, 3)


def read_text(path: Path, most: int) -> str:
    """The text of a UTF-8 file of at most `most` bytes."""
    try:
        info = path.stat()
        if info.st_size > most:
            raise DataError(
                f"{path} has {info.st_size >> 20} MiB; expected an annotation file of {most >> 20} MiB at most."
            )
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):  # reading a pipe may never end
            raise DataError(f"{path} is not a regular file; expected an annotation file.")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    return decode_text(path, content)


def decode_text(path: Path, content: bytes) -> str:
    """The text of a file's bytes."""
    try:
        return content.decode("utf-8-sig")  # spreadsheets put a byte-order mark in front
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path} line {line} is not UTF-8 text: save the file as UTF-8.") from error


def parse_json(path: Path, text: str) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of absurdly many digits
        raise DataError(f"{path} is not a JSON file that can be read ({error}).") from error


def as_array(values: Any, what: str = "what was given") -> np.ndarray:
    """The values as a numpy array, also those of a torch tensor of any kind, though torch is not imported for it."""
    try:
        if isinstance(values, np.ma.MaskedArray) and values.mask.any():
            raise ValueError("some of its values are masked")
        if not hasattr(values, "detach"):
            return np.asarray(values)
        tensor = values.detach()
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        if str(tensor.layout) != "torch.strided":
            tensor = tensor.to_dense()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).cpu().resolve_conj().numpy()
    except Exception as error:  # ragged lists, tensors without data, objects that only look like arrays ...
        raise InputError(f"{what} cannot be read as an array: {first_line(error)}") from error


def as_numbers(values: Any, what: str, expected: str = "real numbers") -> np.ndarray:
    """Real numbers of any kind as float64: no text, no truth values, nothing complex."""
    try:
        array = as_array(values, what)
        real = array.dtype.kind in "fiu" or (
            array.dtype.kind == "O" and all(isinstance(v, Real) and not isinstance(v, bool) for v in array.flat)
        )
        if (real or not array.size) and array.size <= MAX_PIXELS:
            return array.astype(np.float64)
        reason = shown(values)
    except (InputError, TypeError, ValueError, OverflowError) as error:
        reason = first_line(error.__cause__ if isinstance(error.__cause__, Exception) else error)
    raise InputError(f"{what} are no numbers ({reason[:120]}); expected {expected}.")


def is_web_address(path: Path | str) -> bool:
    """Whether a path is a web address; `Path` makes one slash of two."""
    return re.match(r"[a-z][a-z0-9+.-]+:/", str(path), re.IGNORECASE) is not None


def check_file(path: Path) -> None:
    """Refuse what is no file with something in it."""
    try:
        info = path.stat()
    except FileNotFoundError:
        if is_web_address(path):
            raise InputError(f"{path} is a web address; expected an image file on this computer.") from None
        raise InputError(f"The image {path} does not exist.") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"The image {str(path)!r} cannot be opened: {reason}.") from None
    if stat.S_ISDIR(info.st_mode):
        raise InputError(f"{path} is a folder; expected an image file.")
    if not stat.S_ISREG(info.st_mode):  # reading a pipe or a device may never end
        raise InputError(f"{path} is not a regular file; expected an image file.")
    if info.st_size == 0:
        raise InputError(f"The image {path} is empty (0 bytes).")


@functools.cache
def _formats() -> tuple[str, ...]:
    """What we read, as this Pillow calls it: a format that it is not told of is never looked for."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)  # without MPO, which its JPEG reader reads


def _check_header(image: Image.Image, name: str, max_pixels: int) -> None:
    """Refuse by format and size, which are known before any pixel is decoded."""
    if image.format not in FORMATS:  # some of Pillow's other formats start external programs
        raise InputError(f"{name} is a {image.format} file; expected {EXPECTED}.")
    width, height = image.size
    if width * height > max_pixels:
        raise InputError(
            f"{name} has {width} x {height} pixels, more than the {max_pixels:,} that can be read; make it smaller."
        )
    if width * height == 0:
        raise InputError(f"{name} has {width} x {height} pixels; expected at least one.")


def _to_8_bits(values: np.ndarray) -> np.ndarray:
    """Scale deep greys to uint8.

    Floats in [0, 1] by 255; whole numbers, and floats above 1, from 0 to the largest that so many bits hold, for
    cameras store 12 bits in 16; anything with negative values from its smallest to its largest.
    """
    finite = np.isfinite(values)
    low, high = (float(values[finite].min()), float(values[finite].max())) if finite.any() else (0.0, 0.0)
    if low >= 0:
        usual = {"u": 65535.0, "i": 65535.0}.get(values.dtype.kind, 1.0)  # Pillow gives 16-bit PGM as 32-bit integers
        full = 1.0 if usual == 1.0 and high <= 1 else float(next((f for f in DEPTHS if high <= f), high))
        if high and full != usual:
            stored = f"{8 * values.dtype.itemsize} bits"
            warnings.warn(f"grey values up to {high:,.0f} in {stored} are read as 0 to {full:,.0f}", stacklevel=2)
        low, high = 0.0, full
    scale = 255 / ((high - low) or 1.0)
    scaled = np.where(finite, values, low).astype(np.float32) * scale - low * scale
    return np.rint(scaled.clip(0, 255)).astype(np.uint8)
