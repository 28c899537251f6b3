"""What all pages of ours share: static files, answers as JSON in threads, and one sentence for what goes wrong.

Nothing here guards: `serving.py` puts `guard.py` before every application.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from normmatch.app.guard import error_body
from normmatch.errors import NormMatchError

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png",
}  # fmt: skip
FRESH = {"Cache-Control": "no-cache"}

Endpoint = Callable[[Request], Any]


def make_pages(
    routes: list[Route], page: str, closing: Callable[[], None], more: Mapping[Any, Any] | None = None
) -> Any:
    """An application of these addresses, the static files, and a page that is served at /."""
    files = {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in STATIC.iterdir() if path.suffix in TYPES}
    static = {
        "/": files[page],
        **{f"/static/{name}": content for name, content in files.items()},
    }

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        closing()

    handlers = {**_refusals(), **(more or {})}
    app = Starlette(
        routes=[*map(fixed, static, static.values()), *routes], exception_handlers=handlers, lifespan=lifespan
    )
    app.router.redirect_slashes = False
    return app


def fixed(path: str, content: tuple[bytes, str]) -> Route:
    """An address of what does not change: bytes and their type, read once, so that no request ever becomes a path."""

    async def endpoint(request: Request) -> Response:
        return Response(content[0], media_type=content[1], headers=FRESH)

    return Route(path, endpoint)


def asked(path: str, answer: Callable[[bytes], Any], pool: Executor) -> Route:
    """An address that answers a body with JSON, in a thread; who waits for one and goes away is forgotten."""

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        return as_json(await asyncio.get_running_loop().run_in_executor(pool, answer, body))

    return Route(path, endpoint, methods=["POST"])


def got(path: str, answer: Callable[[Request], Response], pool: Executor) -> Route:
    """An address that is read, its answer made in a thread."""

    async def endpoint(request: Request) -> Response:
        return await asyncio.get_running_loop().run_in_executor(pool, answer, request)

    return Route(path, endpoint)


def as_json(content: Any) -> Response:
    return Response(json.dumps(content, allow_nan=False), media_type="application/json")


def sentence(status: int, text: str, headers: Any = None) -> Response:
    """An error."""
    return Response(error_body(text), status, headers, "application/json")


def _refusals() -> dict[Any, Callable[[Request, Any], Any]]:
    """One sentence for everything that goes wrong."""

    async def refuse(request: Request, error: NormMatchError) -> Response:
        return sentence(400, str(error))

    async def refuse_address(request: Request, error: HTTPException) -> Response:
        said = {404: "There is nothing at this address.", 405: f"{request.method} is not answered at this address."}
        return sentence(error.status_code, said.get(error.status_code, str(error.detail)), error.headers)

    async def fail(request: Request, error: Exception) -> Response:  # the guard writes the log
        return sentence(500, "The server failed at this; its log says why.")

    return {NormMatchError: refuse, HTTPException: refuse_address, Exception: fail}
