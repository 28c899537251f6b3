"""Never lose an edit, as a person sees it: a lost server, a second window, a reload, a full disk."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from normmatch.app.labelling import make_label_app
from normmatch.app.serving import Serving, listen
from tests.app.browser import NEEDED, Page
from tests.app.label_folder import FILES, Labelled, labelled

pytestmark = NEEDED


@pytest.fixture
def label(shared_browser: Page, tmp_path: Path) -> Iterator[Labelled]:
    with labelled(shared_browser, tmp_path / "beetles") as opened:
        yield opened
        assert shared_browser.complaints() == []


def move_head(label: Labelled, dx: int = 15) -> None:
    label.page.keys("1")
    label.page.drag(*label.place("Head"), dx, 0)


def near(x: float) -> object:
    """A place as the project keeps it: to a thousandth of a pixel."""
    return pytest.approx(x, abs=0.001)


def head_x(label: Labelled, number: int = 1) -> float:
    return float(label.photo(number).points["Head"].xy[0])


def test_a_change_is_on_the_disk_within_a_second(label: Labelled) -> None:
    move_head(label)
    start = time.monotonic()
    label.page.wait(lambda: label.photo(1).points["Head"].origin == "person")
    assert time.monotonic() - start < 1
    label.saved()
    saved = {one["file"]: one["points"] for one in label.on_disk()["photographs"]}
    assert saved[FILES[1]]["Head"]["x"] == near(label.mark("Head")["x"])


def test_a_lost_server_is_said_and_edits_are_sent_when_it_is_back(label: Labelled) -> None:
    page, port = label.page, label.serving.socket.getsockname()[1]
    label.serving.stop()
    page.wait(lambda: page.shown("#banner"))  # which moves the photograph
    page.settle()
    move_head(label)
    assert page.text("#banner p").startswith("NormMatch does not answer. Is its window still open?")
    page.keys("a", "2", "a")  # work goes on
    page.wait(lambda: page.text("#saved") == "3 changes not saved yet")
    with Serving(make_label_app(label.labelling), listen("127.0.0.1", port)):
        page.click("#banner .button")
        page.wait(lambda: page.text("#saved") == "Saved")
        assert not page.shown("#banner")
        assert page.text("#toast") == "Back again. Everything is saved."
        assert label.photo(1).points["Head"].absent
        assert label.photo(1).points["Left eye"].absent
        page.browser.get("about:blank")


def test_a_second_window_is_told_and_nothing_is_overwritten(label: Labelled) -> None:
    page = label.page
    label.edit_elsewhere(1, points={"Head": {"x": 7, "y": 8, "from": "person"}})
    page.wait(lambda: page.shown("#banner"))
    assert page.text("#banner p").startswith("Another window has saved this project. This one has stopped saving")
    assert page.text("#saved") == "Not saving"
    before = label.project.revision
    move_head(label)
    assert page.text("#toast").startswith("This window has stopped saving.")
    assert label.mark("Head")["from"] == "proposed"  # nothing can be changed here
    assert label.project.revision == before
    page.click("#banner .primary")
    page.wait(lambda: label.mark("Head") == {"x": 7, "y": 8, "from": "person"})
    assert page.text("#saved") == "Saved"
    move_head(label)
    label.saved()
    assert head_x(label) > 7


def test_mine_is_saved_as_a_copy(label: Labelled) -> None:
    page = label.page
    label.failing.add("/api/changes")  # it hears of the other window only when it saves
    label.edit_elsewhere(2, skipped=True)
    move_head(label)
    page.wait(lambda: page.shown("#banner.stop"))
    assert "Your last change here is not in the file." in page.text("#banner p")
    mine = label.mark("Head")["x"]
    label.failing.clear()
    page.click("#banner .button:last-child")
    page.wait(lambda: page.text("#toast").startswith("Saved as normmatch-copy"))
    (copy,) = label.folder.glob("normmatch-copy*")
    assert str(round(mine, 3)) in copy.read_text()
    assert label.photo(1).points["Head"].origin == "proposed"


def test_changes_that_were_not_saved_survive_a_reload(label: Labelled) -> None:
    page, address = label.page, label.serving.address
    label.failing.add("/api/edit")
    move_head(label)
    mine = label.mark("Head")["x"]
    page.keys("Enter")
    page.wait(lambda: page.text("#saved") == "2 changes not saved yet")
    page.open(address)
    assert page.ask("project.js", "m.state.waiting") == 2  # here again
    page.browser.get("about:blank")
    assert label.project.revision == 1
    label.failing.clear()
    page.open(address)
    page.wait(lambda: label.photo(1).reviewed)  # by this page, or by the last one on its way out
    assert head_x(label) == near(mine)
    label.saved()
    assert page.browser.execute_script("return Object.keys(localStorage).filter((key) => /unsent/.test(key))") == []


def test_and_do_not_overwrite_newer_ones(label: Labelled) -> None:
    page, address = label.page, label.serving.address
    label.failing.update(("/api/edit", "/api/changes"))
    move_head(label)
    label.open(3)
    move_head(label)
    mine = label.mark("Head")["x"]
    page.wait(lambda: page.text("#saved") == "2 changes not saved yet")
    label.edit_elsewhere(1, points={"Head": {"x": 7, "y": 8, "from": "person"}})
    label.failing.clear()
    page.open(address)
    page.wait(lambda: head_x(label, 3) == near(mine))
    assert head_x(label) == 7
    assert "1 change of before was left out: it was changed since." in page.text("#toast")


def test_a_full_disk_is_said_and_the_change_is_kept(label: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    page = label.page

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label.labelling.store, "edit", full)
        move_head(label)
        page.wait(lambda: page.shown("#banner"))
        assert "No space left on device" in page.text("#banner p")
    page.click("#banner .button")
    label.saved()
    assert head_x(label) == near(label.mark("Head")["x"])
