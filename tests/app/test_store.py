"""A project's edits: saved at once, by one window at a time, and never changed by the machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from normmatch.annotations.project import Landmark, Photograph, Point, Project
from normmatch.annotations.project_file import previous, read_project
from normmatch.app.store import Conflict, Store, counts_of
from normmatch.errors import InputError

PERSON = {"x": 3.0, "y": 4.0, "from": "person"}
COPIED = {"x": 3.0, "y": 4.0, "from": "copied"}
FOUND = Point("proposed", (5.0, 6.0), False, 0.9, 0.95, 2.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    photographs = {name: Photograph(name, 60, 40) for name in ("a.jpg", "b.jpg")}
    return Store(tmp_path / "normmatch.json", Project("p", (Landmark("eye"), Landmark("nose")), photographs))


def points(number: str = "1", file: str = "a.jpg", reviewed: bool | None = None, **named: Any) -> dict[str, Any]:
    change: dict[str, Any] = {"points": named} if reviewed is None else {"points": named, "reviewed": reviewed}
    return {"id": f"e-{number}", "photographs": {file: change}}


def test_an_edit_is_on_the_disk_when_it_is_answered(store: Store) -> None:
    store.edit("w", 0, [points(eye=PERSON)])
    on_disk = read_project(store.path)
    assert on_disk == store.project
    assert (on_disk.revision, on_disk.photographs["a.jpg"].changed) == (1, 1)
    assert on_disk.photographs["a.jpg"].points["eye"].xy == (3.0, 4.0)
    store.edit("w", 1, [points("2", eye=None)])
    assert read_project(store.path).photographs["a.jpg"].points == {}
    assert read_project(previous(store.path)).revision == 1


def test_a_second_window_is_told_and_overwrites_nothing(store: Store) -> None:
    store.edit("w", 0, [points(eye=PERSON)])
    before = store.path.read_bytes()
    with pytest.raises(Conflict) as conflict:
        store.edit("v", 0, [points("2", nose=PERSON)])
    assert (conflict.value.revision, conflict.value.saved_by) == (1, "w")
    assert store.path.read_bytes() == before
    store.edit("v", 1, [points("2", nose=PERSON)])  # it has loaded the other's
    with pytest.raises(Conflict, match="Another window has saved"):
        store.edit("w", 1, [points("3", eye=None)])


def test_an_edit_that_is_sent_again_counts_once(store: Store) -> None:
    store.edit("w", 0, [points("1", eye=PERSON), points("2", nose=PERSON)])
    again = store.edit("w", 0, [points("1", eye=PERSON), points("2", nose=PERSON), points("3", eye=None)])
    assert again.revision == 3
    assert set(again.photographs["a.jpg"].points) == {"nose"}
    with pytest.raises(Conflict):
        store.edit("w", 1, [points("3", eye=None)])  # no window has ever had that
    fresh = Store(store.path, read_project(store.path), store.path.read_text())  # the server was killed meanwhile
    assert fresh.edit("w", 2, [points("3", eye=None)]).revision == 3


def test_a_file_that_another_program_has_changed_is_not_overwritten(store: Store) -> None:
    store.edit("w", 0, [points(eye=PERSON)])
    theirs = json.loads(store.path.read_text()) | {"name": "theirs"}
    store.path.write_text(json.dumps(theirs))
    store.propose({"b.jpg": {"eye": FOUND}})
    for change in (lambda: store.edit("w", 1, [points("2", nose=PERSON)]), store.save):
        with pytest.raises(Conflict, match="Another program"):
            change()
    assert json.loads(store.path.read_text())["name"] == "theirs"
    assert store.copy(json.loads(store.project.text())) == "normmatch-copy-1.json"
    assert read_project(store.path.with_name("normmatch-copy-1.json")) == store.project


def test_a_full_disk_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.edit("w", 0, [points(eye=PERSON)])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("normmatch.annotations.project_file.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.edit("w", 1, [points("2", nose=PERSON)])
    assert store.project.revision == 1
    assert read_project(store.path).revision == 1
    monkeypatch.undo()
    assert store.edit("w", 1, [points("2", nose=PERSON)]).revision == 2


def test_the_machine_changes_only_what_nobody_has_set(store: Store) -> None:
    store.edit("w", 0, [points(eye=PERSON), points("2", "b.jpg", True, eye=PERSON, nose=COPIED)])
    assert store.propose({"a.jpg": {"eye": FOUND, "nose": FOUND, "gone": FOUND}, "b.jpg": {"eye": FOUND}}) == 1
    a, b = store.project.photographs.values()
    assert (a.points["eye"].origin, a.points["nose"]) == ("person", FOUND)
    assert "gone" not in a.points
    assert b.points["eye"].origin == b.points["nose"].origin == "person"  # copied, and looked at
    assert store.renewed == {"a.jpg": 1}
    newer = Point("proposed", (7.0, 8.0), False, 0.3, 0.95, 2.0)
    store.propose({"a.jpg": {"nose": newer}})
    assert store.project.photographs["a.jpg"].points["nose"] == newer
    store.edit("w", 2, [points("3", nose=COPIED)])
    store.propose({"a.jpg": {"nose": FOUND}})
    assert store.project.photographs["a.jpg"].points["nose"].origin == "copied"


def test_accepting_keeps_what_was_proposed(store: Store) -> None:
    store.propose({"a.jpg": {"eye": FOUND, "nose": FOUND}})
    moved = {**PERSON, "was": FOUND.as_json()}
    project = store.edit("w", 0, [points("1", "a.jpg", True, eye=moved)])
    assert [point.origin for point in project.photographs["a.jpg"].points.values()] == ["kept", "person"]
    counts = counts_of(project)
    assert (counts["reviewed"], counts["new"], counts["kept"], counts["corrected"]) == (1, 1, 1, 1)
    assert counts["kept_share"] == 0.5
    with pytest.raises(InputError, match="nose of b.jpg is not set"):
        store.edit("w", 1, [points("2", "b.jpg", True, eye=PERSON)])
    assert read_project(store.path).revision == 1


def test_landmarks_are_renamed_added_and_removed(store: Store) -> None:
    store.edit("w", 0, [points(eye=PERSON, nose=PERSON), {"id": "e-2", "skeleton": [["eye", "nose"]]}])
    changed = {"id": "e-3", "renamed": {"eye": "left eye"}, "landmarks": [{"name": "left eye"}, {"name": "right eye"}]}
    project = store.edit("w", 2, [changed])
    assert [(one.name, one.pair) for one in project.landmarks] == [("left eye", "right eye"), ("right eye", "left eye")]
    assert set(project.photographs["a.jpg"].points) == {"left eye"}
    assert project.skeleton == ()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ([], "expected its `id`"),
        ({"id": "e", "other": 1}, "expected its `id`"),
        ({"id": "e", "photographs": {"z.jpg": {}}}, "no photograph 'z.jpg'"),
        ({"id": "e", "photographs": ["a.jpg"]}, "cannot be"),
        ({"id": "e", "photographs": {"a.jpg": {"points": {"ear": PERSON}}}}, "no landmark 'ear'"),
        ({"id": "e", "photographs": {"a.jpg": {"file": "b.jpg"}}}, "expected some of"),
        ({"id": "e", "photographs": {"a.jpg": {"reviewed": 1}}}, "expected true or false"),
        ({"id": "e", "photographs": {"a.jpg": {"points": {"eye": {"x": 1, "y": "b", "from": "person"}}}}}, "no pixel"),
        ({"id": "e", "landmarks": [{"name": "a"}, {"name": "a"}]}, "two landmarks"),
        ({"id": "e", "renamed": {"eye": "nose"}}, "two landmarks"),
        ({"id": "e", "skeleton": [["eye", "ear"]]}, "skeleton"),
    ],
)
def test_an_edit_that_cannot_be_changes_nothing(store: Store, edit: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        store.edit("w", 0, [points(eye=PERSON), edit])
    assert store.project.revision == 0
    assert not store.path.exists()
