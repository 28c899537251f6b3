"""The labelling page's work in a real browser: one hand on the keys, proposals, the order of review, undo."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations.project import Project
from normmatch.app.suspects import Suspects
from tests.app.browser import NEEDED, Page
from tests.app.label_folder import FILES, NAMES, Labelled, labelled, make_folder, truth

pytestmark = NEEDED


@pytest.fixture
def label(shared_browser: Page, tmp_path: Path) -> Iterator[Labelled]:
    """One photograph is reviewed, seven have proposals."""
    with labelled(shared_browser, tmp_path / "beetles") as opened:
        yield opened
        assert shared_browser.complaints() == []


def chosen(page: Page) -> str | None:
    return page.ask("project.js", "m.state.chosen")


def test_digits_choose_arrows_nudge_space_and_enter_accept(label: Labelled) -> None:
    page = label.page
    assert label.current == 1  # the least certain photograph, and there the least certain landmark
    assert chosen(page) == "Left claw"
    page.keys("2")
    assert chosen(page) == "Left eye"
    before = label.mark("Left eye")
    page.keys("Right", "Right", "Down")
    after = label.mark("Left eye")
    step = 1 / label.scale()
    assert (after["x"], after["y"]) == pytest.approx((before["x"] + 2 * step, before["y"] + step))
    assert page.text("#detail .origin").startswith("Set by you, ")
    page.keys("z")  # steps soon after each other are one
    assert label.mark("Left eye") == before
    page.keys("Space")
    assert label.current == 2
    label.saved()
    assert label.photo(1).reviewed
    assert {point.origin for point in label.photo(1).points.values()} == {"kept"}
    page.keys("Enter")
    assert label.current == 3
    assert page.text("#leftCount") == "5 to review"


def test_letters_act_on_the_chosen_landmark(label: Labelled) -> None:
    page = label.page
    page.keys("5", "a")
    assert label.mark("Right claw")["absent"]
    assert page.text("#tray button") == "Right claw"  # below the picture, in the list, nowhere on it
    assert page.texts("#rows .value")[4] == "absent"
    assert "Right claw" not in " ".join(label.painted()["words"])
    left, right = label.mark("Left eye"), label.mark("Right eye")
    page.keys("2", "x")
    assert (label.mark("Left eye")["x"], label.mark("Right eye")["x"]) == (right["x"], left["x"])
    page.keys("6", "Delete")
    assert label.mark("Tail") is None
    page.keys("Enter")  # not accepted half: it is chosen, and said
    assert not page.ask("project.js", "m.current().reviewed")
    assert chosen(page) == "Tail"
    assert "1 landmark is not set: Tail. Click where it is, or press A if it cannot be seen." in page.text("#toast")
    page.click_at(*label.to_screen(300, 340))
    assert label.mark("Tail")["x"] == pytest.approx(300, abs=1)
    page.keys("d")
    assert chosen(page) == "Left claw"  # the least certain that is left
    page.keys("d")
    assert chosen(page) == "Left claw"
    page.keys("Escape")
    assert chosen(page) is None
    count = page.ask("project.js", "m.state.clock")
    page.click_at(*label.to_screen(100, 300))  # a stray click changes nothing
    assert page.ask("project.js", "m.state.clock") == count


def test_undo_and_redo_without_end(label: Labelled) -> None:
    page = label.page
    start = label.mark("Head")
    page.ask(
        "acts.js",
        "import(new URL('static/stage.js', location)).then(() => {"
        " for (let k = 0; k < 300; k++) m.place('Head', {x: 100 + k / 2, y: 50}); })",
    )
    page.keys("Enter", "a")  # of the next photograph
    assert label.current == 2
    for _ in range(2):
        page.keys("z")
    assert label.current == 1  # undoing an accept brings the photograph back
    assert page.ask("project.js", "m.current().reviewed") is False
    page.ask("edits.js", "Array.from({length: 300}, () => m.undo()) && null")
    assert label.mark("Head") == start
    page.keys("z")
    assert page.text("#toast") == "Nothing to undo."
    page.ask("edits.js", "Array.from({length: 300}, () => m.redo()) && null")
    assert label.mark("Head")["x"] == 249.5
    page.keys("Control+z")
    assert label.mark("Head")["x"] == 249
    page.keys("Shift+z")
    label.saved()
    assert label.photo(1).points["Head"].xy == (249.5, 50)


def test_copy_the_pose_and_one_landmark_through_all_photographs(label: Labelled) -> None:
    page = label.page
    page.keys("1")
    page.drag(*label.place("Head"), 12, 0)
    mine = label.mark("Head")
    page.keys("c")
    assert label.mark("Head") == mine  # what a person has set stays
    at = truth(0)["Tail"]
    assert label.mark("Tail") == {"x": at["x"], "y": at["y"], "from": "copied"}
    page.keys("z", "4", "g")
    assert page.text("#throughTitle") == "Left claw in all photographs"
    captions = [text.replace("\u202f", " ") for text in page.texts(".crop p")]
    assert [caption.split("beetle")[0] for caption in captions] == [
        "41 %",
        "55 %",
        "62 %",
        "71 %",
        "79 %",
        "90 %",
        "96 %",
        "you",
    ]
    box = page.rect(".crop:nth-child(2) canvas")
    page.click_at(box["x"] + box["width"] / 2 + 10, box["y"] + box["height"] / 2)
    page.wait(lambda: page.texts(".crop p")[1].startswith("you"))
    label.saved()
    point = label.photo(2).points["Left claw"]
    assert (point.origin, point.was.score) == ("person", 0.55)
    assert 0 < point.xy[0] - point.was.xy[0] < 12
    page.browser.execute_script("document.querySelector('.crop[tabindex=\"0\"]').focus()")
    page.keys("Right", "Right", "a")
    page.wait(lambda: page.texts(".crop p")[2].startswith("absent"))
    page.keys("z", "Escape")
    assert not page.shown("#through")


def test_thumbnails_tell_their_state_and_filters_choose(label: Labelled) -> None:
    page = label.page
    script = "return [...document.querySelectorAll('.thumb')].map((one) => one.getAttribute('aria-label'))"
    labels = page.browser.execute_script(script)
    assert labels[0] == "beetle_002.jpg, 1 point uncertain, the least 41\u202f%"
    assert labels[-1] == "beetle_008.jpg, all sure, least certain 90\u202f%"
    chips = page.texts("#filters .chip")
    assert chips == ["To review7", "Uncertain5", "Absent1", "This landmark5", "Reviewed1", "All8"]
    page.click("[data-filter=absent]")
    assert page.texts(".thumb p") == ["55\u202f%003"]
    page.click("[data-filter=reviewed]")
    assert page.texts(".thumb p span") == ["001"]
    page.keys("1")
    page.click("[data-filter=all]")
    assert "This landmark5" not in page.texts("#filters .chip")  # it is sure everywhere: the empty one hides
    page.keys("m")
    assert len(page.texts(".thumb")) == 8
    assert page.text("#accept").startswith("Back to beetle_002")
    page.click(".thumb:nth-child(4)")
    assert not page.shown("main.mosaic")
    page.one("#sort").send_keys("By name")
    page.click("[data-filter=all]")
    page.wait(lambda: page.texts(".thumb p span") == [file[7:10] for file in FILES])
    page.keys("b")
    assert page.text("#toast") == "No other photograph was changed yet."
    page.keys("s")
    assert label.current == 1  # skipped: the least certain of the others
    page.keys("Shift+s")
    assert label.current == 4


def test_proposing_shows_progress_can_be_stopped_and_leaves_a_person_s_points(
    shared_browser: Page, tmp_path: Path
) -> None:
    with labelled(shared_browser, tmp_path / "beetles", proposed=False) as label:
        page = label.page
        assert page.text("#accept").startswith("Propose on the other 7")
        label.open(5)
        page.keys("1")
        page.click_at(*label.to_screen(200, 50))
        mine = label.mark("Head")
        label.machine.gate.clear()
        page.keys("p")
        page.wait(lambda: page.text("#job span") == "Proposing: 0 of 7")
        assert not page.shown("#propose")
        page.keys("2")  # the page can be used meanwhile
        page.click_at(*label.to_screen(220, 100))
        label.machine.gate.set()
        page.wait(lambda: "7 photographs proposed, 5 with uncertain points." in page.text("#toast"))
        assert label.mark("Head") == mine
        assert label.mark("Left eye")["from"] == "person"
        page.wait(lambda: "41\u202f%" in page.texts(".thumb p")[0])  # the least certain first
        page.click("#toast button")
        assert label.current == 1
        page.click("#proposeMore")
        label.machine.gate.clear()
        page.click("#proposeMenu button")
        page.wait(lambda: page.shown("#stopJob"))
        page.click("#stopJob")
        assert label.labelling.proposer._stopped.wait(10)  # it has reached the server
        label.machine.gate.set()
        page.wait(lambda: page.text("#toast").startswith("Stopped after"))
        assert page.text("#toast").endswith("What was proposed stays.")
        assert page.complaints() == []


def test_improving_says_what_it_brought_and_can_be_taken_back(shared_browser: Page, tmp_path: Path) -> None:
    with labelled(shared_browser, tmp_path / "beetles", reviewed=4) as label:
        page = label.page
        page.click("#proposeMore")
        page.click("#proposeMenu button:nth-of-type(2)")
        assert page.text("#toast") == "Improving needs 5 reviewed photographs; there are 4."
        page.keys("Enter")
        page.click("#proposeMore")
        page.click("#proposeMenu button:nth-of-type(2)")
        page.wait(
            lambda: page.text("#toast").startswith("Improved: on reviewed photographs set aside, 91 % of the points")
        )
        page.click("#toast button")
        page.wait(lambda: page.text("#toast") == "The improvement is taken back.")
        assert page.complaints() == []


def test_the_photograph_in_view_waits_for_newer_proposals(label: Labelled) -> None:
    page = label.page
    label.machine.better, label.machine.moved = 0.5, 0.0
    page.keys("Enter")  # a reference more: all others are renewed
    page.wait(lambda: page.shown("#useNewer"))
    assert page.text("#useNewer") == "Newer proposals are ready. Use them"
    assert (label.current, label.mark("Left claw")["score"]) == (2, 0.55)
    page.wait(lambda: page.ask("project.js", f"m.photoCalled('{FILES[3]}').points['Left claw'].score") == 0.97)
    page.click("#useNewer")
    assert label.mark("Left claw")["score"] == 0.97
    page.keys("z")
    assert label.mark("Left claw")["score"] == 0.55


def test_the_first_visit_from_names_to_proposals(shared_browser: Page, tmp_path: Path) -> None:
    with labelled(shared_browser, tmp_path / "beetles", reviewed=0) as label:
        page = label.page
        assert "NormMatch proposes them on the other 7." in page.text("#naming h2")
        page.one("#names").send_keys("\n".join(NAMES) + "\n")
        page.click("#naming .primary")
        assert page.text("#reason") == "Click the head1 of 6Not visible?A"
        for name, at in list(truth(0).items())[:5]:
            assert chosen(page) == name
            page.click_at(*label.to_screen(at["x"], at["y"]))
        assert page.text("#accept").startswith("1 not set yet")
        page.keys("a", "Enter")
        label.saved()
        assert label.photo(0).reviewed
        assert [one.pair for one in label.project.landmarks][1:5] == [
            "Right eye",
            "Left eye",
            "Right claw",
            "Left claw",
        ]
        assert page.text("#accept").startswith("Propose on the other 7")
        page.keys("Enter")
        page.wait(lambda: "7 photographs proposed" in page.text("#toast"))
        assert page.complaints() == []


def test_all_reviewed_and_files_out(label: Labelled) -> None:
    page = label.page
    for _ in range(7):
        page.keys("Enter")
    assert page.text("#leftCount") == "All reviewed"
    assert "All 8 photographs are reviewed." in page.text("#done")
    assert "100 % of the proposals were kept: you set 6 of 48 points by hand." in page.text("#done")
    label.saved()
    path = page.download("[data-format=csv]", "beetles.csv")
    items = {item.image: item for item in annotations.read(path)}
    assert set(items) == set(FILES)
    assert "Tail" in items[FILES[4]].names


def test_slips_are_shown_and_exchanged_back(
    shared_browser: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claws = {"landmark": "Left claw", "kind": "exchanged", "other": "Right claw", "far": 5.0, "x": 1.0, "y": 1.0}

    def suspects(_: Any, project: Project) -> Any:
        """The claws of the fourth photograph, while the left one lies on the right."""
        points = project.photographs[FILES[3]].points
        return {FILES[3]: [claws]} if points["Left claw"].xy[0] > points["Right claw"].xy[0] else {}

    monkeypatch.setattr(Suspects, "of", suspects)
    with labelled(shared_browser, tmp_path / "beetles", reviewed=7) as label:
        page = label.page
        label.open(3)
        page.keys("4", "x")
        page.wait(lambda: "Slips?1" in page.texts("#filters .chip"))
        assert page.text("#reason").startswith("Possible slip: Left claw, Right claw look exchanged.")
        assert page.texts("#rows .value")[3:5] == ["far off", "far off"]
        page.click("#reason .chip")
        page.wait(lambda: page.text("#reason").startswith("Reviewed:"))
        assert "Slips?1" not in page.texts("#filters .chip")
        assert page.complaints() == []


def test_landmarks_are_renamed_added_and_removed_and_that_is_undone(label: Labelled) -> None:
    page = label.page
    page.click("#editLandmarks")
    field = page.one("[aria-label='Name of landmark 1']")
    field.send_keys(" front")
    page.click("[aria-label='Remove Tail']")
    assert page.text("#landmarksWarning") == "Tail will be removed, with 8 points. It can be undone."
    page.click("#landmarks .dialog-foot .button:first-child")
    page.browser.switch_to.active_element.send_keys("Scutellum")
    page.click("#landmarks .dialog-foot .primary")
    assert page.texts("#rows .name") == ["Head front", *NAMES[1:5], "Scutellum"]
    assert label.mark("Head front")["score"] == 0.9
    assert page.text("#leftCount") == "8 to review"  # the reviewed one comes back for the new landmark
    label.saved()
    assert [one.name for one in label.project.landmarks] == ["Head front", *NAMES[1:5], "Scutellum"]
    assert label.project.skeleton[0] == ("Head front", "Left eye")
    page.keys("z")
    assert page.texts("#rows .name") == list(NAMES)
    label.saved()
    assert label.photo(4).points["Tail"].score == 0.9
    assert len(label.photo(0).points) == 6


def test_points_from_a_file_do_not_touch_what_a_person_has_set(label: Labelled, tmp_path: Path) -> None:
    page = label.page
    rows = [
        "image,name,x,y",
        f"{FILES[0]},Head,1,2",
        f"{FILES[1]},Head,11,12",
        f"{FILES[1]},Jaw,21,22",
        "z.jpg,Head,1,1",
    ]
    path = tmp_path / "old.csv"
    path.write_text("\n".join(rows))
    page.one("#file").send_keys(str(path))
    page.wait(lambda: "1 new landmark" in page.text("#toast"))
    assert "1 photograph of it is not in this folder." in page.text("#toast")
    label.saved()
    assert label.photo(0).points["Head"].xy == (truth(0)["Head"]["x"], truth(0)["Head"]["y"])
    assert label.photo(1).points["Head"].xy == (11, 12)
    assert label.photo(1).points["Jaw"].xy == (21, 22)


def test_a_photograph_of_24_megapixels_comes_in_tiles(shared_browser: Page, tmp_path: Path) -> None:
    folder = tmp_path / "beetles"
    make_folder(folder)
    with Image.open(folder / FILES[0]) as small:
        small.resize((6000, 4000)).save(folder / FILES[0], quality=60)
    with labelled(shared_browser, folder, reviewed=0) as label:
        page = label.page
        assert page.text("#naming h2")
        tiles = "m.tileCount()"
        assert page.ask("tiles.js", tiles) == 0  # the whole view needs the small copy alone
        frame = page.rect("#frame")
        x, y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
        for _ in range(5):
            page.wheel(x, y, -300)
        page.wait(lambda: page.ask("tiles.js", tiles) >= 4)
        for step in range(30):
            page.drag(x, y, -400 if step % 20 < 10 else 400, -80)
        page.wait(lambda: page.ask("tiles.js", tiles) >= 4)
        assert page.ask("tiles.js", tiles) <= 64
        assert page.complaints() == []
