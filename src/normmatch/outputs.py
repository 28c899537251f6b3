"""Writing files: whole or not at all, never onto what a command reads, and onto no file of the user's unasked."""

import contextlib
import itertools
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from PIL import Image

from normmatch import __version__
from normmatch.errors import InputError

MARK = "NormMatch"  # what our own files say of who made them
MADE_BY = f"{MARK} {__version__}"
LOOKED_AT = 16384  # bytes at both ends of a file that is no picture, where the mark is looked for
SIGNS = (  # how files of ours begin, or end
    rb'\A\s*\{\s*"made_by": "NormMatch[^"]*"(?!,\s*"images")',  # JSON, but keypoints are edited: they are the user's
    rb"<!-- made by NormMatch[^>]*-->\s*\Z",  # Markdown
    rb'\A.{8}\{"__metadata__":\{"predictions":"',  # what `normmatch eval --out` writes
    rb"\A.{0,8}\x12\x09[Nn]orm[Mm]atch",  # ONNX: the field producer_name
    rb"made_by\x18.NormMatch",  # Parquet
    rb"/Creator \(NormMatch",  # PDF
    rb"<dc:creator>\s*<cc:Agent>\s*<dc:title>NormMatch",  # SVG
)
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".pdf", ".svg")
STDOUT = Path("-")
SPECIAL = (Path("/dev"), Path("/proc"))  # written to as they are: what lies there cannot be replaced
NUMBERS = itertools.count()  # of temporary files: threads may write the same file at once

Identity = tuple[int, int] | str


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Write a file whole or not at all: the path given gets the name `path` at the end of the block, unless it raises.

    The missing folders above `path` are made. A link stays a link, a file keeps its mode, and a pipe or a device gets
    the bytes at the end.
    """
    path = Path(path)
    if _is_special(path):
        with tempfile.TemporaryDirectory(prefix="normmatch-") as folder:
            temporary = Path(folder) / f"file{path.suffix}"
            yield temporary
            with temporary.open("rb") as source, _open_special(path) as file:
                shutil.copyfileobj(source, file)
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    # In the same folder, because a move to another disk is a copy; with the same ending, because it tells the format.
    temporary = target.with_name(f".{target.stem[:200]}.{os.getpid()}-{next(NUMBERS)}{target.suffix}")
    try:
        temporary.touch()
        mode = (target if target.is_file() else temporary).stat().st_mode  # some libraries hide what they write
        temporary.unlink()
        yield temporary
        temporary.chmod(stat.S_IMODE(mode))
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _open_special(path: Path) -> IO[bytes]:
    """A pipe or a device to write to; standard output by any name is ours already, at the place that it has reached."""
    if path == STDOUT:
        sys.stdout.flush()
        return os.fdopen(os.dup(1), "wb")
    with suppress(OSError):
        if os.path.samestat(path.stat(), os.fstat(1)):
            sys.stdout.flush()
            return os.fdopen(os.dup(1), "wb")
    return path.open("ab")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make one sentence of what the disk says against writing to `path`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any], indent: int | None = None) -> None:
    """Write an object as JSON, whole or not at all; its first key says who made it."""
    write_text(path, json.dumps({"made_by": MADE_BY, **content}, indent=indent))


@contextmanager
def words_apart(*paths: Path | None) -> Iterator[None]:
    """Where one of the files is standard output, the words for people go to standard error."""
    with contextlib.redirect_stdout(sys.stderr) if STDOUT in paths else contextlib.nullcontext():
        yield


def check_outputs(
    outputs: Mapping[str, Path | Sequence[Path] | None],
    inputs: Iterable[Path | str | None] = (),
    overwrite: bool = False,
) -> None:
    """Refuse, before the work starts, what a command could not or should not write.

    Args:
        outputs: the files that it will write, by the option that names them or their folder; None is not written.
        inputs: the files that it reads, by whatever names; of a folder all files count that are not our own.
        overwrite: replace files that were not written by this program, too.
    """
    given = [
        (name, path) for name, some in outputs.items() for path in (some if isinstance(some, Sequence) else [some])
    ]
    read = {_identity(Path(path)): path for path in inputs if path is not None}
    seen: dict[Identity, str] = {}
    for name, path in given:
        if path is None:
            continue
        identity = _identity(path)
        if identity in seen and str(path) != os.devnull:
            raise InputError(f"{name} and {seen[identity]} are the same file, {path}; expected two.")
        seen[identity] = name
        if path == STDOUT and sys.__stdout__ is None:
            raise InputError(f"{name} - is standard output, which is closed.")
        if _is_special(path):
            continue
        if identity in read:
            raise InputError(f"{name} {path} is {read[identity]}, which this command reads; expected another file.")
        _check_place(name, path)
        if not path.is_file() or made_by_us(path):
            continue
        above = next((p for p in Path(os.path.realpath(path)).parents if _identity(p) in read), None)
        if above:
            raise InputError(f"{name} {path} is in {above}, which this command reads; expected another file.")
        if path.stat().st_size and not overwrite:
            raise InputError(
                f"{name} {path} exists and was not written by {MARK}; expected another name, or --overwrite."
            )


def _check_place(name: str, path: Path) -> None:
    """Whether a file of that name can come to be there."""
    if "\0" in str(path):
        raise InputError(f"{name} {str(path)!r} has a null character; expected the name of a file.")
    with writing(path):
        if path.is_dir():
            raise InputError(f"{name} {path} is a folder; expected a file.")
        folder = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
        if not folder.is_dir():
            raise InputError(f"{name} {path} cannot be written: {folder} is not a folder.")
        if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
            raise InputError(f"{name} {path} cannot be written: permission denied.")
        if len(os.fsencode(path.name)) > 240:
            raise InputError(f"{name} has a file name of {len(path.name)} characters; expected a shorter one.")


def made_by_us(path: Path) -> bool:
    """Whether a file says that this program wrote it: pictures in their metadata, others at one of their ends."""
    try:
        if path.suffix.lower() in PICTURES[:4]:
            with Image.open(path) as image:
                said = (image.info.get("Software"), image.info.get("comment"), image.getexif().get(0x0131))
            return any(MARK.encode() in (s if isinstance(s, bytes) else str(s).encode()) for s in said)
        with path.open("rb") as file:
            ends = file.read(LOOKED_AT)
            file.seek(max(0, path.stat().st_size - LOOKED_AT))
            ends += file.read()
        return any(re.search(sign, ends, re.DOTALL) for sign in SIGNS)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return False


def _is_special(path: Path) -> bool:
    """Whether it is a pipe, a device or alike, which is written through."""
    if path == STDOUT or any(folder in path.parents for folder in SPECIAL):
        return True
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _identity(path: Path) -> Identity:
    """What tells the same file by other names: links, `./`, another case on disks that do not tell cases apart."""
    try:
        info = path.stat()
        return info.st_dev, info.st_ino
    except (OSError, ValueError):
        return os.path.realpath(path) if "\0" not in str(path) else str(path)
