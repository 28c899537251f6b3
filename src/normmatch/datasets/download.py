"""Where the benchmarks come from, and how they get onto this disk: by download, or out of archives already here."""

import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import wrap_file

from normmatch import __version__
from normmatch.datasets.unpack import is_archive, unpack
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


def _with_mirror(url: str, digest: str | None = None) -> Source:
    return Source((url, f"https://huggingface.co/heatingma/pygmtools/resolve/main/{url.rpartition('/')[2]}"), digest)


SOURCES: dict[str, tuple[Source, ...]] = {
    "pascal-voc": (
        _with_mirror(
            "http://host.robots.ox.ac.uk/pascal/VOC/voc2011/VOCtrainval_25-May-2011.tar",
            "md5:6c3384ef61512963050cb5d687e5bf1e",
        ),
        _with_mirror(
            "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/shape/poselets/voc2011_keypoints_Feb2012.tgz"
        ),
        _with_mirror(
            "https://github.com/Thinklab-SJTU/PCA-GM/raw/master/data/PascalVOC/voc2011_pairs.npz",
            "sha256:ef2f8767c15a13db9694268e6a00fd8ddaf06687b733d4d50d9acf4f87469179",
        ),
    ),
    "spair-71k": (_with_mirror("http://cvlab.postech.ac.kr/research/SPair-71k/data/SPair-71k.tar.gz"),),
    "willow": (_with_mirror("http://www.di.ens.fr/willow/research/graphlearning/WILLOW-ObjectClass_dataset.zip"),),
    "hpatches": (
        Source(
            (  # the dataset's own page sends to the first now; the second is its old home
                "https://huggingface.co/datasets/vbalnt/hpatches/resolve/main/hpatches-sequences-release.zip",
                "http://icvl.ee.ic.ac.uk/vbalnt/hpatches/hpatches-sequences-release.tar.gz",
            ),
        ),
    ),
}

# All that lies at the top of a dataset's archives, as its reader looks for it; nothing else is unpacked.
TREES = {
    "pascal-voc": ("TrainVal", "VOCdevkit", "VOC2011", "PascalVOC", "annotations"),
    "spair-71k": ("SPair-71k",),
    "willow": ("WILLOW-ObjectClass",),
    "hpatches": ("hpatches-sequences-release", "hpatches"),
}


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
    """The files of the dataset `name` in a folder of the user's, by their official names."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected the folder that holds {SOURCES[name][0].names[0]}.")
    files = []
    for source in SOURCES[name]:
        path = _there(source, folder)
        if path is None:
            wanted = " or ".join(dict.fromkeys(source.names))
            raise DataError(f"There is no {wanted} in {folder}: get it from {source.urls[0]} and put it there.")
        files.append(path)
    return files


def _there(source: Source, folder: Path) -> Path | None:
    """The source's file in a folder, checked."""
    path = next((folder / name for name in source.names if (folder / name).is_file()), None)
    if path and source.digest and (actual := _digest(path, source.digest)) != source.digest:
        raise DataError(f"{path} has the checksum {actual}, expected {source.digest}: delete it and get it again.")
    return path


def fetch(source: Source, folder: Path) -> Path:
    """Download the source's file into `folder`, unless it is there already, and check it."""
    if there := _there(source, folder):
        return there
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for url, name in zip(source.urls, source.names, strict=True):
        # A part belongs to its host: the rest of another host's file might not fit to it.
        part = folder / f"{name}.{urlsplit(url).hostname}.part"
        try:
            _download(url, part, name)
        except (OSError, HTTPException) as error:
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


def _download(url: str, part: Path, name: str) -> None:
    """Get all of `url` into `part`; a connection that breaks is taken up again where it broke."""
    for attempt in range(1, TRIES + 1):
        try:
            return _get(url, part, name)
        except (ConnectionError, TimeoutError, HTTPException):
            if attempt == TRIES:
                raise
            time.sleep(PAUSE)


def _get(url: str, part: Path, name: str) -> None:
    """One try: ask for what `part` does not have yet, and append it; some servers start again from the beginning."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"normmatch/{__version__}"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != 416:
            raise
        part.unlink()  # nothing lies behind its end: it is of another file, or was killed when it was complete
        raise ConnectionError("the file has changed") from error
    with response:
        if response.headers.get_content_type() == "text/html":
            raise OSError("the server answers with a web page instead of the file")
        start = have if response.status == 206 else 0
        total = start + int(response.headers.get("Content-Length") or 0)
        bar = {"description": name, "console": Console(stderr=True), "transient": True}
        with wrap_file(response, total - start, **bar) as source, part.open("ab" if start else "wb") as file:  # type: ignore[arg-type]
            shutil.copyfileobj(source, file, CHUNK)
    if (size := part.stat().st_size) < total:
        raise ConnectionError(f"the connection broke after {size:,} of {total:,} bytes")
