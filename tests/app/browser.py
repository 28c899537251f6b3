"""A real browser with a page of ours in it, as tests use it."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    "--disable-sync --no-first-run --disable-dev-shm-usage --hide-scrollbars"
)
LAPTOP, PHONE = (1440, 900), (390, 844)


class Page:
    """A browser with a page of ours in it."""

    def __init__(self, address: str, folder: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in [*FLAGS.split(), f"--user-data-dir={folder / 'profile'}"]:
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.browser = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.folder = folder
        self.size(*LAPTOP)
        if address:
            self.open(address)

    def open(self, address: str) -> None:
        self.browser.get(address)
        self.wait(lambda: self.browser.execute_script("return document.body?.dataset.ready"))

    def size(self, width: int, height: int, phone: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": phone})

    @contextmanager
    def phone(self) -> Iterator[None]:
        """The page on a phone: its size, and a finger in place of a mouse."""
        self.size(*PHONE, phone=True)
        try:
            time.sleep(0.4)  # the layout, what watches its size, and what that draws
            self.settle()
            yield
        finally:
            self.size(*LAPTOP)

    def settle(self) -> None:
        """Wait until every change is drawn: the page draws once a frame, not at once."""
        self.browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")

    def ask(self, module: str, expression: str) -> Any:
        """What an expression is in the page; `m` is one of its modules."""
        script = f"""const done = arguments[0];
            import(new URL("static/{module}", location)).then((m) => JSON.stringify(({expression}) ?? null))
              .then(done, (error) => done(`"failed: ${{error}}"`));"""
        self.settle()
        return json.loads(self.browser.execute_async_script(script))

    def one(self, selector: str) -> Any:
        self.settle()
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return " ".join(self.texts(selector)).replace("\u202f", " ").strip()

    def texts(self, selector: str) -> list[str]:
        """The text of each such element that is shown, of one moment: rows are made anew when the page draws."""
        self.settle()
        script = """const shown = [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility());
            return shown.map((one) => one.textContent);"""
        return self.browser.execute_script(script, selector)

    def shown(self, selector: str) -> bool:
        return bool(self.texts(selector))

    def click(self, selector: str) -> None:
        self.one(selector).click()

    def wait(self, condition: Callable[[], Any], seconds: float = 10) -> Any:
        return WebDriverWait(self.browser, seconds, poll_frequency=0.03).until(lambda _: condition())

    def rect(self, selector: str) -> dict[str, float]:
        """Where an element is on the screen."""
        found = self.browser.execute_script(
            "return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector
        )
        return dict(found)

    def actions(self) -> ActionChains:
        return ActionChains(self.browser, duration=20)

    def over(self, x: float, y: float) -> ActionChains:
        """The pointer at a place of the screen, for what follows."""
        actions = self.actions()
        actions.w3c_actions.pointer_action.move_to_location(round(x), round(y))
        return actions

    def click_at(self, x: float, y: float) -> None:
        self.over(x, y).click().perform()

    def drag(self, x: float, y: float, dx: float, dy: float) -> None:
        self.over(x, y).click_and_hold().move_by_offset(round(dx / 2), round(dy / 2)).move_by_offset(
            round(dx - round(dx / 2)), round(dy - round(dy / 2))
        ).release().perform()

    def keys(self, *keys: str) -> None:
        """Keys one after the other; "Shift+z" is held."""
        for key in keys:
            *held, last = key.split("+") if len(key) > 1 and "+" in key else [key]
            actions = self.actions()
            for one in held:
                actions.key_down(KEYS[one])
            actions.send_keys(KEYS.get(last, last))
            for one in held:
                actions.key_up(KEYS[one])
            actions.perform()
        self.settle()

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """A finger, or two: touchStart, touchMove, or touchEnd without points."""
        places = [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(points)]
        self.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    def tap(self, x: float, y: float) -> None:
        self.touch("touchStart", (x, y))
        self.touch("touchEnd")
        self.settle()

    def wheel(self, x: float, y: float, by: float, modifiers: int = 0) -> None:
        event = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by, "modifiers": modifiers}
        self.browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        self.settle()

    def download(self, item: str, name: str) -> Path:
        """The file that an item of the menu *Export* saves."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        self.click("#exportButton")
        self.click(f"#exportMenu {item}")
        self.wait(path.is_file)
        return path

    def complaints(self) -> list[str]:
        """What the browser's console complains of, but for refusals, which the page shows itself."""
        known = ("status of 4", "status of 5", "net::ERR_")
        messages = [entry["message"] for entry in self.browser.get_log("browser")]
        return [message for message in messages if not any(one in message for one in known)]


KEYS = {
    "Shift": "\ue008", "Control": "\ue009", "Alt": "\ue00a", "Enter": "\ue007", "Space": " ", "Escape": "\ue00c",
    "Delete": "\ue017", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Down": "\ue015", "Tab": "\ue004",
}  # fmt: skip
