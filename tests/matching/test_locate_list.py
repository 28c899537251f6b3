"""`locate` for a folder of photographs: what it leaves, and how it goes on."""

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.errors import NormMatchError
from normmatch.matching import locate_list as module
from normmatch.matching import located_files
from normmatch.matching.locate_list import LocateOptions, find_photographs, locate_list, read_references
from normmatch.matching.located_files import Summary
from tests.matching.locating_scene import FakeEncoder, photograph, points

NAMES = ("left_eye", "right_eye", "nose", "chin", "left_ear", "right_ear")
PLACES = points(0, 6, 200, 160)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reference and a folder of three photographs of the same thing, elsewhere in each."""
    monkeypatch.setattr(module, "Matcher", lambda *_, **__: SimpleNamespace(backend=FakeEncoder()))
    monkeypatch.setattr(module, "find_weights", lambda _: tmp_path / "reference.json")
    Image.fromarray(photograph(0, 200, 160)).save(tmp_path / "mine.png")
    annotations.write(tmp_path / "reference.json", [Annotation("mine.png", NAMES, PLACES, None, "thing")])
    (tmp_path / "photographs").mkdir()
    for i in range(3):
        image = photograph(50 + i, 260, 200, 4)
        image[8 * i : 8 * i + 160, 10 * i : 10 * i + 200] = photograph(0, 200, 160)
        Image.fromarray(image).save(tmp_path / "photographs" / f"{i}.png")
    return tmp_path


def run(scene: Path, **change: Any) -> Summary:
    options = LocateOptions(
        **{key: change.pop(key) for key in ("looks", "references", "any_way_round") if key in change}
    )
    given: dict[str, Any] = {"pictures": 0, "progress": False, **change}
    reference, photographs = given.pop("reference", "reference.json"), given.pop("photographs", ["photographs"])
    return locate_list(scene / reference, [scene / one for one in photographs], scene / "out", options, **given)


def test_landmarks_are_found_and_written(scene: Path) -> None:
    summary = run(scene, pictures=2)
    assert (summary.located, summary.landmarks, summary.failed) == (3, 6, ())
    found = annotations.read(scene / "out/located.json")
    assert [one.image for one in found] == [f"../photographs/{i}.png" for i in range(3)]
    assert (found[0].names, found[0].label) == (NAMES, "thing")
    for i, one in enumerate(found):
        assert np.linalg.norm(one.keypoints - PLACES - (10 * i, 8 * i), axis=1).max() < 6
        assert one.scores is not None
        assert (one.scores > 0).all()
    rows = list(csv.DictReader((scene / "out/table.csv").open()))
    assert [row["landmark"] for row in rows[:6]] == list(NAMES)
    means = [np.mean([float(row["score"]) for row in rows[i : i + 6]]) for i in (0, 6, 12)]
    assert means == sorted(means)
    assert len(list((scene / "out/pictures").glob("*.jpg"))) == 2
    record = json.loads((scene / "out/run.json").read_text())
    assert record["looks"] == 2
    assert record["references used"] == [str(scene / "mine.png")]


def test_what_breaks_off_goes_on_and_what_a_person_has_changed_stays(scene: Path) -> None:
    before = run(scene)
    results = scene / "out/results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    results.write_text(lines[0] + lines[1][:20])
    assert run(scene) == before
    assert sorted(results.read_text().splitlines()) == sorted(line.strip() for line in lines)
    edited = scene / "out/located.json"
    edited.write_text(edited.read_text() + " ")
    with pytest.raises(NormMatchError, match=r"located.json exists and was not written by NormMatch"):
        run(scene)
    run(scene, overwrite=True)
    with pytest.raises(NormMatchError, match="results of a run with other looks"):
        run(scene, looks=1)


def test_a_photograph_that_cannot_be_read_stops_no_other(scene: Path) -> None:
    (scene / "photographs/1.png").write_text("hello")
    summary = run(scene)
    assert summary.located == 2
    assert "1.png is not a readable image" in summary.failed[0]["error"]
    assert json.loads((scene / "out/failed.jsonl").read_text())["row"] == 1
    Image.fromarray(photograph(0, 200, 160)).save(scene / "photographs/1.png")
    assert run(scene).located == 3


def test_several_references_are_aligned_by_name(scene: Path) -> None:
    sets = [
        Annotation("mine.png", NAMES[1:], PLACES[1:]),
        Annotation("photographs/0.png", NAMES[4::-1], PLACES[4::-1]),
    ]
    annotations.write(scene / "two.json", sets)
    summary = run(scene, reference="two.json")
    assert summary.located == 2  # the other one is a reference
    (_, one) = annotations.read(scene / "out/located.json")
    assert sorted(one.names) == sorted(NAMES)
    order = [NAMES.index(name) for name in one.names]
    assert np.linalg.norm(one.keypoints - PLACES[order] - (20, 16), axis=1).max() < 6


def test_of_many_references_those_are_used_that_are_like_the_photographs(scene: Path) -> None:
    Image.fromarray(photograph(77, 200, 160)).save(scene / "other.png")
    sets = [Annotation("other.png", NAMES, PLACES), Annotation("mine.png", NAMES, PLACES)]
    annotations.write(scene / "two.json", sets)
    run(scene, reference="two.json", references=1)
    record = json.loads((scene / "out/run.json").read_text())
    assert record["references used"] == [str(scene / "mine.png")]


def test_things_that_lie_turned_are_noticed(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (module, located_files):  # noise is told apart too easily to leave a doubt
        monkeypatch.setattr(part, "SURE", 1.1)
    assert "--any-way-round" not in run(scene, looks=1).advice
    shutil.rmtree(scene / "out")
    for i, way in enumerate((Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)):
        image = Image.open(scene / f"photographs/{i}.png")
        image.transpose(way).save(scene / f"photographs/{i}.png")
    assert "--any-way-round" in run(scene, looks=1).advice


def test_boxes_are_kept(scene: Path) -> None:
    sets = [Annotation("photographs/2.png", ("thing",), PLACES[:1], (20, 16, 200, 160))]
    annotations.write(scene / "boxes.json", sets)
    run(scene, boxes=scene / "boxes.json")
    assert annotations.read(scene / "out/located.json")[2].box == (20, 16, 200, 160)


def test_other_formats(scene: Path) -> None:
    run(scene, format="deeplabcut")
    assert len(annotations.read(scene / "out/located.csv")) == 3


def test_sides_in_names_say_how_a_mirrored_thing_is_called(scene: Path) -> None:
    names, _ = read_references(scene / "reference.json")
    assert names.flip == (1, 0, 2, 3, 5, 4)


def test_files_folders_patterns_and_lists(scene: Path) -> None:
    folder = scene / "photographs"
    (scene / "list.txt").write_text("photographs/2.png\n\nphotographs/0.png\n")
    names = ["2.png", "0.png", "1.png"]
    assert [one.name for one in find_photographs([scene / "list.txt", folder, folder / "0.png"])] == names
    assert [one.name for one in find_photographs([folder / "[01].png"])] == ["0.png", "1.png"]
    assert find_photographs([folder / "9*.png"]) == []


def test_one_sentence_for_what_is_wrong(scene: Path) -> None:
    annotations.write(scene / "lost.json", [Annotation("dog.png", NAMES, PLACES)])
    annotations.write(scene / "far.json", [Annotation("mine.png", NAMES, PLACES + 5000)])
    for change, sentence in (
        ({"reference": "lost.json"}, "about dog.png, which is not beside it"),
        ({"reference": "far.json"}, "far outside the picture"),
        ({"reference": "missing.json"}, "cannot be read"),
        ({"photographs": ["photographs/x*.png"]}, "no photograph but the references"),
        ({"photographs": ["nowhere.png"]}, "No photograph could be read: .*nowhere.png does not exist"),
        ({"references": 0}, "references is 0"),
    ):
        with pytest.raises(NormMatchError, match=sentence) as caught:
            run(scene, **change)
        assert "\n" not in str(caught.value)
