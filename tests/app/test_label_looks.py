"""How the pages look and who can use them: sizes, contrast, focus, screen readers, motion."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from normmatch.app.pages import STATIC
from tests.app.browser import NEEDED, Page
from tests.app.label_folder import Labelled, labelled

TEXT, EDGE = 4.5, 3.0  # what WCAG AA asks of text, and of borders and signs
GROUNDS = ("bg", "surface", "raised", "sunken")
TEXTS = ("ink", "ink-2", "ink-3", "accent", "sure", "unsure", "doubt")
ON_SOFT = {"accent-soft": ("ink",), "sure-soft": ("ink",), "unsure-soft": ("ink",), "doubt-soft": ("ink",)}


def tokens(theme: int) -> dict[str, str]:
    """The colours of a theme, 0 is light: what the sheet of both pages says."""
    css = (STATIC / "base.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", css)
    return {name: colors[theme] for name, *colors in found}


def luminance(color: str) -> float:
    values = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_contrast_of_all_colours_is_aa(theme: int) -> None:
    color = tokens(theme)
    for text, ground in product(TEXTS, GROUNDS):
        assert contrast(color[text], color[ground]) >= TEXT, (text, ground)
    for ground, texts in ON_SOFT.items():
        for text in texts:
            assert contrast(color[text], color[ground]) >= TEXT, (text, ground)
    for ground in ("primary", "primary-over"):
        assert contrast("#ffffff", color[ground]) >= (TEXT if ground == "primary" else EDGE), ground
    for edge, ground in product(("edge", "accent"), GROUNDS):
        assert contrast(color[edge], color[ground]) >= EDGE, (edge, ground)


def test_marks_show_on_any_photograph() -> None:
    """Each colour on its dark edge; the edge on a light photograph, the colour on a dark one."""
    script = (STATIC / "marks.js").read_text()
    halo = re.search(r'HALO = "(#\w{6})"', script)[1]
    for color in re.findall(r'\w+: "(#\w{6})"', script):
        assert contrast(color, halo) >= TEXT
    assert contrast(halo, "#ffffff") >= TEXT


@pytest.fixture
def label(shared_browser: Page, tmp_path: Path) -> Iterator[Labelled]:
    with labelled(shared_browser, tmp_path / "beetles", reviewed=2) as opened:
        yield opened
        shared_browser.size(1440, 900)
        shared_browser.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        assert shared_browser.complaints() == []


INSIDE = """
const outside = [];
for (const one of document.querySelectorAll("button, #rows, #frame, .panel-foot, #leftCount")) {
  if (!one.checkVisibility() || one.closest("#filters, #thumbs, #rows, #tray, [popover], dialog")) continue;
  const box = one.getBoundingClientRect();
  const across = box.left >= -0.5 && box.right <= innerWidth + 0.5;
  if (!across || box.top < -0.5 || box.bottom > innerHeight + 0.5) outside.push(one.id || one.textContent);
  if (one.matches("button") && one.scrollWidth > one.clientWidth + 1) outside.push(`${one.id} is cut`);
}
return [document.documentElement.scrollWidth - innerWidth, outside];
"""


@NEEDED
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_at_any_size(label: Labelled, theme: str) -> None:
    page = label.page
    page.ask("menus.js", f"m.setTheme('{theme}')")
    for width, height in ((1440, 900), (1440, 780), (1024, 700), (390, 844)):
        page.size(width, height, phone=width < 760)
        page.settle()
        page.settle()
        wider, outside = page.browser.execute_script(INSIDE)
        assert wider <= 0
        assert outside == []
        assert page.shown("#accept")
        frame = page.rect("#frame")
        assert frame["height"] > (330 if width > 1000 else 380)
    ground = page.browser.execute_script("return getComputedStyle(document.querySelector('.panel')).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if theme == "light" else "rgb(26, 29, 35)")


NAMELESS = """
const named = (one) => [one.getAttribute("aria-label"), one.getAttribute("aria-labelledby"), one.textContent, one.title,
  one.labels?.[0]?.textContent].some((text) => text?.trim());
const kinds = "button, input, select, textarea, [role=listbox], [role=application], [role=img], section, dialog";
return [...document.querySelectorAll(kinds)].filter((one) => !named(one)).map((one) => one.outerHTML.slice(0, 90));
"""


@NEEDED
def test_everything_has_a_name_a_place_in_the_order_and_is_said(label: Labelled) -> None:
    page = label.page
    page.click("#helpButton")
    page.keys("Escape")
    assert page.browser.execute_script(NAMELESS) == []
    stops: list[str] = []
    page.browser.execute_script("document.querySelector('a.skip').focus()")
    while stop := page.browser.execute_script(
        "const at = document.activeElement; return at.id || at.closest('[id]')?.id || at.className"
    ):
        if not stops or stops[-1] != stop:
            stops.append(stop)
        outline = page.browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", stop
        page.keys("Tab")
    wanted = ["skip", "propose", "exportButton", "helpButton", "frame", "filters", "thumbs", "rows", "detail", "accept"]
    places = [stops.index(stop) for stop in wanted]
    assert places == sorted(places), stops
    assert stops.count("rows") == 1  # one stop for a list; the arrows go on
    page.browser.execute_script("document.querySelector('#rows [tabindex=\"0\"]').focus()")
    page.keys("Up")
    said = page.one("#live").text
    page.wait(lambda: page.browser.execute_script("return document.querySelector('#live').textContent") != "")
    said = page.browser.execute_script("return document.querySelector('#live').textContent").replace("\u202f", " ")
    assert said == "Right eye, 90 %"
    assert page.browser.execute_script("return document.activeElement.dataset.name") == "Right eye"
    rows = page.texts("#rows [role=option]")
    assert rows[3].replace("\u202f", " ") == "4Left claw55 %"
    page.keys("Enter")  # back on the photograph, then accepted
    page.keys("Enter")
    page.wait(
        lambda: (
            page.browser.execute_script("return document.querySelector('#live').textContent")
            == "beetle_003.jpg accepted. 5 left."
        )
    )
    assert page.one("#frame").get_attribute("role") == "application"
    assert page.one("#frame").get_attribute("aria-label").startswith("beetle_004.jpg, 1 point uncertain")


@NEEDED
def test_single_keys_can_be_turned_off_and_none_acts_in_a_field(label: Labelled) -> None:
    page = label.page
    before = page.ask("project.js", "m.state.clock")
    page.click("[aria-label='x in pixels']")
    page.keys("a", "z", "Escape")
    assert page.ask("project.js", "m.state.clock") == before
    page.click("#helpButton")
    page.click("#help .switch input")
    page.keys("Escape", "a", "1", "p")
    assert page.ask("project.js", "m.state.clock") == before
    assert page.ask("project.js", "m.state.chosen") == "Left claw"
    page.keys("Down")  # arrows, Enter and Tab still do
    assert page.ask("project.js", "m.state.clock") == before + 1
    page.browser.execute_script("localStorage.clear()")


@NEEDED
def test_reduced_motion_and_the_hit_size(label: Labelled) -> None:
    page = label.page
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    longest = page.browser.execute_script(
        """return Math.max(...[...document.querySelectorAll("*")].flatMap((one) =>
            getComputedStyle(one).transitionDuration.split(",").map(parseFloat)))"""
    )
    assert longest <= 0.001
    small = """return [...document.querySelectorAll("button, .row, .thumb, input:not([type=file])")]
        .filter((one) => one.checkVisibility()).map((one) => [one.getBoundingClientRect(), one.id || one.className])
        .filter(([box]) => box.width && Math.min(box.width, box.height) < arguments[0]).map(([, name]) => name)"""
    assert page.browser.execute_script(small, 24) == []
    with page.phone():
        inner = page.browser.execute_script(small, 43.5)
        assert [name for name in inner if name not in ("chip",)] == []  # chips are 34 high and reach further
