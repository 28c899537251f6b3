"""Servers for the page's tests, with a tiny network, or with none where it does not matter what is matched."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from normmatch import PRESETS, Matcher, NormMatch
from normmatch.app.guard import Limits
from normmatch.app.server import make_app
from normmatch.app.serving import Listening, Serving, listen
from normmatch.geometry import CropWithKeypoints, make_crop, place_keypoints
from tests.app.browser import Page


@pytest.fixture(scope="session")
def matcher() -> Matcher:
    torch.manual_seed(0)
    return Matcher(NormMatch(PRESETS["tiny"]).eval(), device="cpu")


def encoded(width: int, height: int, color: str = "teal", kind: str = "PNG") -> bytes:
    """A picture file."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), color).save(file, kind)
    return file.getvalue()


@pytest.fixture(scope="session")
def picture() -> bytes:
    return encoded(320, 240)


@pytest.fixture(scope="module")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser that the tests of a module share, with no page yet."""
    page = Page("", tmp_path_factory.mktemp("browser"))
    yield page
    page.browser.quit()


class Stub:
    """Stands for a Matcher: every point's partner is the last of the other side, after `work` was done."""

    backend = SimpleNamespace(image_size=96, min_score=0.3)

    def __init__(self, work: Callable[[], None] = lambda: None) -> None:
        self.work, self.matched, self.located = work, 0, 0
        self.references: list[Any] = []  # as `locate_many` was given them last
        self.given: Any = None  # its boxes and options

    def crop(self, image: np.ndarray, keypoints: Any, box: Any, name: str) -> CropWithKeypoints:
        return place_keypoints(keypoints, make_crop(image, box, self.backend.image_size, name))

    def match_crops(self, pairs: list[Any], **_: Any) -> list[dict[str, np.ndarray]]:
        self.work()
        self.matched += 1
        m, n = (len(view.keypoints) for view in pairs[0])
        found = {"matches0": np.full(m, n - 1), "matches1": np.full(n, m - 1), "similarity": np.ones((m, n))}
        return [{**found, "matching_scores0": np.ones(m), "matching_scores1": np.ones(n)}]

    def locate_many(self, references: list[Any], images: list[np.ndarray], boxes: Any, **given: Any) -> Iterator[Any]:
        """Every point at the same share of the picture; the second is uncertain, the fourth is absent."""
        self.work()
        self.located, self.references, self.given = self.located + 1, references, (boxes, given)
        shares = [np.asarray(points, float) / np.shape(image)[1::-1] for image, points, _ in references]
        size = np.array(images[0].shape[1::-1])
        k = np.arange(len(shares[0]))
        yield SimpleNamespace(
            keypoints=np.nanmean(shares, axis=0) * size,
            scores=np.where(k == 1, 0.6, 0.9),
            visible=np.where(k == 3, 0.1, 0.97),
            spread=np.full(len(k), 20.0),
            box=(0.0, 0.0, float(size[0]), float(size[1])),
        )


@contextmanager
def served(matcher: Any, limits: Limits | None = None, host: str = "127.0.0.1") -> Iterator[Listening]:
    """The page on a real socket."""
    listening = listen(host)
    with Serving(make_app(matcher), listening, limits):
        yield listening


@pytest.fixture(scope="module")
def page_server() -> Iterator[Listening]:
    """The page with the limits that everybody gets, and no network."""
    with served(Stub()) as listening:
        yield listening
