"""Unpacking: what is refused, what is merged, and that a refused archive leaves nothing behind."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from normmatch.datasets import unpack as module
from normmatch.datasets.unpack import unpack
from normmatch.errors import DataError

FILES = {"set/a.txt": b"alpha", "set/sub/b.txt": b"beta" * 500, "top.txt": b"gamma"}


def make_tar(path: Path, files: dict[str, bytes], kind: str = "", odd: tarfile.TarInfo | None = None) -> Path:
    with tarfile.open(path, f"w:{kind}") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if odd is not None:
            tar.addfile(odd, io.BytesIO(bytes(odd.size)))
    return path


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(archive: Path, folder: Path, match: str) -> None:
    """The archive is refused in a sentence with its name, and a file that was there is all that is there."""
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(DataError) as error:
        unpack([archive], folder)
    assert str(archive) in str(error.value)
    assert match in str(error.value).replace(str(archive), "")  # the path has the test's name in it
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert not (folder.parent / "evil.txt").exists()


@pytest.mark.parametrize("kind", ["", "gz", "xz", "bz2"])
def test_tar(tmp_path: Path, kind: str) -> None:
    unpack([make_tar(tmp_path / f"x.tar.{kind}".rstrip("."), FILES, kind)], tmp_path / "out")
    assert tree(tmp_path / "out") == FILES


def test_zip(tmp_path: Path) -> None:
    unpack([make_zip(tmp_path / "x.zip", {**FILES, "empty/": b""})], tmp_path / "out")
    assert tree(tmp_path / "out") == FILES
    assert (tmp_path / "out" / "empty").is_dir()


def test_several_archives_merge_into_what_is_there(tmp_path: Path) -> None:
    first = make_tar(tmp_path / "1.tar", {"set/1.txt": b"1", "set/x/1.txt": b"1"})
    second = make_zip(tmp_path / "2.zip", {"set/2.txt": b"2", "set/x/2.txt": b"2"})
    plain = tmp_path / "split.npz"
    plain.write_bytes(b"not opened")
    out = tmp_path / "out"
    (out / "set" / "x").mkdir(parents=True)
    (out / "set" / "x" / "0.txt").write_bytes(b"0")
    (out / "set" / "1.txt").write_bytes(b"old")
    unpack([first, second, plain], out)
    assert tree(out) == {
        "set/1.txt": b"1",
        "set/2.txt": b"2",
        "set/x/0.txt": b"0",
        "set/x/1.txt": b"1",
        "set/x/2.txt": b"2",
        "split.npz": b"not opened",
    }


@pytest.mark.parametrize("name", ["../evil.txt", "set/../../evil.txt"])
def test_names_that_leave_the_folder(tmp_path: Path, name: str) -> None:
    refused(make_tar(tmp_path / "x.tar", {**FILES, name: b"!"}), tmp_path / "out", "outside the destination")


@pytest.mark.parametrize("name", ["/evil.txt", "../evil.txt", "set/../../evil.txt", "set\\..\\..\\evil.txt"])
def test_names_that_are_kept_inside(tmp_path: Path, name: str) -> None:
    unpack([make_zip(tmp_path / "x.zip", {**FILES, name: b"!"})], tmp_path / "out")
    assert not (tmp_path / "evil.txt").exists()
    assert tree(tmp_path / "out").items() >= FILES.items()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_out_and_devices_in_a_tar(tmp_path: Path, kind: bytes) -> None:
    odd = tarfile.TarInfo("set/link")
    odd.type, odd.linkname = kind, "../../a.txt"
    refused(make_tar(tmp_path / "x.tar.gz", FILES, "gz", odd), tmp_path / "out", "cannot be unpacked")


def test_encrypted_zip(tmp_path: Path) -> None:
    content = bytearray(make_zip(tmp_path / "x.zip", {"a.txt": b"secret"}).read_bytes())
    content[6] |= 1  # the flag in the file's own header
    content[content.index(b"PK\1\2") + 8] |= 1  # and in the directory
    (tmp_path / "x.zip").write_bytes(content)
    refused(tmp_path / "x.zip", tmp_path / "out", "encrypted")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("kind", ["", "gz", "xz", "bz2", "zip"])
def test_cut_short(tmp_path: Path, kind: str, share: float) -> None:
    files = {f"set/{i}.bin": bytes((i * j) % 251 for j in range(700)) for i in range(1, 40)}
    path = tmp_path / ("x.zip" if kind == "zip" else f"x.tar.{kind}".rstrip("."))
    content = (make_zip(path, files) if kind == "zip" else make_tar(path, files, kind)).read_bytes()
    # A plain tar ends in up to 10 KiB of zeros, which it can lose without harm.
    path.write_bytes(content[: int(share * len(content.rstrip(b"\0")))])
    refused(path, tmp_path / "out", "cannot be unpacked")


def test_tar_with_a_broken_pax_header(tmp_path: Path) -> None:
    odd = tarfile.TarInfo("odd")
    odd.pax_headers = {"GNU.sparse.map": "x,y"}
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(odd)
    refused(tmp_path / "x.tar", tmp_path / "out", "if it is damaged, get it again")


def test_zip_with_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", {"ä.txt": b"a"})  # flagged as UTF-8, for it is not ASCII
    path.write_bytes(path.read_bytes().replace("ä".encode(), b"\xff\xff"))
    refused(path, tmp_path / "out", "if it is damaged, get it again")


def test_no_archive_at_all(tmp_path: Path) -> None:
    page = tmp_path / "x.tar.gz"
    page.write_text("<html>404 not found</html>" * 100)
    refused(page, tmp_path / "out", "if it is damaged, get it again")


def test_what_a_killed_run_left_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / "out" / module.STAGING / "half" / "half.txt"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    unpack([make_tar(tmp_path / "x.tar", FILES)], tmp_path / "out")
    assert tree(tmp_path / "out") == FILES


def test_target_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(DataError, match="cannot unpack into"):
        unpack([make_tar(tmp_path / "x.tar", FILES)], tmp_path / "out")


def test_only_the_tree_that_was_asked_for(tmp_path: Path) -> None:
    files = {**FILES, "run.sh": b"x", "__MACOSX/set/._a.txt": b"x"}
    archives = [make_tar(tmp_path / "x.tar", files), make_zip(tmp_path / "y.zip", files)]
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.sh").write_text("mine")
    with pytest.warns(UserWarning, match=r"run.sh and 1 more in the archives is not of the dataset"):
        unpack(archives, out, ("set",))
    assert tree(out) == {**{name: content for name, content in FILES.items() if "/" in name}, "run.sh": b"mine"}


def test_tar_cut_between_two_members(tmp_path: Path) -> None:
    """tarfile itself takes this for a complete archive."""
    path = make_tar(tmp_path / "x.tar", {"a.txt": b"a" * 512, "b.txt": b"b" * 512})
    path.write_bytes(path.read_bytes()[:1024])
    refused(path, tmp_path / "out", "damaged at byte 1024")


def test_tar_with_a_broken_header_in_the_middle(tmp_path: Path) -> None:
    """tarfile itself stops there, silently."""
    path = make_tar(tmp_path / "x.tar", {"a.txt": b"a" * 512, "b.txt": b"b" * 512, "c.txt": b"c"})
    content = bytearray(path.read_bytes())
    content[1024:1030] = b"broken"
    path.write_bytes(content)
    refused(path, tmp_path / "out", "damaged at byte 1024")
