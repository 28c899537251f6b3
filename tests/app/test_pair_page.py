"""The page of two pictures in a real browser, as a person uses it: click left, see right, drag to correct."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from normmatch import annotations
from tests.app.browser import NEEDED, Page
from tests.app.conftest import Stub, encoded, served

pytestmark = NEEDED
STATE = "pair_state.js"


@pytest.fixture(scope="module")
def stub() -> Stub:
    return Stub()


@pytest.fixture(scope="module")
def address(stub: Stub) -> Iterator[str]:
    with served(stub) as listening:
        yield listening.address


@pytest.fixture(scope="module")
def browser(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page(address, tmp_path_factory.mktemp("browser"))
    yield page
    page.browser.quit()


@pytest.fixture
def page(browser: Page, address: str) -> Iterator[Page]:
    """The page as it opens, in a browser that the tests share."""
    browser.open(address)
    found(browser)
    yield browser
    assert browser.complaints() == []


def found(page: Page) -> None:
    """Wait until nothing is looked for."""
    page.wait(lambda: not page.ask(STATE, "m.state.looking.size"))


def mark(page: Page, side: int, name: str) -> Any:
    point = f"m.state.points.find((point) => point.name === {json.dumps(name)})"
    return page.ask(STATE, f"m.markOn({point}, m.pictureOn({side}))")


def place(page: Page, side: int, name: str) -> tuple[float, float]:
    """Where a point is on the screen."""
    at, frame = mark(page, side, name), page.rect(f"#frame{side}")
    seen = page.ask("pair_sides.js", f"m.pictures[{side}].toScreen({json.dumps({'x': at['x'], 'y': at['y']})})")
    return frame["x"] + seen["x"], frame["y"] + seen["y"]


def middle(page: Page, side: int) -> tuple[float, float]:
    frame = page.rect(f"#frame{side}")
    return frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2


def test_points_of_one_picture_are_found_in_the_other_with_their_certainty(page: Page) -> None:
    assert page.text("#about0") == "cat.jpg"
    assert "raccoon.jpg" in page.text("#about1")
    assert page.texts("#rows .name") == ["L_Eye", "R_Eye", "Nose", "Chin", "L_EarBase", "R_EarBase"]
    assert [text.replace("\u202f", " ") for text in page.texts("#rows .value")[:4]] == [
        "90 %", "60 %", "90 %", "absent 90 %",
    ]  # fmt: skip
    assert page.text("#count") == "1 uncertain"
    at, there = mark(page, 0, "Nose"), mark(page, 1, "Nose")
    assert there["x"] / 720 == pytest.approx(at["x"] / 451, abs=0.002)  # as the stand-in for the network answers
    assert (there["score"], there["spread"]) == (0.9, 20)


def test_a_click_on_the_left_adds_a_point_that_is_looked_for_at_once(page: Page, stub: Stub) -> None:
    before = stub.located
    x, y = middle(page, 0)
    page.click_at(x, y)
    page.wait(lambda: page.texts("#rows .name")[-1] == "Point 7")
    found(page)
    assert stub.located == before + 1
    assert page.texts("#rows .value")[-1].replace("\u202f", " ") == "90 %"
    assert "Probably within 20 px, from 1 reference." in page.text("#detail .origin")
    name = page.one("#detail .name-field")
    name.clear()
    name.send_keys("whisker\n")
    page.wait(lambda: page.texts("#rows .name")[-1] == "whisker")
    page.keys("z")
    assert page.texts("#rows .name")[-1] == "Point 7"
    page.keys("z")
    assert len(page.texts("#rows .name")) == 6
    page.keys("Shift+z")
    page.wait(lambda: len(page.texts("#rows .name")) == 7)


def test_what_a_person_sets_stays_and_the_rest_follows(page: Page) -> None:
    x, y = place(page, 1, "Nose")
    page.drag(x, y, 60, 40)
    set_here = mark(page, 1, "Nose")
    assert set_here["from"] == "person"
    assert set_here["was"]["score"] == 0.9
    assert place(page, 1, "Nose") == pytest.approx((x + 60, y + 40), abs=1.5)
    eye = mark(page, 1, "L_Eye")
    for name in ("Nose", "L_Eye"):
        page.drag(*place(page, 0, name), 30, 20)
        found(page)
    assert mark(page, 1, "Nose") == set_here
    assert mark(page, 1, "L_Eye")["x"] > eye["x"]
    assert page.text("#detail .origin") == "Probably within 20 px, from 1 reference."
    page.keys("3")
    assert "Set by you" in page.text("#detail .origin")


def test_what_is_absent_stands_beside_the_picture_and_comes_back_by_two_clicks(page: Page) -> None:
    assert page.texts("#tray button") == ["Chin90\u202f%"]
    assert page.ask("pair_state.js", "m.markOn(m.state.points[3], m.target()).absent")
    page.click("#tray button")
    page.click_at(*middle(page, 1))
    assert mark(page, 1, "Chin")["from"] == "person"
    assert not page.shown("#tray button")
    assert page.text("#tray") == "Nothing is missing from the picture"
    page.keys("1", "a")
    assert page.text("#tray button") == "L_Eye"  # by a person: no number
    page.keys("z")
    assert not page.shown("#tray button")


def test_a_kept_picture_is_a_reference_and_can_be_left_out(page: Page, stub: Stub) -> None:
    page.keys("Enter")
    found(page)
    assert "astronaut.jpg" in page.text("#about1")
    assert len(stub.references) == 2
    assert "2 references in use" in page.text("#note0")
    page.click("#references .thumb:nth-child(2) input")
    found(page)
    assert len(stub.references) == 1
    assert page.texts("#references .use") == ["", "off"]
    page.keys("d")
    assert page.text("#about0") == "raccoon.jpg, 2 of 2"


def test_the_loupe_the_arrows_and_escape(page: Page) -> None:
    x, y = place(page, 1, "Nose")
    before = mark(page, 1, "Nose")
    page.over(x, y).click_and_hold().move_by_offset(30, 10).perform()
    assert page.shown("#frame1 .loupe")
    page.keys("Escape")
    page.actions().release().perform()
    assert mark(page, 1, "Nose") == before
    assert not page.shown("#frame1 .loupe")
    page.keys("3", "Right", "Right")
    scale = page.ask("pair_sides.js", "m.pictures[1].view.scale")
    assert mark(page, 1, "Nose")["x"] == pytest.approx(before["x"] + 2 / scale, abs=0.01)


def test_one_line_joins_the_point_one_is_busy_with_and_l_shows_all(page: Page) -> None:
    count = """const [side, done] = arguments;
        import(new URL("static/pair_sides.js", location)).then(({ pictures }) => {
          const context = pictures[side].layers[1].getContext("2d");
          let lines = 0;
          let joined = 0;
          const { lineTo, stroke } = context;
          context.lineTo = (...to) => { lines += 1; return lineTo.apply(context, to); };
          context.stroke = () => {
            joined += context.lineWidth === 4.5 && lines === 1; // a mark's corners are more
            lines = 0;
            return stroke.call(context);
          };
          pictures[side].drawMarks();
          delete context.lineTo;
          delete context.stroke;
          done(joined);
        });"""

    def lines(side: int) -> int:
        page.settle()
        return page.browser.execute_async_script(count, side)

    assert (lines(0), lines(1)) == (0, 0)
    page.keys("3")
    assert (lines(0), lines(1)) == (1, 1)  # each picture paints its part
    page.keys("l")
    assert lines(0) == lines(1) == 5  # all but the absent one
    page.keys("l", "Escape")
    page.keys("g")
    assert page.browser.execute_script("return document.activeElement.id") == "frame0"
    page.keys("3", "Right")
    page.wait(lambda: mark(page, 0, "Nose")["x"] > 266)
    page.keys("z", "s")
    assert "astronaut.jpg" in page.text("#about1")


def test_own_files_good_and_bad(page: Page, tmp_path: Path) -> None:
    files = {
        "own.png": encoded(320, 240),
        "notes.jpg": b"no picture",
        "points.csv": b"image,name,x,y\nown.png,tip,30,40\nown.png,<b>end</b>,100,90\n",
        "outside.csv": b"image,name,x,y\nown.png,tip,3000,40\n",
        "broken.json": b"{",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)

    def give(name: str, side: int = 0) -> None:
        page.browser.execute_script("document.querySelector('#file').dataset.side = arguments[0]", side)
        page.one("#file").send_keys(str(tmp_path / name))

    give("notes.jpg")
    page.wait(lambda: "notes.jpg is not a readable image" in page.text("#toast"))
    assert page.text("#about0") == "cat.jpg"
    page.click("#clear")
    assert page.shown("#empty")
    give("own.png")
    page.wait(lambda: page.text("#about0") == "own.png, 2 of 2")
    give("broken.json")
    page.wait(lambda: "broken.json" in page.text("#toast"))
    give("outside.csv")
    page.wait(lambda: "outside the picture of 320 x 240 pixels" in page.text("#toast"))
    give("points.csv")
    page.wait(lambda: page.texts("#rows .name") == ["tip", "<b>end</b>"])  # text, not a tag
    found(page)
    assert mark(page, 1, "tip")["from"] == "proposed"
    give("own.png", 1)
    page.wait(lambda: "own.png" in page.text("#about1"))


def test_a_pasted_picture(page: Page) -> None:
    page.browser.execute_script(
        """const bytes = Uint8Array.from(arguments[0]);
        const data = new DataTransfer();
        data.items.add(new File([bytes], "pasted.png", {type: "image/png"}));
        document.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));""",
        list(encoded(50, 40)),
    )
    page.wait(lambda: "pasted.png" in page.text("#about1"))
    found(page)
    assert mark(page, 1, "Nose")["x"] < 50


def test_files_out_can_be_read_again(page: Page) -> None:
    names = {"points-coco.json": 0, "points.csv": 1, "points.json": 2}
    for name, number in names.items():
        path = page.download(f"button:nth-of-type({number + 1})", name)
        items = {item.image: item for item in annotations.read(path)}
        assert set(items) == {"cat.jpg", "raccoon.jpg"}
        assert len(items["cat.jpg"].names) == 6
        assert "Nose" in items["raccoon.jpg"].names
    path = page.download("button:nth-of-type(4)", "points.png")
    page.wait(lambda: path.stat().st_size > 1000)
    with Image.open(path) as picture:
        assert picture.width > picture.height == 1200


def test_a_phone(page: Page) -> None:
    """Nothing is wider than the screen, the pictures lie below each other, and a finger places points."""
    with page.phone():
        assert page.browser.execute_script("return document.documentElement.scrollWidth") <= 390
        above, below = page.rect("#frame0"), page.rect("#frame1")
        assert above["bottom"] <= below["top"]
        assert above["height"] > 150
        assert below["height"] > above["height"]
        for selector in ("#keep", "#footAbsent", "#footUndo", "[data-add='0'].phone-only"):
            assert page.rect(selector)["height"] >= 44
        page.tap(*middle(page, 0))
        page.wait(lambda: len(page.texts("#rows .name")) == 7)
        found(page)
        x, y = place(page, 1, "Nose")
        page.touch("touchStart", (x, y))
        for step in range(1, 5):
            page.touch("touchMove", (x - 6 * step, y + 3 * step))
        assert page.shown("#frame1 .loupe")
        page.touch("touchEnd")
        assert place(page, 1, "Nose") == pytest.approx((x - 24, y + 12), abs=2)
