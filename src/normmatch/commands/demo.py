"""`normmatch samples` and `normmatch demo`: try the network on photographs, at once or on a web page."""

import contextlib
import os
import shutil
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from normmatch.extras import require

Title = Annotated[str, arg(metavar="PHOTOGRAPH")]
Out = Annotated[Path, arg(metavar="FILE")]

CACHE = 8  # pictures that the page's network remembers: people look at a few at a time


def samples(
    first: Positional[Title] = "cat",
    second: Positional[Title] = "raccoon",
    weights: str = "small",
    out: Out = Path("matches.png"),
    copy_to: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Match the keypoints of two photographs that come with this program, and draw them.

    Args:
        first: the first: cat, raccoon or astronaut
        second: the second
        weights: a bundled name, a weights file, or a folder that training wrote
        out: the picture of the matches
        copy_to: a folder for copies of the two photographs, with their keypoints, to try the other commands on;
            a file that differs is never replaced there
        overwrite: replace a picture that NormMatch did not write, too
    """
    from normmatch.commands.match import print_matches
    from normmatch.matching.sample_pair import match_samples
    from normmatch.matching.samples import copies, copy_samples, get_sample
    from normmatch.outputs import check_outputs
    from normmatch.weights import find_weights

    chosen = [get_sample(first), get_sample(second)]
    there = copies(chosen, copy_to) if copy_to is not None else {}
    new, old = ([path for path in there if path.exists() == known] for known in (False, True))
    read = (*(sample.path for sample in chosen), find_weights(weights), *old)
    check_outputs({"--out": out, "--copy-to": new}, read, overwrite)
    points0, points1, result, seconds = match_samples(first, second, weights, out)
    if copy_to is not None:
        copy_samples(chosen, copy_to)
    print_matches(points0, points1, result)
    print(f"they were matched in {seconds:.1f} s")
    print(f"the picture is {out}")
    if copy_to is not None:
        print(f"the photographs and their keypoints are in {copy_to}")
    print(f"for pictures and points of your own open the web page: {_program()} demo")


def demo(
    weights: str = "small",
    host: str = "127.0.0.1",
    port: int | None = None,
    device: str = "auto",
    browser: bool = False,
) -> None:
    """Open a web page on which you mark points on two pictures and match them.

    Pictures are not stored, and nothing is downloaded or sent anywhere else.

    Args:
        weights: a bundled name, a weights file, or a folder that training wrote
        host: the address to listen at; 127.0.0.1 is for this machine only, 0.0.0.0 for all who are given its address
        port: the port to listen at; the first free one from 7860 on if not given
        device: auto, cpu, cuda or mps
        browser: open the page in the browser
    """
    require("starlette", "uvicorn")
    from normmatch.app.server import make_app
    from normmatch.app.serving import Serving, listen, return_memory
    from normmatch.matching.matcher import Matcher

    return_memory()
    listening = listen(host, port)  # before the network is loaded
    with Serving(make_app(Matcher(weights, device=device, cache=CACHE)), listening):
        print(f"the page is at {listening.address} until you press Ctrl+C", flush=True)
        if listening.door.token:
            print("everybody who can reach this machine and has this whole address can use it", flush=True)
        if browser:
            webbrowser.open(listening.address)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


def _program() -> str:
    """What to type to run this program again."""
    if sys.argv[0].endswith("__main__.py"):
        return "python -m normmatch"
    return "normmatch" if shutil.which("normmatch") else os.path.relpath(sys.argv[0])
