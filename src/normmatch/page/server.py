"""The web page's server: Gradio serves our own small page (`static/`) and the answers of `answers.py`.

Only the addresses listed here are answered. Everything else that a Gradio server offers, uploads that stay and files
by their path among them, is switched off by `Guard`.
"""

import logging
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normmatch.annotations.native import as_entry
from normmatch.errors import ConfigError, NormMatchError
from normmatch.extras import missing
from normmatch.matching.samples import Sample, find_samples
from normmatch.page import answers

if TYPE_CHECKING:
    import gradio

    from normmatch.matching.matcher import Matcher

STATIC = Path(__file__).parent / "static"
MAX_BODY = 2 * answers.MAX_FILE + 1_000_000  # bytes of any request
# What is answered: pages and questions, and files below two of them. Gradio asks itself for the last when it starts.
ADDRESSES = re.compile(r"/|/(samples|static)(/[\w.-]+)?|/(picture|points|match)|/gradio_api/startup-events")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class Guard:
    """ASGI middleware: refuse addresses that are not ours and bodies that are too large, before they are read."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        from fastapi.responses import JSONResponse

        status, sentence = refusal
        await JSONResponse({"error": sentence}, status_code=status)(scope, receive, send)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        if not ADDRESSES.fullmatch(scope["path"]):
            return 404, "There is nothing at this address."
        if scope["method"] in ("GET", "HEAD"):
            return None
        length = dict(scope["headers"]).get(b"content-length", b"")
        if not length.isdigit():
            return 411, "The upload does not say how long it is; expected a Content-Length."
        if int(length) > MAX_BODY:
            return 413, f"The upload has {int(length) / 1e6:.0f} MB; expected at most {MAX_BODY / 1e6:.0f} MB."
        return None


def make_server(matcher: "Matcher") -> "gradio.Server":
    """The server of the page, not started yet."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported: nothing is sent anywhere
    try:
        from gradio import Server
    except ImportError as error:  # also an old gradio
        raise missing("gradio") from error

    server = Server(title="NormMatch", openapi_url=None, docs_url=None, redoc_url=None)
    server.add_middleware(Guard)
    _add_pages(server)
    _add_samples(server)
    _add_answers(server, matcher)
    _add_refusals(server)
    return server


def _add_pages(server: "gradio.Server") -> None:
    """The page and its parts."""
    from fastapi.responses import FileResponse, JSONResponse, Response

    files = {path.name: path for path in sorted(STATIC.iterdir()) if path.is_file()}

    @server.get("/")
    def index() -> Response:
        return FileResponse(files["index.html"], headers=HEADERS)

    @server.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in files:
            return JSONResponse({"error": "There is no such file."}, status_code=404)
        return FileResponse(files[name], media_type=TYPES[files[name].suffix], headers=HEADERS)


def _add_samples(server: "gradio.Server") -> None:
    """The sample photographs and their keypoints."""
    from fastapi.responses import FileResponse, JSONResponse, Response

    samples = find_samples()

    @server.get("/samples")
    def list_samples() -> list[dict[str, Any]]:
        return [_describe_sample(number, sample) for number, sample in enumerate(samples)]

    @server.get("/samples/{number}")
    def sample_picture(number: int) -> Response:
        if not 0 <= number < len(samples):
            return JSONResponse({"error": "There is no such sample."}, status_code=404)
        return FileResponse(samples[number].path, headers=HEADERS)


def _add_answers(server: "gradio.Server", matcher: "Matcher") -> None:
    """What the page asks."""
    from fastapi import Form, UploadFile

    @server.post("/picture")
    def picture(file: UploadFile) -> dict[str, Any]:
        return answers.describe_picture(file.file.read(), file.filename or "")

    @server.post("/points")
    def points(file: UploadFile) -> dict[str, Any]:
        return answers.read_points_file(file.file.read(), file.filename or "")

    @server.post("/match")
    def match(picture0: UploadFile, picture1: UploadFile, request: str = Form()) -> dict[str, Any]:
        return answers.match_pictures(matcher, (picture0.file.read(), picture1.file.read()), request)


def _add_refusals(server: "gradio.Server") -> None:
    """One sentence for everything that goes wrong."""
    from fastapi import Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, Response
    from starlette.exceptions import HTTPException

    @server.exception_handler(NormMatchError)
    def refuse(request: Request, error: NormMatchError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=400)

    @server.exception_handler(RequestValidationError)
    def refuse_form(request: Request, error: RequestValidationError) -> Response:
        where = ", ".join(str(part["loc"][-1]) for part in error.errors())
        return JSONResponse({"error": f"The request lacks or misuses {where}."}, status_code=400)

    @server.exception_handler(HTTPException)
    def refuse_body(request: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, status_code=error.status_code)

    @server.exception_handler(Exception)
    def fail(request: Request, error: Exception) -> Response:
        logging.getLogger(__name__).error("%s failed", request.url.path, exc_info=error)
        return JSONResponse({"error": "The server failed at this; its log says why."}, status_code=500)


def check_address(host: str, port: int | None) -> None:
    """Refuse an address that nothing can listen at: before the network is loaded, not after it."""
    try:
        if port == 0:
            raise OSError  # the system would choose one, and not tell
        host = host.removeprefix("[").removesuffix("]")
        with socket.create_server((host, port or 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except (OSError, OverflowError, UnicodeError) as error:
        raise _no_address(host, port) from error


def launch(server: "gradio.Server", host: str, port: int | None, browser: bool = False) -> str:
    """Start the server in a thread of its own; the address that it listens at."""
    try:
        _, address, _ = server.launch(
            server_name=host,
            server_port=port,
            inbrowser=browser,
            prevent_thread_lock=True,
            quiet=True,
            ssr_mode=False,
            share=False,
            enable_monitoring=False,
        )
    except (OSError, OverflowError) as error:
        raise _no_address(host, port) from error
    return address


def _no_address(host: str, port: int | None) -> ConfigError:
    where = "the ports from 7860 on" if port is None else f"port {port}"
    return ConfigError(f"Nothing can listen at {host}, {where}; expected an address of this machine and a free port.")


def _describe_sample(number: int, sample: Sample) -> dict[str, Any]:
    entry = as_entry(sample.points)
    return {"title": sample.title, "url": f"samples/{number}", **entry, "image": sample.path.name}
