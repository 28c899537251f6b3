"""Unpack archives of strangers: only plain files and folders, only below the target, and all of them or nothing."""

import bz2
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from normmatch.errors import DataError

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".zip")

# An archive beyond one of these is taken for a bomb. The largest benchmark unpacks to 2 GiB in 80,000 files.
MAX_BYTES = 64 << 30
MAX_MEMBERS = 500_000
MAX_DEPTH = 32  # folders in folders
MAX_RATIO = 200  # unpacked / packed; folders of small XML files reach 13
RATIO_FROM = 64 << 20  # an archive that unpacks to less is harmless whatever its ratio

STAGING = ".unpacking"
CHUNK = 1 << 20
# ValueError: numbers that are none in a tar's extended header, names in a zip that are not the UTF-8 they claim to be.
DAMAGED = (EOFError, ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile)

Report = Callable[[int], object]  # told how many bytes of the packed file have been read


def unpack(archives: Sequence[Path], folder: Path, only: Collection[str] = ()) -> None:
    """Unpack the archives of one dataset into `folder`; files that are no archive (see ENDINGS) are copied.

    Everything goes to a hidden folder beside the target first and is moved into place at the end, so that an
    interrupted or refused archive leaves the target as it was. What a killed run left there is cleared first.

    Args:
        archives: where the files are.
        folder: where they go.
        only: the folders and files at the top that are the dataset's; what else archives hold stays in them, and a
            warning says so.
    """
    staging = folder / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir(parents=True)
        with _progress() as progress:
            for archive in archives:
                _unpack_one(archive, staging, progress)
        _drop_others(staging, only)
        _merge(staging, folder)
    except OSError as error:
        raise DataError(f"cannot unpack into {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _drop_others(staging: Path, only: Collection[str]) -> None:
    """Leave only the dataset's own tree."""
    others = sorted(path for path in staging.iterdir() if only and path.name not in only)
    for path in others:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    named = [path.name for path in others if not path.name.startswith((".", "__MACOSX"))]
    if named:
        more = f" and {len(named) - 1:,} more" if len(named) > 1 else ""
        warnings.warn(f"{named[0]}{more} in the archives is not of the dataset and was not unpacked.", stacklevel=3)


def is_archive(path: Path) -> bool:
    """Whether the file's name ends like an archive that `unpack` opens."""
    return path.name.lower().endswith(ENDINGS)


def top_folder(archive: Path) -> str | None:
    """The folder that the archive's first member lies in, or None where no member can be read."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                return _first_top(member.filename for member in file.infolist())
        with archive.open("rb") as raw:
            reader = _Meter(archive, _decompressed(raw))
            with tarfile.open(fileobj=cast(IO[bytes], reader), mode="r|") as tar:
                return _first_top(member.name for member in tar)
    except (*DAMAGED, OSError):  # a DataError is a ValueError
        return None


def _first_top(names: Iterable[str]) -> str | None:
    """The first part of the first name that has one, passing over "./" and the "._" files of macOS."""
    tops = (PurePosixPath(name).parts[:1] for name in names)
    return next((part for parts in tops for part in parts if not part.startswith("._")), None)


def _progress() -> Progress:
    columns = (TextColumn("unpacking {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def _unpack_one(archive: Path, staging: Path, progress: Progress) -> None:
    size = archive.stat().st_size
    task = progress.add_task(archive.name, total=size)
    try:
        if not is_archive(archive):
            shutil.copyfile(archive, staging / archive.name)
        elif zipfile.is_zipfile(archive):
            _unpack_zip(archive, staging, lambda done: progress.update(task, completed=done))
        else:
            _unpack_tar(archive, staging, lambda done: progress.update(task, completed=done))
    except DataError:
        raise
    except DAMAGED as error:
        raise DataError(f"{archive} is damaged or cut short ({error}): get it again") from error
    except NotImplementedError as error:
        raise DataError(f"{archive} is packed in a way that cannot be read here: {error}") from error
    except OSError as error:  # bz2 reports damage as a bare OSError, without a number
        if error.errno is None:
            raise DataError(f"{archive} is damaged or cut short ({error}): get it again") from error
        raise DataError(f"{archive} cannot be unpacked: {error.strerror} ({error.filename or staging})") from error
    progress.update(task, completed=size)


def _unpack_zip(archive: Path, staging: Path, report: Report) -> None:
    with zipfile.ZipFile(archive) as file:
        members = file.infolist()
        _check_count(archive, len(members))
        _check_size(archive, sum(member.file_size for member in members))
        for member in members:
            target = _target(archive, staging, member.filename)
            mode = stat.S_IFMT(member.external_attr >> 16)  # 0 where the archive was made on Windows
            if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(f"{archive} holds {member.filename!r}, a link or device: only plain files are unpacked")
            if member.flag_bits & 1:
                raise DataError(f"{archive} is encrypted: expected an archive without a password")
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            with file.open(member) as stream:
                _write(stream, target)
            report(member.header_offset + member.compress_size)


def _unpack_tar(archive: Path, staging: Path, report: Report) -> None:
    with archive.open("rb") as raw:
        reader = _Meter(archive, _decompressed(raw))
        # As a stream ("r|"), so that nothing is unpacked twice and the meter sees every byte.
        with tarfile.open(fileobj=cast(IO[bytes], reader), mode="r|") as file:
            total = 0  # by the headers: a sparse file unpacks to more than its bytes in the stream
            for count, member in enumerate(file, start=1):
                total += member.size
                _check_count(archive, count)
                _check_size(archive, total)
                target = _target(archive, staging, member.name)
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                elif member.isreg():
                    _write(cast(IO[bytes], file.extractfile(member)), target)
                else:
                    raise DataError(f"{archive} holds {member.name!r}, a link or device: only plain files are unpacked")
                report(raw.tell())
            while reader.read(CHUNK):  # the checksum of a packed stream comes at its end
                pass
            # tarfile takes a broken header for the end: the true end is a block of zeros with nothing behind it.
            if reader.data_end > file.offset or reader.position < file.offset + tarfile.BLOCKSIZE:
                raise DataError(f"{archive} is damaged or cut short at byte {file.offset}: get it again")


def _decompressed(raw: IO[bytes]) -> IO[bytes]:
    """The tar inside a packed file; told by its first bytes, because names lie."""
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if magic.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(raw)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    return raw


class _Meter:
    """A stream that refuses to give more than the limits allow, and knows where its last non-zero byte was."""

    def __init__(self, archive: Path, stream: IO[bytes]) -> None:
        self.archive = archive
        self.stream = stream
        self.position = 0
        self.data_end = 0

    def read(self, size: int) -> bytes:
        chunk = self.stream.read(size)
        content = len(chunk.rstrip(b"\0"))
        if content:
            self.data_end = self.position + content
        self.position += len(chunk)
        _check_size(self.archive, self.position)
        return chunk


def _check_size(archive: Path, size: int) -> None:
    if size > min(MAX_BYTES, max(RATIO_FROM, MAX_RATIO * archive.stat().st_size)):
        limits = f"{MAX_BYTES >> 30} GiB, or {MAX_RATIO} times its own size"
        raise DataError(f"{archive} unpacks to more than {limits}: it looks like an archive bomb")


def _check_count(archive: Path, count: int) -> None:
    if count > MAX_MEMBERS:
        raise DataError(f"{archive} holds more than {MAX_MEMBERS:,} files: it looks like an archive bomb")


def _target(archive: Path, staging: Path, name: str) -> Path:
    """Where a member goes, if its name stays below the folder on every system."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or len(path.parts) > MAX_DEPTH:
        raise DataError(f"{archive} holds {name!r}: only relative paths without '..' are unpacked")
    if os.name == "nt":  # SPair-71k's pairs have ":" in their names, which Windows cannot write
        path = PurePosixPath(name.replace(":", "_"))
    return staging / path


def _write(stream: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(stream, file, CHUNK)


def _merge(source: Path, target: Path) -> None:
    """Move what is in `source` into `target`: whole folders where they are new, file by file where they are not."""
    for entry in source.iterdir():
        there = target / entry.name
        if entry.is_dir() and there.is_dir():
            _merge(entry, there)
        else:
            os.replace(entry, there)
