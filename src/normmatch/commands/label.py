"""`normmatch label`: set landmarks on a folder of photographs, with the machine's proposals."""

import contextlib
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from normmatch.errors import InputError
from normmatch.extras import require

CACHE = 8  # pictures that the network remembers: the photographs' maps are kept elsewhere


def label(
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")],
    *,
    project: Annotated[Path | None, arg(metavar="FILE")] = None,
    start: Annotated[Path | None, arg(name="from", metavar="FILE")] = None,
    landmarks: str = "",
    weights: str = "small",
    host: str = "127.0.0.1",
    port: int | None = None,
    device: str = "auto",
    browser: bool = True,
) -> None:
    """Open a web page on which you set landmarks on a folder of photographs.

    Set them on one photograph; they are proposed on all others, and you correct what is uncertain. Everything is kept
    in normmatch.json beside the photographs, at once. The photographs are not changed, and nothing is sent anywhere.

    Args:
        folder: the photographs
        project: the project's file; normmatch.json in the folder if not given
        start: a keypoints file of any format to begin with; a landmark that it lacks in a photograph is absent there
        landmarks: names to begin with, separated by commas; they can be changed on the page
        weights: a bundled name, a weights file, or a folder that training wrote
        host: the address to listen at; 127.0.0.1 is for this machine only, 0.0.0.0 for all who are given its address
        port: the port to listen at; the first free one from 7860 on if not given
        device: auto, cpu, cuda or mps
        browser: open the page in the browser
    """
    require("starlette", "uvicorn")
    from normmatch.app.labelling import Labelling, make_label_app
    from normmatch.app.opening import PROJECT, open_folder
    from normmatch.app.proposing import Proposer
    from normmatch.app.serving import Serving, listen, return_memory
    from normmatch.io import locked
    from normmatch.matching.matcher import Matcher

    names = [name.strip() for name in landmarks.split(",") if name.strip()]
    path = project or folder / PROJECT
    with contextlib.ExitStack() as held:
        if folder.is_dir():
            try:
                held.enter_context(locked(path.with_name(f".{path.name}.lock")))
            except BlockingIOError:
                raise InputError(f"{path} is open in another NormMatch; go on there, or end it first.") from None
        store, photographs = open_folder(folder, project, start, names)
        return_memory()
        listening = listen(host, port)
        proposer = Proposer(store, photographs, lambda: Matcher(weights, device=device, cache=CACHE).backend)
        store.save()
        held.enter_context(Serving(make_label_app(Labelling(store, photographs, proposer)), listening))
        count = len(store.project.photographs)
        print(f"{count:,} photographs; the project is {path}")
        print(f"the page is at {listening.address} until you press Ctrl+C", flush=True)
        if listening.door.token:
            print("everybody who can reach this machine and has this whole address can use it", flush=True)
        if browser:
            webbrowser.open(listening.address)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
