"""What is written is whole, never onto an input, and never onto a file of the user's unasked."""

import json
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin

from normmatch import viz
from normmatch.errors import InputError
from normmatch.outputs import (
    MADE_BY,
    MARK,
    PICTURES,
    STDOUT,
    check_outputs,
    made_by_us,
    whole_file,
    write_json,
    write_text,
    writing,
)


def test_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    write_text(path, "first")

    def break_off() -> None:
        with whole_file(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["a.txt"]


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.json"
    write_text(real, "old")
    real.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_dangling_link_makes_the_file_that_it_names(tmp_path: Path) -> None:
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "made" / "a.txt")
    write_text(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "made" / "a.txt").read_text() == "text"


def test_a_pipe_gets_the_bytes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        write_text(pipe, "through")
        assert read.result(timeout=20) == "through"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="there is no /dev/stdout on this system")
def test_standard_output_is_written_through(tmp_path: Path) -> None:
    code = "from pathlib import Path; from normmatch.outputs import write_text; write_text(Path('/dev/stdout'), 'out')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"out"
    with (tmp_path / "file").open("wb") as file:
        subprocess.run([sys.executable, "-c", f"{code}; print('more')"], stdout=file, check=True)
    assert (tmp_path / "file").read_bytes() == b"outmore\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everything")
def test_a_protected_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("mine")
    path.chmod(0o444)
    with pytest.raises(InputError, match="Permission denied"), writing(path):
        write_text(path, "other")
    assert path.read_text() == "mine"


def test_threads_that_write_one_file_do_not_meet(tmp_path: Path) -> None:
    path, barrier = tmp_path / "a.txt", threading.Barrier(8)

    def write(number: int) -> None:
        with whole_file(path) as temporary:
            temporary.write_text(str(number) * 1000)
            barrier.wait(timeout=20)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert len(set(path.read_text())) == 1
    assert len(path.read_text()) == 1000
    assert os.listdir(tmp_path) == ["a.txt"]


# ---------------------------------------------------------------------------------------------------------- the checks


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.new("RGB", (8, 8)).save(path)
    return path


@pytest.mark.parametrize("by", ["itself", "dots", "link", "hard link", "linked folder"])
def test_no_output_onto_an_input(tmp_path: Path, photo: Path, by: str) -> None:
    path = {"itself": photo, "dots": tmp_path / "x" / ".." / "photo.png"}.get(by, tmp_path / "other.png")
    (tmp_path / "x").mkdir()
    if by == "link":
        path.symlink_to(photo)
    elif by == "hard link":
        path.hardlink_to(photo)
    elif by == "linked folder":
        (tmp_path / "y").symlink_to(tmp_path)
        path = tmp_path / "y" / "photo.png"
    before = photo.read_bytes()
    for overwrite in (False, True):
        with pytest.raises(InputError, match="which this command reads") as caught:
            check_outputs({"--out": path}, [photo, None], overwrite)
        assert str(caught.value).count(".") >= 1
        assert len(str(caught.value)) < 300 + 2 * len(str(tmp_path))
    assert photo.read_bytes() == before


def test_an_input_that_does_not_exist_yet_is_no_output_either(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which this command reads"):
        check_outputs({"--json": tmp_path / "a" / ".." / "b.json"}, [str(tmp_path / "b.json")])


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--markdown and --json are the same file"):
        check_outputs({"--json": tmp_path / "a", "--markdown": tmp_path / "." / "a"})


def test_a_file_of_the_user_is_replaced_only_if_asked(tmp_path: Path, photo: Path) -> None:
    notes = tmp_path / "notes.json"
    notes.write_text('{"mine": 1}')
    for path in (photo, notes):
        with pytest.raises(InputError, match=r"was not written by NormMatch; expected another name, or --overwrite\."):
            check_outputs({"--out": path})
        check_outputs({"--out": path}, overwrite=True)
    check_outputs({"--out": tmp_path / "new" / "deep" / "a.png", "--json": None})
    assert not (tmp_path / "new").exists()


def test_files_of_ours_are_known(tmp_path: Path) -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("Software", f"{MARK} 1.0")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png", pnginfo=info)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", comment=f"{MARK} 1.0")
    exif = Image.Exif()
    exif[0x0131] = f"{MARK} 1.0"
    Image.new("RGB", (8, 8)).save(tmp_path / "a.webp", exif=exif)
    write_json(tmp_path / "a.json", {"rest": list(range(10_000))})
    write_text(tmp_path / "a.md", "| a |\n" * 5000 + f"<!-- made by {MADE_BY} -->\n")
    for path in tmp_path.iterdir():
        assert made_by_us(path), path
    write_text(tmp_path / "b.md", "| a |\n" * 3000 + MARK + "| a |\n" * 3000)
    (tmp_path / "b.png").write_bytes(b"no picture")
    write_text(tmp_path / "c.md", f"# My notes on {MARK}\n")
    write_json(tmp_path / "d.json", {"images": []})  # keypoints
    write_text(tmp_path / "c.json", json.dumps({"notes": MARK, "made_by": MARK}))
    for name in ("b.md", "b.png", "c.md", "c.json", "d.json"):
        assert not made_by_us(tmp_path / name), name


def test_json_says_first_who_made_it(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": 1})
    assert list(json.loads((tmp_path / "a.json").read_text()).items()) == [("made_by", MADE_BY), ("a", 1)]


@pytest.mark.parametrize("ending", PICTURES)
def test_pictures_of_ours_are_known(tmp_path: Path, ending: str) -> None:
    viz.save_plot(viz.plot_similarity([[1.0]]), tmp_path / f"a{ending}")
    assert made_by_us(tmp_path / f"a{ending}")


def test_several_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("mine")
    with pytest.raises(InputError, match=r"--out .*b.json exists"):
        check_outputs({"--out": [tmp_path / "a.json", tmp_path / "b.json"]})


def test_a_file_of_a_folder_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "a.json").write_text("mine")
    with pytest.raises(InputError, match="which this command reads"):
        check_outputs({"--json": tmp_path / "data" / "deep" / "a.json"}, [tmp_path / "data"], overwrite=True)
    write_json(tmp_path / "data" / "b.json", {})
    check_outputs({"--json": tmp_path / "data" / "b.json", "--out": tmp_path / "data" / "c.png"}, [tmp_path / "data"])


def test_standard_output_only_once() -> None:
    check_outputs({"--json": STDOUT, "--out": Path(os.devnull), "--markdown": Path(os.devnull)})
    with pytest.raises(InputError, match="are the same file"):
        check_outputs({"--json": STDOUT, "--markdown": STDOUT})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("folder", "--out .* is a folder; expected a file"),
        ("photo.png/a.png", "photo.png is not a folder"),
        ("x" * 250, "a file name of 250 characters"),
        ("a\0b", "a null character"),
    ],
)
def test_places_where_nothing_can_be_written(tmp_path: Path, photo: Path, name: str, sentence: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=sentence):
        check_outputs({"--out": tmp_path / name})
