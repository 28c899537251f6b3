"""`normmatch label`: what it begins with, and what it refuses before anything is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from normmatch.app.opening import open_folder
from normmatch.errors import NormMatchError
from normmatch.io import locked
from tests.command_line import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "photos"
    (place / "deep" / ".hidden").mkdir(parents=True)
    for name in ("b.jpg", "a.png", "deep/c.jpg", "deep/.hidden/d.jpg", ".e.jpg"):
        Image.new("RGB", (60, 40)).save(place / name)
    (place / "f.jpg").write_text("no image")
    return place


def test_photographs_are_found_and_new_ones_join(folder: Path) -> None:
    store, photographs = open_folder(folder)
    assert list(store.project.photographs) == ["a.png", "b.jpg", "deep/c.jpg"]
    assert photographs.files == set(store.project.photographs)
    assert store.project.name == "photos"
    store.save()
    assert not (folder / "normmatch.json").exists()  # nobody has done anything yet
    store.edit("w", 0, [{"id": "e", "name": "Mine"}])
    Image.new("RGB", (70, 40)).save(folder / "aa.jpg")
    (folder / "b.jpg").unlink()
    store, _ = open_folder(folder)
    assert store.project.name == "Mine"
    assert store.project.id.startswith("p-")
    assert store.project.id == json.loads((folder / "normmatch.json").read_text())["id"]
    assert set(store.project.photographs) == {"a.png", "aa.jpg", "b.jpg", "deep/c.jpg"}  # what is gone stays in it


def test_a_keypoints_file_begins_a_project(folder: Path, tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    rows = ["image,name,x,y,score", "a.png,tail,1,2,", "b.jpg,L_eye,5,6,", "b.jpg,R_eye,7,8,", "b.jpg,tail,9,9,"]
    rows += ["deep/c.jpg,L_eye,5,6,0.8", "elsewhere.jpg,L_eye,1,1,"]
    points.write_text("\n".join(rows))
    project = open_folder(folder, start=points)[0].project
    assert [(one.name, one.pair) for one in project.landmarks] == [
        ("L_eye", "R_eye"),
        ("R_eye", "L_eye"),
        ("tail", None),
    ]
    a, b, c = project.photographs.values()
    assert (a.reviewed, b.reviewed, c.reviewed) == (True, True, False)
    assert a.points["L_eye"].absent
    assert (c.points["L_eye"].origin, c.points["L_eye"].score) == ("proposed", 0.8)
    assert "tail" not in c.points
    points.write_text("\n".join([rows[0], "a.png,tail,1,2,", "a.png,tail,1,2,"]))
    with pytest.raises(NormMatchError, match="second 'tail'"):
        open_folder(folder, start=points)


def test_a_project_of_before_keeps_its_landmarks(folder: Path, tmp_path: Path) -> None:
    store, _ = open_folder(folder, names=["nose"])
    store.save()
    for options in ({"names": ["eye"]}, {"start": tmp_path / "points.csv"}):
        with pytest.raises(NormMatchError, match="is there already"):
            open_folder(folder, **options)  # type: ignore[arg-type]
    other, _ = open_folder(folder, tmp_path / "other.json", names=["eye"])
    assert other.project.names == ("eye",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["FOLDER/none"], "is no folder"),
        (["FOLDER/deep/.hidden/d.jpg"], "is no folder"),
        (["FOLDER/deep/.hidden", "--project", "FOLDER/f.jpg"], "cannot be read as a label project"),
        (["FOLDER", "--landmarks", "eye,nose,eye"], "two landmarks are called 'eye'"),
        (["FOLDER", "--from", "FOLDER/none.csv"], "cannot be read"),
        (["FOLDER", "--host", "nowhere.invalid"], "Nothing can listen"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    capsys: pytest.CaptureFixture[str], folder: Path, options: list[str], said: str
) -> None:
    code, _, err = run(capsys, "label", *(option.replace("FOLDER", str(folder)) for option in options), "--no-browser")
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
    assert not list(folder.rglob("*normmatch*"))


def test_one_program_at_a_time(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with locked(folder / ".normmatch.json.lock"):
        code, _, err = run(capsys, "label", str(folder), "--no-browser")
    assert (code, "open in another NormMatch" in err) == (2, True)


def test_a_damaged_project_names_the_version_before(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    store, _ = open_folder(folder, names=["nose"])
    store.edit("w", 0, [{"id": "e1"}])
    store.edit("w", 1, [{"id": "e2"}])
    path: Any = folder / "normmatch.json"
    path.write_bytes(path.read_bytes()[:200])
    code, _, err = run(capsys, "label", str(folder), "--no-browser")
    assert code == 2
    assert "normmatch.previous.json" in err
    assert json.loads((folder / "normmatch.previous.json").read_text())["revision"] == 1
