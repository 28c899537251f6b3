"""The pair page's addresses: the sample photographs, and the answers of `answers.py`."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from normmatch.annotations.native import as_entry
from normmatch.app import answers, pictures
from normmatch.app.pages import TYPES, asked, fixed, make_pages
from normmatch.app.parcel import unpack
from normmatch.matching.samples import Sample, find_samples

if TYPE_CHECKING:
    from normmatch.matching.matcher import Matcher

WORKERS = 2  # pictures that are decoded or matched at one time; this bounds the memory that they take


def make_app(matcher: "Matcher") -> Starlette:
    """The page's application."""
    pool = ThreadPoolExecutor(WORKERS, "normmatch-page")

    def describe(body: bytes) -> dict[str, Any]:
        _, (file,) = unpack(body, 1)
        return pictures.describe_picture(file)

    def read(body: bytes) -> dict[str, Any]:
        _, (file,) = unpack(body, 1)
        return answers.read_points_file(file)

    def match(body: bytes) -> dict[str, Any]:
        asked, files = unpack(body, 2)
        return answers.match_pictures(matcher, files, asked)

    def locate(body: bytes) -> dict[str, Any]:
        asked, files = unpack(body, None)
        return answers.locate_picture(matcher, files, asked)

    samples = find_samples()
    listed = json.dumps([_describe_sample(number, sample) for number, sample in enumerate(samples)]).encode()
    routes = [
        asked("/picture", describe, pool),
        asked("/points", read, pool),
        asked("/match", match, pool),
        asked("/locate", locate, pool),
        fixed("/samples", (listed, "application/json")),
        *(fixed(f"/samples/{k}", (s.path.read_bytes(), TYPES[s.path.suffix])) for k, s in enumerate(samples)),
    ]
    return make_pages(routes, "pair.html", lambda: pool.shutdown(wait=False, cancel_futures=True))


def _describe_sample(number: int, sample: Sample) -> dict[str, Any]:
    entry = as_entry(sample.points)
    return {"title": sample.title, "url": f"samples/{number}", **entry, "image": sample.path.name}
