"""Unpack the archives of a dataset: only plain files and folders, only below the target, and all of them or nothing."""

import lzma
import os
import shutil
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, cast

import rich.progress
from rich.console import Console

from normmatch.errors import DataError, first_line

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".zip")
STAGING = ".unpacking"
DAMAGED = (  # RuntimeError: a password. ValueError, LookupError: names, links or numbers that are none.
    OSError, EOFError, RuntimeError, ValueError, LookupError,
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


def unpack(archives: Sequence[Path], folder: Path, only: Collection[str] = ()) -> None:
    """Unpack the archives of one dataset into `folder`; files that are no archive (see ENDINGS) are copied.

    Everything goes to a hidden folder beside the target first and is moved into place at the end, so that an
    interrupted or refused archive leaves the target as it was.

    Args:
        archives: where the files are.
        folder: where they go.
        only: the folders and files at the top that are the dataset's; what else archives hold is left out, and a
            warning says so.
    """
    staging = folder / STAGING
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    try:
        staging.mkdir(parents=True)
        for archive in archives:
            _unpack_one(archive, staging)
        _drop_others(staging, only)
        _merge(staging, folder)
    except OSError as error:
        raise DataError(f"cannot unpack into {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def is_archive(path: Path) -> bool:
    """Whether the file's name ends like an archive that `unpack` opens."""
    return path.name.lower().endswith(ENDINGS)


def _unpack_one(archive: Path, staging: Path) -> None:
    bar = {"description": f"unpacking {archive.name}", "console": Console(stderr=True)}
    try:
        with rich.progress.open(archive, "rb", **bar) as file:  # type: ignore[call-overload]
            if not is_archive(archive):
                with (staging / archive.name).open("wb") as target:
                    shutil.copyfileobj(file, target)
            elif zipfile.is_zipfile(archive):
                with zipfile.ZipFile(file) as packed:
                    packed.extractall(staging)  # which takes away what would lead out of the folder
            else:
                with tarfile.open(fileobj=file) as tar:
                    tar.extractall(staging, filter=_plain)
                    _check_end(tar)
    except DAMAGED as error:
        sentence = f"{archive} cannot be unpacked ({first_line(error)}): if it is damaged, get it again"
        raise DataError(sentence) from error


def _check_end(tar: tarfile.TarFile) -> None:
    """tarfile takes a broken header for the end, and so a tar that was cut: the true end is a block of zeros."""
    stream = cast(IO[bytes], tar.fileobj)
    stream.seek(tar.offset)
    if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError(f"it is cut short or damaged at byte {tar.offset}")


def _plain(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """A member as it may be unpacked; names and links that leave the folder, and devices, are refused."""
    member = tarfile.data_filter(member, folder)
    if os.name == "nt":  # SPair-71k's pairs have ":" in their names, which Windows cannot write
        return member.replace(name=member.name.replace(":", "_"))
    return member


def _drop_others(staging: Path, only: Collection[str]) -> None:
    """Leave only the dataset's own tree."""
    others = sorted(path for path in staging.iterdir() if only and path.name not in only)
    for path in others:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    named = [path.name for path in others if not path.name.startswith((".", "__MACOSX"))]
    if named:
        more = f" and {len(named) - 1:,} more" if len(named) > 1 else ""
        warnings.warn(f"{named[0]}{more} in the archives is not of the dataset and was not unpacked.", stacklevel=3)


def _merge(source: Path, target: Path) -> None:
    """Move what is in `source` into `target`: whole folders where they are new, file by file where they are not."""
    for entry in source.iterdir():
        there = target / entry.name
        if entry.is_dir() and there.is_dir():
            _merge(entry, there)
        else:
            os.replace(entry, there)
