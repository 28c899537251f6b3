"""Where the benchmarks come from, and how they get onto this disk: by download, or out of archives already here."""

import hashlib
import os
import shutil
import ssl
import time
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from normmatch import __version__
from normmatch.datasets.unpack import is_archive, top_folder, unpack
from normmatch.errors import DataError

TIMEOUT = 30.0  # seconds without a byte
TRIES = 5  # at one address; each goes on where the last one broke off
PAUSE = 2.0  # seconds between them
CHUNK = 1 << 18


@dataclass(frozen=True)
class Source:
    """One file of a dataset."""

    urls: tuple[str, ...]  # tried in turn, the official one first
    digest: str | None = None  # "md5:..." or "sha256:..."

    @property
    def names(self) -> tuple[str, ...]:
        """The file's name at each address."""
        return tuple(url.rpartition("/")[2] for url in self.urls)


_MIRROR = "https://huggingface.co/heatingma/pygmtools/resolve/main"

SOURCES: dict[str, tuple[Source, ...]] = {
    "pascal-voc": (
        Source(
            (
                "http://host.robots.ox.ac.uk/pascal/VOC/voc2011/VOCtrainval_25-May-2011.tar",
                f"{_MIRROR}/VOCtrainval_25-May-2011.tar",
            ),
            digest="md5:6c3384ef61512963050cb5d687e5bf1e",
        ),
        Source(
            (
                "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/shape/poselets/voc2011_keypoints_Feb2012.tgz",
                f"{_MIRROR}/voc2011_keypoints_Feb2012.tgz",
            ),
        ),
        Source(
            (
                "https://github.com/Thinklab-SJTU/PCA-GM/raw/master/data/PascalVOC/voc2011_pairs.npz",
                f"{_MIRROR}/voc2011_pairs.npz",
            ),
            digest="sha256:ef2f8767c15a13db9694268e6a00fd8ddaf06687b733d4d50d9acf4f87469179",
        ),
    ),
    "spair-71k": (
        Source(
            (
                "http://cvlab.postech.ac.kr/research/SPair-71k/data/SPair-71k.tar.gz",
                f"{_MIRROR}/SPair-71k.tar.gz",
            ),
        ),
    ),
    "willow": (
        Source(
            (
                "http://www.di.ens.fr/willow/research/graphlearning/WILLOW-ObjectClass_dataset.zip",
                f"{_MIRROR}/WILLOW-ObjectClass_dataset.zip",
            ),
        ),
    ),
    "hpatches": (
        Source(
            (  # the dataset's own page sends to the first now; the second is its old home
                "https://huggingface.co/datasets/vbalnt/hpatches/resolve/main/hpatches-sequences-release.zip",
                "http://icvl.ee.ic.ac.uk/vbalnt/hpatches/hpatches-sequences-release.tar.gz",
            ),
        ),
    ),
}

# Archives of any other name serve as well, if this is what they unpack to.
TOP_FOLDERS = {
    "pascal-voc": "TrainVal",
    "spair-71k": "SPair-71k",
    "willow": "WILLOW-ObjectClass",
    "hpatches": "hpatches-sequences-release",
}

# All that lies at the top of a dataset's archives, as its reader looks for it; nothing else is unpacked.
TREES = {
    "pascal-voc": ("TrainVal", "VOCdevkit", "VOC2011", "PascalVOC", "annotations"),
    "spair-71k": ("SPair-71k",),
    "willow": ("WILLOW-ObjectClass",),
    "hpatches": ("hpatches-sequences-release", "hpatches"),
}


class _MirrorError(Exception):
    """This address does not give the file: try the next one."""


class _BrokenOff(_MirrorError):
    """The connection broke: the same address may give the rest."""


def install(name: str, root: Path, archives: Path | None = None) -> list[Path]:
    """Bring the dataset `name` into `root`, and say of which files.

    With `archives`, a folder, the files are taken from there and nothing is downloaded. Downloaded archives stay in
    root/archives, so that a second run does not download them again; they may be deleted.
    """
    if name not in SOURCES:
        raise DataError(f"There is nothing to download for {name!r}: expected one of {', '.join(SOURCES)}.")
    try:
        if archives is None:
            files = [fetch(source, root / "archives") for source in SOURCES[name]]
        else:
            files = find(name, archives)
    except OSError as error:
        raise DataError(f"Cannot read or write {error.filename or root}: {error.strerror or error}.") from error
    unpack(files, root, (*TREES[name], *(file.name for file in files if not is_archive(file))))
    return files


def find(name: str, folder: Path) -> list[Path]:
    """The files of the dataset `name` in a folder of the user's.

    They are known by their official names. In place of archives that are not there, all other archives serve that
    unpack to the dataset's folder; whether these are enough is seen when the dataset is read.
    """
    sources = SOURCES[name]
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected the folder that holds {sources[0].names[0]}.")
    files, missing = [], []
    for source in sources:
        path = next((folder / file for file in source.names if (folder / file).is_file()), None)
        if path is None:
            missing.append(source)
        else:
            _verify(path, source.digest)
            files.append(path)
    others = _others(name, folder, files) if missing else []
    for source in missing:
        if not is_archive(Path(source.names[0])) or not others:
            wanted = " or ".join(dict.fromkeys(source.names))
            raise DataError(f"There is no {wanted} in {folder}: get it from {source.urls[0]} and put it there.")
    return files + others


def _others(name: str, folder: Path, known: Collection[Path]) -> list[Path]:
    """The archives of the folder, less the known ones, that unpack to the dataset's folder."""
    found = []
    for path in sorted(folder.iterdir()):
        if not is_archive(path) or path in known:
            continue
        top = top_folder(path)
        if top is None:
            warnings.warn(f"{path} is passed over: it is empty, damaged or no archive.", stacklevel=2)
        elif top == TOP_FOLDERS[name]:
            found.append(path)
    return found


def fetch(source: Source, folder: Path) -> Path:
    """Download the source's file into `folder`, unless it is there already, and check it."""
    for name in source.names:
        if (folder / name).is_file():
            _verify(folder / name, source.digest)
            return folder / name
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    if source.digest is None:
        console.print(f"{source.names[0]}: no checksum known, only its size is checked.", highlight=False)
    reasons = []
    for url, name in zip(source.urls, source.names, strict=True):
        # A part belongs to its host: the rest of another host's file might not fit to it.
        part = folder / f"{name}.{urlsplit(url).hostname}.part"
        try:
            _download(url, part, name, console)
        except _MirrorError as error:
            reasons.append(f"{url}: {error}")
            continue
        if source.digest is None or _digest(part, source.digest) == source.digest:
            os.replace(part, folder / name)
            return folder / name
        part.unlink()
        reasons.append(f"{url}: its checksum is wrong")
    raise DataError(
        f"Cannot download {source.names[0]} ({'; '.join(reasons)}): "
        f"put it into {folder.resolve()} by hand, or pass --archives DIR with the folder that has it."
    )


def _digest(path: Path, like: str) -> str:
    """The file's digest, of the kind and in the form of another one: "md5:..."."""
    kind = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def _verify(path: Path, digest: str | None) -> None:
    if digest is not None and (actual := _digest(path, digest)) != digest:
        raise DataError(f"{path} has the checksum {actual}, expected {digest}: delete it and get it again.")


def _download(url: str, part: Path, name: str, console: Console) -> None:
    """Get all of `url` into `part`; a connection that breaks is taken up again where it broke."""
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    quiet = not console.is_terminal  # no bars in log files
    with Progress(
        TextColumn("{task.description}"), *columns, console=console, transient=True, disable=quiet
    ) as progress:
        task = progress.add_task(name, total=None)
        for attempt in range(1, TRIES + 1):
            try:
                return _get(url, part, progress, task)
            except _BrokenOff:
                if attempt == TRIES:
                    raise
                time.sleep(PAUSE)


def _get(url: str, part: Path, progress: Progress, task: TaskID) -> None:
    """One try: ask for what `part` does not have yet, and append it."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"normmatch/{__version__}"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as response:
            _receive(response, part, have, progress, task)
    except HTTPError as error:
        if error.code != 416:
            raise _MirrorError(f"the server answers {error.code} {error.reason}") from error
        # Nothing lies behind the part's end: it is complete already, or of another file.
        if error.headers.get("Content-Range") != f"bytes */{have}":
            part.unlink()
            raise _BrokenOff("the file has changed") from error
    except URLError as error:
        raise _MirrorError(f"no connection, {getattr(error.reason, 'strerror', None) or error.reason}") from error
    except (HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _BrokenOff(f"the connection broke, {error}") from error


def _receive(response: HTTPResponse, part: Path, have: int, progress: Progress, task: TaskID) -> None:
    """Write what comes to the end of `part`, or over it where the server starts again from the beginning."""
    if response.headers.get_content_type() == "text/html":
        raise _MirrorError("the server answers with a web page instead of the file")
    resumed = response.status == 206
    if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        raise _MirrorError("the server sends another part of the file than was asked for")
    start = have if resumed else 0
    length = response.headers.get("Content-Length")
    total = start + int(length) if length and length.isdecimal() else None
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - start > free:
        raise DataError(f"{part.parent} has {free / 1e9:.1f} GB free, and {(total - start) / 1e9:.1f} GB are needed.")
    progress.update(task, total=total, completed=start)
    with part.open("ab" if resumed else "wb") as file:
        while chunk := response.read(CHUNK):
            file.write(chunk)
            progress.advance(task, len(chunk))
    size = part.stat().st_size
    if total is not None and size != total:
        raise _BrokenOff(f"the connection broke after {size:,} of {total:,} bytes")
