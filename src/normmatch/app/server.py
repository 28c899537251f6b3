"""The web page's addresses: the page (`static/`), the sample photographs, and the answers of `answers.py`.

They are an ASGI application without any guard of its own: `serving.py` puts `guard.py` before it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from normmatch.annotations.native import as_entry
from normmatch.app import answers, pictures
from normmatch.app.guard import error_body
from normmatch.app.parcel import unpack
from normmatch.errors import NormMatchError
from normmatch.matching.samples import Sample, find_samples

if TYPE_CHECKING:
    from normmatch.matching.matcher import Matcher

STATIC = Path(__file__).parent / "static"
WORKERS = 2  # pictures that are decoded or matched at one time; this bounds the memory that they take
TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml", ".jpg": "image/jpeg", ".png": "image/png",
}  # fmt: skip
FRESH = {"Cache-Control": "no-cache"}

Answer = Callable[[bytes], dict[str, Any]]


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

    asked = {"/picture": describe, "/points": read, "/match": match}
    routes = [Route(path, _asked(answer, pool), methods=["POST"]) for path, answer in asked.items()]
    app = Starlette(routes=[*_files(), *routes], exception_handlers=_refusals(), lifespan=_closing(pool))
    app.router.redirect_slashes = False
    return app


def _asked(answer: Answer, pool: ThreadPoolExecutor) -> Callable[[Request], Any]:
    """An address that answers a body with JSON, in a thread; who waits for one and goes away is forgotten."""

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        return _json(await asyncio.get_running_loop().run_in_executor(pool, answer, body))

    return endpoint


def _files() -> list[Route]:
    """Addresses of what does not change: all of it is read once, so that no request ever becomes a path."""
    samples = find_samples()
    listed = json.dumps([_describe_sample(number, sample) for number, sample in enumerate(samples)]).encode()
    files = {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in STATIC.iterdir() if path.suffix in TYPES}
    contents = {
        "/": files["index.html"],
        "/samples": (listed, "application/json"),
        **{f"/static/{name}": content for name, content in files.items()},
        **{f"/samples/{k}": (s.path.read_bytes(), TYPES[s.path.suffix]) for k, s in enumerate(samples)},
    }
    return [Route(path, _file(*content)) for path, content in contents.items()]


def _file(content: bytes, kind: str) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return Response(content, media_type=kind, headers=FRESH)

    return endpoint


def _describe_sample(number: int, sample: Sample) -> dict[str, Any]:
    entry = as_entry(sample.points)
    return {"title": sample.title, "url": f"samples/{number}", **entry, "image": sample.path.name}


def _refusals() -> dict[Any, Callable[[Request, Any], Any]]:
    """One sentence for everything that goes wrong."""

    async def refuse(request: Request, error: NormMatchError) -> Response:
        return _error(400, str(error))

    async def refuse_address(request: Request, error: HTTPException) -> Response:
        said = {404: "There is nothing at this address.", 405: f"{request.method} is not answered at this address."}
        return _error(error.status_code, said.get(error.status_code, str(error.detail)), error.headers)

    async def fail(request: Request, error: Exception) -> Response:  # the guard writes the log
        return _error(500, "The server failed at this; its log says why.")

    return {NormMatchError: refuse, HTTPException: refuse_address, Exception: fail}


def _error(status: int, sentence: str, headers: Any = None) -> Response:
    return Response(error_body(sentence), status, headers, "application/json")


def _json(content: Any) -> Response:
    return Response(json.dumps(content, allow_nan=False), media_type="application/json")


def _closing(pool: ThreadPoolExecutor) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        pool.shutdown(wait=False, cancel_futures=True)

    return lifespan
