"""`normmatch samples` and `normmatch demo`: try the network on photographs, at once or on a web page."""

import contextlib
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

Title = Annotated[str, arg(metavar="PHOTOGRAPH")]
Out = Annotated[Path, arg(metavar="FILE")]


def samples(
    first: Positional[Title] = "cheetah",
    second: Positional[Title] = "lion",
    weights: str = "small",
    out: Out = Path("matches.png"),
    copy_to: Path | None = None,
) -> None:
    """Match the keypoints of two photographs that come with this program, and draw them.

    Args:
        first: the first: cheetah, lion, cub, running cheetah, cat or motorcycle
        second: the second
        weights: a bundled name, a weights file, or a folder that training wrote
        out: the picture of the matches
        copy_to: a folder for copies of the two photographs, with their keypoints, to try the other commands on
    """
    from normmatch.commands.match import print_matches
    from normmatch.matching.sample_pair import match_samples
    from normmatch.matching.samples import copy_samples, get_sample

    points0, points1, result, seconds = match_samples(first, second, weights, out)
    print_matches(points0, points1, result)
    print(f"they were matched in {seconds:.1f} s")
    print(f"the picture is {out}")
    if copy_to is not None:
        copy_samples([get_sample(first), get_sample(second)], copy_to)
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
        host: the address to listen at; 127.0.0.1 is for this machine only, 0.0.0.0 for everybody in the network
        port: the port to listen at; the first free one from 7860 on if not given
        device: auto, cpu, cuda or mps
        browser: open the page in the browser
    """
    from normmatch.matching.matcher import Matcher
    from normmatch.page.server import check_address, launch, make_server

    check_address(host, port)
    server = make_server(Matcher(weights, device=device))
    address = launch(server, host, port, browser=browser)
    print(f"the page is at {address} until you press Ctrl+C", flush=True)
    if host not in ("127.0.0.1", "localhost", "::1"):
        print("everybody who can reach this machine can use it", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _program() -> str:
    """What to type to run this program again."""
    if sys.argv[0].endswith("__main__.py"):
        return "python -m normmatch"
    return "normmatch" if shutil.which("normmatch") else os.path.relpath(sys.argv[0])
