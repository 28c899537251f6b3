"""The page in a real browser, as a person uses it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys

from normmatch import Matcher
from tests.app.browser import NEEDED, Page
from tests.app.conftest import encoded, served

pytestmark = NEEDED


@pytest.fixture(scope="module")
def address(matcher: Matcher) -> Iterator[str]:
    with served(matcher) as listening:
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
    yield browser
    assert browser.complaints() == []


def test_from_a_sample_to_the_files(page: Page) -> None:
    assert [page.count(side) for side in (0, 1)] == [6, 7]  # the page opens with the cat and the raccoon
    page.choose_sample(1, "astronaut", "512 x 512")
    assert page.count(1) == 8
    page.match()
    assert len(page.texts("#overlay .link")) == len(page.texts("#table tbody tr")) == 6
    assert "Matched in" in page.one("#status").text
    assert page.one("#matrix").size["width"] > 100

    page.over("#overlay .link .hit").perform()
    assert page.wait(lambda: page.one("#tooltip").text).startswith("L_Eye → ")

    kept = json.loads(page.download("Json").read_text())
    assert [image["image"] for image in kept["images"]] == ["cat.jpg", "astronaut.jpg"]
    assert len(kept["matches"]) == len(kept["matches0"]) == 6
    assert (kept["image0"], kept["names0"][0], kept["keypoints0"][0]) == ("cat.jpg", "L_Eye", [317, 136])
    rows = page.download("Csv").read_text().splitlines()
    assert rows[0] == "name0,x0,y0,name1,x1,y1,score"
    assert len(rows) == 7
    with Image.open(page.download("Png")) as picture:
        assert picture.width > picture.height > 600

    page.slide(0.9)  # the network knows nothing: all of its scores are low
    page.wait(lambda: not page.texts("#overlay .link"))
    assert len(page.texts("#table tr.weak")) == 6
    assert page.one("#shown").text == "0 of 6 points"
    page.slide(0)
    page.wait(lambda: len(page.texts("#overlay .link")) == 6)

    page.one(".switch").click()  # one-to-one matches again by itself
    page.wait(lambda: page.one("#results").is_displayed() and len(page.texts("#overlay .link")) == 6)
    names = page.texts("#table tbody td:nth-child(2)")
    assert len(set(names)) == 6


def test_points_are_placed_moved_named_and_deleted(page: Page) -> None:
    page.side(0, ".clear").click()
    assert page.count(0) == 0
    assert not page.one("#match").is_enabled()
    for dx, dy in ((-60, -40), (50, -30), (0, 60)):
        page.click_at(0, dx, dy)
    assert page.count(0) == 3
    assert page.one("#match").is_enabled()

    third = ("#overlay .point[data-side='0'] .dot", 2)
    before = page.rect(*third)
    page.over(*third).click_and_hold().move_by_offset(40, 25).release().perform()
    after = page.rect(*third)
    assert (after["x"] - before["x"], after["y"] - before["y"]) == pytest.approx((40, 25), abs=1.5)

    page.over_point(0, 0).click().perform()
    page.wait(lambda: page.one("#pointEditor").is_displayed())
    name = page.one("#pointName")
    name.clear()
    name.send_keys("2")
    assert page.one("#pointMessage").text == "Another point has this name."
    name.clear()
    name.send_keys("tip", Keys.ENTER)
    page.wait(lambda: not page.one("#pointEditor").is_displayed())
    page.over_point(0, 1).click().perform()
    page.one("body").send_keys(Keys.DELETE)
    page.wait(lambda: page.count(0) == 2)
    page.over_point(0, 1).context_click().perform()
    page.wait(lambda: page.count(0) == 1)
    page.one("body").send_keys(Keys.CONTROL, "z")
    page.wait(lambda: page.count(0) == 2)
    page.match()
    assert set(page.texts("#table tbody td:first-child")) == {"tip", "3"}

    page.click_at(1, 0, 100)  # what was matched is no longer what is shown
    page.wait(lambda: not page.one("#results").is_displayed())


def test_a_box_is_drawn_and_changed(page: Page) -> None:
    page.side(1, ".clear").click()
    assert page.texts("#overlay .box[data-side='1']") == []
    page.side(1, ".box").click()
    drawing = page.actions().move_to_element_with_offset(page.side(1, ".frame"), -100, -80).click_and_hold()
    drawing.move_by_offset(180, 150).release().perform()
    page.wait(lambda: "a box" in page.side(1, ".note").text)
    assert page.count(1) == 0  # drawing a box places no point
    box = page.rect("#overlay .box[data-side='1'] rect")
    assert (box["width"], box["height"]) == pytest.approx((180, 150), abs=3)
    page.side(1, ".box").click()
    corner = "#overlay .handle[data-side='1'][data-corner='se']"
    page.over(corner).click_and_hold().move_by_offset(30, -20).release().perform()
    box = page.rect("#overlay .box[data-side='1'] rect")
    assert (box["width"], box["height"]) == pytest.approx((210, 130), abs=3)


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

    def give(kind: str, name: str) -> None:
        page.side(0, f".{kind}Input").send_keys(str(tmp_path / name))

    give("upload", "notes.jpg")
    page.wait(lambda: "notes.jpg is not a readable image" in page.side(0, ".message").text)
    assert page.count(0) == 6  # the cat stays
    give("upload", "own.png")
    page.wait(lambda: page.side(0, ".note").text.startswith("own.png, 320 x 240 · no points"))
    assert page.side(0, ".message").text == ""
    give("points", "broken.json")
    page.wait(lambda: "broken.json" in page.side(0, ".message").text)
    give("points", "outside.csv")
    page.wait(lambda: "outside the picture of 320 x 240 pixels" in page.side(0, ".message").text)
    give("points", "points.csv")
    page.wait(lambda: page.count(0) == 2)
    page.match()
    assert "<b>end</b>" in page.one("#table").text  # text, not a tag


def test_a_pasted_picture(page: Page) -> None:
    page.browser.execute_script(
        """const bytes = Uint8Array.from(arguments[0]);
        const data = new DataTransfer();
        data.items.add(new File([bytes], "pasted.png", {type: "image/png"}));
        document.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));""",
        list(encoded(50, 40)),
    )
    page.wait(lambda: "pasted.png, 50 x 40" in page.side(0, ".note").text)


def test_a_phone(page: Page) -> None:
    """Nothing is wider than the screen, the pictures lie below each other, and a finger places points."""
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        assert page.browser.execute_script("return document.documentElement.scrollWidth") <= 390
        frames = [page.side(side, ".frame").rect for side in (0, 1)]
        assert frames[0]["y"] + frames[0]["height"] < frames[1]["y"]
        page.match()
        assert page.browser.execute_script("return document.documentElement.scrollWidth") <= 390
        page.click_at(0, 0, -20)
        page.wait(lambda: page.count(0) == 7)
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_two_people_at_once(page: Page, address: str, tmp_path: Path) -> None:
    other = Page(address, tmp_path)
    try:
        other.choose_sample(0, "raccoon", "720 x 540")
        other.choose_sample(1, "astronaut", "512 x 512")
        assert page.count(0) == 6
        page.one("#match").click()
        other.one("#match").click()
        for person, count, name in ((page, 6, "L_EarBase"), (other, 7, "L_F_Paw")):
            person.wait(lambda person=person: person.one("#results").is_displayed())
            assert len(person.texts("#table tbody tr")) == count
            assert name in person.one("#table").text
        page.browser.refresh()  # a new visit begins anew
        page.wait(lambda: page.one("body").get_attribute("data-ready"))
        assert not page.one("#results").is_displayed()
        assert other.complaints() == []
    finally:
        other.browser.quit()
