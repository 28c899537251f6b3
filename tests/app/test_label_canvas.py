"""The photograph of the labelling page in a real browser: view, loupe, marks, sub-pixel points."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.browser import NEEDED, Page
from tests.app.label_folder import Labelled, labelled

pytestmark = NEEDED
PHOTO = "m.picture.toPhoto"


@pytest.fixture
def label(shared_browser: Page, tmp_path: Path) -> Iterator[Labelled]:
    with labelled(shared_browser, tmp_path / "beetles") as opened:
        yield opened
        assert shared_browser.complaints() == []


def middle(page: Page) -> tuple[float, float]:
    frame = page.rect("#frame")
    return frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2


def under(label: Labelled, x: float, y: float) -> tuple[float, float]:
    """The place of the photograph under a place of the screen."""
    frame = label.page.rect("#frame")
    at = label.page.ask("stage.js", f"{PHOTO}({{x: {x - frame['x']}, y: {y - frame['y']}}})")
    return at["x"], at["y"]


def test_zoom_and_pan_by_wheel_keys_buttons_and_drag(label: Labelled) -> None:
    page = label.page
    x, y = middle(page)
    at, scale = (x + 120, y - 60), label.scale()
    before = under(label, *at)
    page.wheel(*at, -300)
    assert label.scale() > 1.4 * scale
    assert under(label, *at) == pytest.approx(before, abs=0.01)  # larger where the pointer is
    page.keys("Escape")  # nothing is chosen: the arrows move the view
    page.wheel(x, y, 60, modifiers=8)  # Shift: sideways
    aside = under(label, *at)
    assert aside[0] > before[0]
    assert aside[1] == pytest.approx(before[1], abs=0.01)
    scale = label.scale()
    page.keys("+")
    assert label.scale() == pytest.approx(1.25 * scale)
    page.keys("-")
    page.click("#zoomIn")
    assert label.scale() == pytest.approx(1.4 * scale)
    page.click("#zoomOut")
    page.keys("Right", "Down")
    moved = under(label, *at)
    assert moved[0] > aside[0]
    assert moved[1] > aside[1]
    page.drag(x, y + 150, 50, 30)
    dragged = under(label, *at)
    assert dragged == pytest.approx((moved[0] - 50 / scale, moved[1] - 30 / scale), abs=0.6)
    page.keys("f")
    close = label.scale()
    page.keys("f")
    assert label.scale() < close  # from the animal to the whole
    page.keys("s")
    whole = label.scale()
    page.keys("f")
    assert label.scale() > whole  # the choice stayed for the next photograph
    assert page.text("#zoomValue").endswith("%")


def test_a_drag_shows_the_loupe_and_escape_takes_it_back(label: Labelled) -> None:
    page = label.page
    x, y = label.place("Tail")
    before = label.mark("Tail")
    assert not page.shown(".loupe")
    page.over(x + 3, y + 2).click_and_hold().move_by_offset(20, -15).perform()
    assert page.shown(".loupe")
    now = label.mark("Tail")
    assert page.text(".loupe-note") == f"{now['x']:.1f}, {now['y']:.1f}"
    assert label.place("Tail") == pytest.approx((x + 20, y - 15), abs=1)  # by as much as the pointer, no jump
    page.keys("Escape")
    page.actions().release().perform()
    assert label.mark("Tail") == before
    assert not page.shown(".loupe")


def test_the_loupe_stays_inside_the_frame_in_all_corners(label: Labelled) -> None:
    page = label.page
    page.keys("f")
    frame = page.rect("#frame")
    x, y = label.place("Tail")
    for corner in ((0, 0), (1, 0), (0, 1), (1, 1)):
        to = [
            frame[a] + 4 + share * (frame[size] - 8)
            for a, size, share in zip("xy", ("width", "height"), corner, strict=True)
        ]
        page.over(x, y).click_and_hold().perform()
        page.over(*to).perform()
        box, note = page.rect(".loupe"), page.rect(".loupe-note")
        assert box["left"] >= frame["left"]
        assert box["right"] <= frame["right"]
        assert box["top"] >= frame["top"]
        assert note["bottom"] <= frame["bottom"]
        page.keys("Escape")
        page.actions().release().perform()


def test_points_are_set_to_parts_of_a_pixel(label: Labelled) -> None:
    page = label.page
    x, y = label.place("Tail")
    for _ in range(6):
        page.wheel(x, y, -400)
    scale = label.scale()
    assert scale >= 8
    before = label.mark("Tail")
    page.drag(*label.place("Tail"), 9, 0)
    after = label.mark("Tail")
    assert after["x"] - before["x"] == pytest.approx(9 / scale, abs=0.02)
    assert after["x"] != round(after["x"])
    page.keys("6", "Alt+Right")
    assert label.mark("Tail")["x"] - after["x"] == pytest.approx(0.1 / scale, abs=1e-6)
    page.keys("Shift+Left")
    assert label.mark("Tail")["x"] - after["x"] == pytest.approx(-9.9 / scale, abs=1e-6)
    field = page.one("[aria-label='x in pixels']")
    field.send_keys("\ue009a\ue000123.4\n")  # Ctrl+A, then the number
    page.wait(lambda: label.mark("Tail")["x"] == 123.4)
    label.saved()
    assert label.photo(label.current).points["Tail"].xy[0] == 123.4


def test_certainty_is_colour_shape_and_number_spread_a_circle_skeleton_lines(label: Labelled) -> None:
    page = label.page
    seen = label.painted()  # the least certain photograph: Left claw, 41 %, is chosen
    assert "Left claw  41" in seen["words"]
    assert not any("Head" in words for words in seen["words"])  # names on demand
    assert {"#ff6f4d", "#4fd0ff"} <= set(seen["colors"])  # doubtful, sure
    assert seen["circles"] == [pytest.approx(20 * label.scale())]
    assert sorted(seen["lines"]) == ["whole"] * 3
    page.keys("n")
    assert {"Head", "Tail", "Left eye"} <= set(label.painted()["words"])
    page.keys("n", "v", "k")
    seen = label.painted()
    assert (seen["circles"], seen["lines"]) == ([], [])
    page.keys("v", "k")
    page.over(*label.place("Head")).perform()
    assert "Head  90" in label.painted()["words"]
    assert page.one("#rows .hovered .name").text == "Head"
    page.actions().key_down("h").perform()  # held
    assert label.painted()["words"] == []
    page.actions().key_up("h").perform()
    assert label.painted()["words"]
    page.drag(*label.place("Left claw"), 15, 0)
    seen = label.painted()
    assert "#ffffff" in seen["colors"]
    assert "#ff6f4d" not in seen["colors"]  # what a person has set is white
    label.open(2)
    seen = label.painted()
    assert "#ffc83d" in seen["colors"]  # uncertain
    assert seen["rings"] > 0


def test_the_whole_pose_moves_with_shift(label: Labelled) -> None:
    page = label.page
    before = {name: label.place(name) for name in ("Head", "Tail", "Left eye")}
    x, y = before["Head"]
    actions = page.over(x, y).key_down("\ue008").click_and_hold().move_by_offset(20, 10).move_by_offset(20, 10)
    actions.release().key_up("\ue008").perform()
    for name, (px, py) in before.items():
        assert label.place(name) == pytest.approx((px + 40, py + 20), abs=1)
    page.keys("z")
    assert label.place("Tail") == pytest.approx(before["Tail"], abs=0.5)


def test_two_fingers_zoom_and_one_drags_holds_and_taps(label: Labelled) -> None:
    """One test: chromium's driver forgets to send touches after its phone was put away once."""
    page = label.page
    with page.phone():
        x, y = middle(page)
        scale, mark = label.scale(), label.mark("Tail")
        page.touch("touchStart", (x - 30, y), (x + 30, y))
        for step in range(1, 6):
            page.touch("touchMove", (x - 30 - 10 * step, y), (x + 30 + 10 * step, y))
        page.touch("touchEnd")
        assert label.scale() == pytest.approx(scale * 160 / 60, rel=0.15)
        page.click("#fitButton")
        at = label.place("Tail")
        page.touch("touchStart", at)
        page.touch("touchMove", (at[0] + 30, at[1]))
        assert label.mark("Tail")["from"] == "person"
        page.touch("touchStart", (at[0] + 30, at[1]), (at[0] - 40, at[1] - 40))
        page.touch("touchEnd")
        assert label.mark("Tail") == mark
        x, y = label.place("Tail")
        page.touch("touchStart", (x + 8, y + 8))
        for step in range(1, 5):
            page.touch("touchMove", (x + 8 + 5 * step, y + 8 - 5 * step))
        page.wait(lambda: page.shown(".loupe"))
        assert page.rect(".loupe")["bottom"] < y or page.rect(".loupe")["right"] < x or page.rect(".loupe")["left"] > x
        page.touch("touchEnd")
        assert label.place("Tail") == pytest.approx((x + 20, y - 20), abs=1.5)  # it never jumps under the finger
        frame = page.rect("#frame")
        at = label.to_screen(300, 210)  # no mark is near
        page.touch("touchStart", at)
        page.wait(lambda: page.shown(".loupe"))
        page.touch("touchEnd")
        assert label.place("Tail") == pytest.approx((at[0], at[1] - 56), abs=1.5)  # above the finger
        page.tap(*label.place("Head"))
        assert page.ask("project.js", "m.state.chosen") == "Head"
        page.tap(frame["x"] + 20, frame["y"] + 20)  # a tap beside it lets it go, and changes nothing
        assert page.ask("project.js", "m.state.chosen") is None
