"""The page from another machine, and what a foreign page gets of it, in a real browser."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.app.browser import NEEDED, Page
from tests.app.client import parcel, question
from tests.app.conftest import Stub, encoded, served

pytestmark = NEEDED


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with served(Stub()) as listening:
        page = Page(listening.address, tmp_path_factory.mktemp("browser"))
        yield page
        page.browser.quit()


def test_the_whole_address_from_another_machine(page: Page) -> None:
    """Its pages find each other below the secret part, and their questions are let in by their origin alone."""
    with served(Stub(), host="0.0.0.0") as listening:
        page.open(listening.address)
        page.wait(lambda: page.text("#count") == "1 uncertain")  # points were looked for, and found
        page.browser.get(listening.address.replace(listening.door.token, ""))
        assert "The address lacks its secret part" in page.one("body").text


ATTACK = """
const [target, body, done] = arguments;
const tried = [];
const ask = (name, options) => fetch(`${target}match`, { method: "POST", body, ...options })
  .then((answer) => tried.push(`${name}: ${answer.type}`), () => tried.push(`${name}: refused`));
const load = (kind, address) => new Promise((next) => {
  const made = Object.assign(document.createElement(kind), { src: address });
  made.onload = () => { tried.push(`${kind}: ${made.naturalWidth ?? "loaded"}`); next(); };
  made.onerror = () => { tried.push(`${kind}: refused`); next(); };
  document.body.append(made);
});
(async () => {
  await ask("plain", {});
  await ask("as the page does", { headers: { "Content-Type": "application/octet-stream" } });
  await ask("unseen", { mode: "no-cors", headers: { "Content-Type": "text/plain" } });
  await load("img", `${target}samples/0`);
  await load("script", `${target}static/pair.js`);
  await fetch(`${target}samples`).then(() => tried.push("samples: read"), () => tried.push("samples: refused"));
  const frame = Object.assign(document.createElement("iframe"), { src: target });
  document.body.append(frame);
  await new Promise((next) => { frame.onload = next; setTimeout(next, 3000); });
  let inside = "closed";
  try { inside = frame.contentDocument ? "open" : "closed"; } catch {}
  tried.push(`frame: ${inside}`);
  done(tried);
})();
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody is told."""


def test_a_foreign_page_gets_nothing(page: Page, tmp_path: Path) -> None:
    """Another server of this machine, whose page tries what a page can."""
    (tmp_path / "index.html").write_text("<!doctype html><title>evil</title><body>")
    handler = functools.partial(Quiet, directory=tmp_path)
    stub = Stub()
    with served(stub) as listening, ThreadingHTTPServer(("127.0.0.1", 0), handler) as evil:
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        page.browser.get(f"http://localhost:{evil.server_port}/")
        body = parcel(question([[1, 1]], [[1, 1]]), encoded(32, 24), encoded(32, 24)).decode("latin-1")
        tried = page.browser.execute_async_script(ATTACK, listening.address, body)
        evil.shutdown()
    assert stub.matched == 0
    assert tried == [
        "plain: refused", "as the page does: refused", "unseen: refused", "img: refused", "script: refused",
        "samples: refused", "frame: closed",
    ]  # fmt: skip
