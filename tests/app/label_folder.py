"""A folder of photographs with a label server, and a machine whose proposals are known: for tests of the page."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from starlette.responses import Response

from normmatch.annotations.project import Photograph, Point, Project
from normmatch.app.labelling import Labelling, make_label_app
from normmatch.app.opening import open_folder
from normmatch.app.serving import Serving, listen
from normmatch.app.store import Store, counts_of
from tests.app.browser import Page

NAMES = ("Head", "Left eye", "Right eye", "Left claw", "Right claw", "Tail")
PLACES = ((300, 60), (250, 110), (350, 110), (180, 260), (420, 260), (300, 350))  # of 600 x 400 pixels
SKELETON = [["Head", "Left eye"], ["Head", "Right eye"], ["Left eye", "Tail"]]
WIDTH, HEIGHT = 600, 400
LEAST = (0.95, 0.41, 0.55, 0.62, 0.71, 0.79, 0.9, 0.96)  # certainty of *Left claw*, by photograph
FILES = tuple(f"beetle_{number:03d}.jpg" for number in range(1, len(LEAST) + 1))


def truth(number: int) -> dict[str, dict[str, Any]]:
    """Where the landmarks of a photograph are; all lie a little elsewhere in each."""
    shift = np.random.default_rng(number).uniform(-12, 12, (len(NAMES), 2)) + np.array((3 * number, 2 * number))
    return {
        name: {"x": round(x + float(dx), 1), "y": round(y + float(dy), 1), "from": "person"}
        for name, (x, y), (dx, dy) in zip(NAMES, PLACES, shift, strict=True)
    }


@dataclass
class Machine:
    """What is proposed: the truth moved by 6 pixels; *Right claw* of the third photograph is absent."""

    gate: threading.Event = field(default_factory=threading.Event)  # each photograph waits for it
    better: float = 0.0  # is added to the certainty
    moved: float = 6.0

    def __post_init__(self) -> None:
        self.gate.set()

    def points(self, file: str) -> dict[str, Point]:
        number = FILES.index(file)
        found = {}
        for name, at in truth(number).items():
            score = min(LEAST[number] + self.better, 0.97) if name == "Left claw" else 0.9
            gone = (number, name) == (2, "Right claw")
            place = (at["x"] + self.moved, at["y"])
            found[name] = Point("proposed", place, gone, 0.03 if gone else score, 0.21 if gone else 0.97, 20.0)
        return found


class Proposer:
    """Stands for the proposer: what is asked for is done one photograph after the other, as the machine says."""

    engine: ClassVar = {"ready": True, "error": None}

    def __init__(self, store: Store, machine: Machine) -> None:
        self.store, self.machine = store, machine
        self.job: Any = None
        self.last_job: Any = None
        self.number = 0
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def ask(self, kind: str, **_: Any) -> None:
        self._stopped.clear()
        if kind != "renew":
            self.job = {"kind": kind, "done": 0, "total": 0}
        self._pool.submit(self._do, kind)

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def alike(self, files: Any) -> dict[str, list[str]]:
        return {}

    def _do(self, kind: str) -> None:
        photographs = self.store.project.photographs.values()
        files = [one.file for one in photographs if not one.reviewed and (kind == "propose" or one.points)]
        self.job = {"kind": kind, "done": 0, "total": len(files) if kind == "propose" else 0}
        for file in files:
            self.machine.gate.wait(20)
            if self._stopped.is_set():
                break
            known = set(self.store.project.names)
            found = {name: point for name, point in self.machine.points(file).items() if name in known}
            self.store.propose({file: found})
            self.job["done"] += 1
        self.number += 1
        ended = {"number": self.number, "stopped": self._stopped.is_set(), "error": None}
        uncertain = counts_of(self.store.project)["uncertain"]
        if kind == "improve":
            ended |= {"before": 0.84, "after": 0.91, "kept": True}
        self.last_job, self.job = {**self.job, **ended, "uncertain": uncertain}, None


@dataclass
class Labelled:
    """A page in a browser with a project behind it."""

    page: Page
    labelling: Labelling
    serving: Serving
    machine: Machine
    folder: Path
    failing: set[str]  # addresses that answer with a fault

    @property
    def project(self) -> Project:
        return self.labelling.store.project

    def photo(self, number: int) -> Photograph:
        return self.project.photographs[FILES[number]]

    def on_disk(self) -> Any:
        return json.loads((self.folder / "normmatch.json").read_text(encoding="utf-8"))

    @property
    def current(self) -> int:
        return FILES.index(self.page.ask("project.js", "m.current().file"))

    def open(self, number: int) -> None:
        wanted = f"m.state.photographs.find((one) => one.file === {json.dumps(FILES[number])})"
        self.page.ask("project.js", f"import(new URL('static/going.js', location)).then((g) => g.open({wanted}))")
        self.page.wait(lambda: self.current == number)

    def mark(self, name: str) -> Any:
        return self.page.ask("project.js", f"m.current().points[{json.dumps(name)}]")

    def to_screen(self, x: float, y: float) -> tuple[float, float]:
        frame = self.page.rect("#frame")
        at = self.page.ask("stage.js", f"m.picture.toScreen({{x: {x}, y: {y}}})")
        return frame["x"] + at["x"], frame["y"] + at["y"]

    def place(self, name: str) -> tuple[float, float]:
        """Where a landmark is on the screen."""
        mark = self.mark(name)
        return self.to_screen(mark["x"], mark["y"])

    def scale(self) -> float:
        return float(self.page.ask("stage.js", "m.picture.view.scale"))

    def painted(self) -> dict[str, Any]:
        """What is painted over the photograph: its words, the dashed circles' radii, the thin lines, the colours."""
        return dict(self.page.browser.execute_async_script(PAINTED))

    def saved(self) -> None:
        self.page.wait(lambda: self.page.text("#saved") == "Saved")

    def edit_elsewhere(self, number: int, **change: Any) -> None:
        """Another window saves."""
        edits = [{"id": f"e-{time.monotonic()}", "photographs": {FILES[number]: change}}]
        self.labelling.store.edit("w-other", self.project.revision, edits)


# The next page may have the same port; who is at no page of ours has no memory.
FORGET = "try { localStorage.clear(); sessionStorage.clear(); } catch {}"
PAINTED = """
const done = arguments[0];
import(new URL("static/stage.js", location)).then(({ picture }) => {
  const context = picture.layers[1].getContext("2d");
  const seen = { words: [], circles: [], lines: [], colors: [], rings: 0 };
  let arc = 0, path = 0;
  const spy = {
    fillText: (text) => seen.words.push(text),
    beginPath: () => { arc = path = 0; }, arc: (x, y, radius) => { arc = radius; }, lineTo: () => { path += 1; },
    stroke() {
      const dash = context.getLineDash().length;
      seen.colors.push(context.strokeStyle);
      if (arc && dash) seen.circles.push(arc);
      if (path === 1 && context.lineWidth === 1.25) seen.lines.push(dash ? "dashed" : "whole");
      if (arc && !dash && context.lineWidth >= 2 && context.lineWidth < 3) seen.rings += 1;
    },
  };
  const plain = {};
  for (const [name, run] of Object.entries(spy)) {
    plain[name] = context[name];
    context[name] = (...given) => { run(...given); return plain[name].apply(context, given); };
  }
  picture.drawMarks();
  for (const name of Object.keys(spy)) delete context[name];
  done(seen);
});
"""


def make_folder(folder: Path) -> None:
    """Small photographs with a dark spot at each landmark."""
    folder.mkdir()
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    for number, file in enumerate(FILES):
        array = np.random.default_rng(number).integers(150, 190, (HEIGHT, WIDTH, 3)).astype(np.uint8)
        for at in truth(number).values():
            array[(x - at["x"]) ** 2 + (y - at["y"]) ** 2 < 36] = (40, 90, 50)
        Image.fromarray(array).save(folder / file, quality=80)


def begin(labelling: Labelling, machine: Machine, reviewed: int, proposed: bool = True) -> None:
    """So many photographs are reviewed, the others have proposals."""
    store = labelling.store
    pairs = {"Left eye": "Right eye", "Left claw": "Right claw"}
    pairs |= {b: a for a, b in pairs.items()}
    landmarks = [{"name": name, "color": None, "pair": pairs.get(name)} for name in NAMES]
    done = {FILES[k]: {"points": truth(k), "reviewed": True} for k in range(reviewed)}
    edits = [{"id": "e-begin", "landmarks": landmarks, "skeleton": SKELETON, "photographs": done}]
    store.edit("w-before", store.project.revision, edits)
    if proposed:
        store.propose({file: machine.points(file) for file in FILES[reviewed:]})
    store.save()


@contextmanager
def labelled(page: Page, folder: Path, reviewed: int = 1, proposed: bool = True) -> Iterator[Labelled]:
    """The page on a folder, with so many photographs reviewed; none: a first visit."""
    machine = Machine()
    if not folder.exists():
        make_folder(folder)
    store, photographs = open_folder(folder)
    labelling = Labelling(store, photographs, Proposer(store, machine))  # type: ignore[arg-type]
    if reviewed:
        begin(labelling, machine, reviewed, proposed)
    failing: set[str] = set()
    app = make_label_app(labelling)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") in failing:
            await Response(b'{"error": "Out of order."}', 500)(scope, receive, send)
        else:
            await app(scope, receive, send)

    with Serving(answer, listen("127.0.0.1")) as serving:
        page.open(serving.address)
        yield Labelled(page, labelling, serving, machine, folder, failing)
        page.browser.execute_script(FORGET)
        page.browser.get("about:blank")  # what it would still send goes before the server does
        machine.gate.set()
