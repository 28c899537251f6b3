"""A real browser with the page in it, as tests use it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""
DRIVER = shutil.which("chromedriver") or ""
NEEDED = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the PATH")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run --disable-dev-shm-usage --window-size=1280,900"
)


class Page:
    """A browser with the page in it."""

    def __init__(self, address: str, folder: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in [*FLAGS.split(), f"--user-data-dir={folder / 'profile'}"]:
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.browser = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.folder = folder
        self.open(address)

    def open(self, address: str) -> None:
        self.browser.get(address)
        self.wait(lambda: self.one("body").get_attribute("data-ready"))

    def settle(self) -> None:
        """Wait until every change is drawn: the page draws once a frame, not at once."""
        self.browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")

    def one(self, selector: str) -> Any:
        self.settle()
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The text of each such element, of one moment: links and rows are made anew whenever the page draws."""
        self.settle()
        script = "return Array.from(document.querySelectorAll(arguments[0]), (found) => found.textContent)"
        return self.browser.execute_script(script, selector)

    def wait(self, condition: Callable[[], Any]) -> Any:
        return WebDriverWait(self.browser, 60, poll_frequency=0.05).until(lambda _: condition())

    def side(self, side: int, selector: str) -> Any:
        return self.one(f".side[data-side='{side}'] {selector}")

    def rect(self, selector: str, index: int = 0) -> dict[str, float]:
        """The middle and size of an element on the screen.

        The overlay is drawn anew at every change, so its elements cannot be held.
        """
        script = """const [selector, index] = arguments;
            const found = document.querySelectorAll(selector)[index]?.getBoundingClientRect();
            const {x, y, width, height} = found ?? {};
            return found && {x: x + width / 2, y: y + height / 2, width, height};"""
        self.settle()
        found = self.browser.execute_script(script, selector, index)
        assert found, f"there is no {selector} number {index}"
        return found

    def count(self, side: int) -> int:
        """How many points a side has."""
        return len(self.texts(f"#overlay .point[data-side='{side}']"))

    def over(self, selector: str, index: int = 0) -> ActionChains:
        """The pointer in the middle of an element, for what follows."""
        found = self.rect(selector, index)
        actions = self.actions()
        actions.w3c_actions.pointer_action.move_to_location(round(found["x"]), round(found["y"]))
        return actions

    def over_point(self, side: int, index: int) -> ActionChains:
        return self.over(f"#overlay .point[data-side='{side}'] .dot", index)

    def actions(self) -> ActionChains:
        return ActionChains(self.browser, duration=20)

    def click_at(self, side: int, dx: int, dy: int) -> None:
        """Click so many pixels of the screen from the middle of a picture."""
        self.actions().move_to_element_with_offset(self.side(side, ".frame"), dx, dy).click().perform()

    def choose_sample(self, side: int, title: str, size: str) -> None:
        self.side(side, ".samples summary").click()
        self.side(side, f"[data-sample='{title}']").click()
        self.wait(lambda: size in self.side(side, ".note").text)

    def match(self) -> None:
        self.one("#match").click()
        self.wait(lambda: self.one("#results").is_displayed())

    def slide(self, share: float) -> None:
        slider = self.one("#threshold")
        dx = round((share - 0.5) * (slider.size["width"] - 20))
        self.actions().move_to_element_with_offset(slider, dx, 0).click().perform()

    def download(self, kind: str) -> Path:
        self.one(f"#download{kind}").click()
        path = self.folder / f"matches.{kind.lower()}"
        self.wait(path.is_file)
        return path

    def complaints(self) -> list[str]:
        """What the browser's console complains of, but for refusals, which the page shows itself."""
        return [entry["message"] for entry in self.browser.get_log("browser") if "status of 4" not in entry["message"]]
