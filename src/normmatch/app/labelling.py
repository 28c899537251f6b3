"""The label page's addresses: the project, its edits, what the machine did, and pictures."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from normmatch.annotations.project import Json, Project
from normmatch.app import exports
from normmatch.app.answers import check_points_file
from normmatch.app.opening import matched, with_annotations
from normmatch.app.pages import as_json, asked, got, make_pages, sentence
from normmatch.app.parcel import unpack
from normmatch.app.photographs import THUMB, VIEW, Photographs, fault_of
from normmatch.app.proposing import NOTHING_YET, Proposer, was_proposed
from normmatch.app.store import Conflict, Store, counts_of
from normmatch.app.suspects import Suspects
from normmatch.errors import InputError
from normmatch.matching.tuning import FEWEST

FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
PICTURES = 2  # threads that decode photographs: edits never wait for them


class Labelling:
    """What the addresses answer."""

    def __init__(self, store: Store, photographs: Photographs, proposer: Proposer) -> None:
        self.store, self.photographs, self.proposer, self.suspects = store, photographs, proposer, Suspects()

    def project(self, request: Request) -> Response:
        """The whole project, and what is computed of it."""
        project = self.store.project
        faults = {file: fault_of(self.photographs, file) for file in project.photographs}
        more = {
            "stamps": {file: self.photographs.stamp(file) for file in project.photographs},
            "missing": [{"file": file, "error": fault} for file, fault in faults.items() if fault],
            "exports": exports.listed(),
            **self._state(project),
        }
        return Response(project.text(**more), media_type="application/json")

    def changes(self, request: Request) -> Response:
        """What changed since a page asked last."""
        since = _number(request, "proposals")
        project, renewed = self.store.project, self.store.renewed
        files = [file for file, number in renewed.items() if number > since]
        photographs = {
            file: {
                key: value
                for key, value in project.photographs[file].as_json().items()
                if key in ("points", "reviewed")
            }
            for file in files
        }
        saved = {"revision": project.revision, "saved_by": project.saved_by, "photographs": photographs}
        return as_json({**saved, **self._state(project, files)})

    def _state(self, project: Project, files: Any = None) -> Json:
        proposer = self.proposer
        return {
            "proposals": self.store.proposals, "job": proposer.job, "last_job": proposer.last_job,
            "engine": proposer.engine, "counts": counts_of(project), "suspects": self.suspects.of(project),
            "alike": self.proposer.alike(project.photographs if files is None else files),
        }  # fmt: skip

    def edit(self, body: bytes) -> Json:
        """Apply edits; they are on the disk when this returns."""
        given = _read(body)
        revision, edits = given.get("revision"), given.get("edits")
        if type(revision) is not int or not isinstance(edits, list) or not isinstance(given.get("window"), str):
            raise InputError("The page sent no edits; expected `window`, `revision` and a list `edits`.")
        before = teaching(self.store.project)
        project = self.store.edit(given["window"], revision, edits)
        if teaching(project) != before and was_proposed(project) and project.reviewed:
            self.proposer.ask("renew")
        return {"revision": project.revision, "counts": counts_of(project), "suspects": self.suspects.of(project)}

    def propose(self, body: bytes) -> Json:
        files = _read(body).get("files")
        if files is not None and not (isinstance(files, list) and all(isinstance(file, str) for file in files)):
            raise InputError("The page asked for proposals on what are no files; expected a list of names.")
        if not self.store.project.reviewed:
            raise InputError(NOTHING_YET)
        if self.proposer.engine["error"]:
            raise InputError(self.proposer.engine["error"])
        self.proposer.ask("propose", files=files)
        return {"job": self.proposer.job}

    def improve(self, body: bytes) -> Json:
        if len(self.store.project.reviewed) < FEWEST:
            raise InputError(f"Improving learns from reviewed photographs; expected at least {FEWEST} of them.")
        self.proposer.ask("improve")
        return {"job": self.proposer.job}

    def take_back(self, body: bytes) -> Json:
        """Forget the last improvement."""
        self.store.improve(None)
        self.proposer.ask("renew")
        return {}

    def stop(self, body: bytes) -> Json:
        self.proposer.stop()
        return {}

    def copy(self, body: bytes) -> Json:
        return {"file": self.store.copy(_read(body).get("project"))}

    def read(self, body: bytes) -> Json:
        """What a keypoints file would set; nothing is changed."""
        _, (file,) = unpack(body, 1)
        project, folder, source = self.store.project, self.photographs.folder, Path(file.name)
        items = check_points_file(file)
        blank = {name: replace(one, points={}, reviewed=False) for name, one in project.photographs.items()}
        found = with_annotations(replace(project, landmarks=(), photographs=blank), items, source, folder)
        known = {item.image for item in matched(items, source, folder, project.photographs).values()}
        return {
            "landmarks": list(found.names),
            "photographs": {name: {"points": points} for name, one in found.photographs.items()
                            if (points := one.as_json()["points"])},
            "unknown": sorted({item.image for item in items} - known),
        }  # fmt: skip

    def export(self, request: Request) -> Response:
        """A file to download."""
        everything = request.query_params.get("photographs") == "all"
        try:
            name, content = exports.export(
                self.store.project, self.photographs, request.path_params["what"], everything
            )
        except KeyError:
            raise HTTPException(404) from None
        kind = exports.KINDS.get(Path(name).suffix, "application/octet-stream")
        told = f"attachment; filename*=UTF-8''{quote(name)}"
        return Response(content, media_type=kind, headers={"Content-Disposition": told})

    def thumb(self, request: Request) -> Response:
        return self._picture(lambda file: self.photographs.copy(file, THUMB), request)

    def view(self, request: Request) -> Response:
        return self._picture(lambda file: self.photographs.copy(file, VIEW), request)

    def tile(self, request: Request) -> Response:
        level, column, row = (request.path_params[key] for key in ("level", "column", "row"))
        return self._picture(lambda file: self.photographs.tile(file, level, column, row), request)

    def _picture(self, make: Callable[[str], bytes], request: Request) -> Response:
        try:
            jpeg = make(request.path_params["file"])
        except KeyError:
            raise HTTPException(404) from None
        kept = FOR_EVER if "v" in request.query_params else None
        return Response(jpeg, media_type="image/jpeg", headers=kept)


def make_label_app(labelling: Labelling) -> Starlette:
    """The label page's application. Edits have a thread of their own."""
    edits, pictures = ThreadPoolExecutor(1, "normmatch-edits"), ThreadPoolExecutor(PICTURES, "normmatch-pictures")
    posted = {
        "edit": labelling.edit, "propose": labelling.propose, "stop": labelling.stop, "copy": labelling.copy,
        "read": labelling.read, "improve": labelling.improve, "improve/undo": labelling.take_back,
    }  # fmt: skip
    routes = [
        got("/api/project", labelling.project, edits),
        got("/api/changes", labelling.changes, edits),
        *(asked(f"/api/{name}", answer, edits) for name, answer in posted.items()),
        got("/export/{what}", labelling.export, pictures),
        got("/image/thumb/{file:path}", labelling.thumb, pictures),
        got("/image/view/{file:path}", labelling.view, pictures),
        got("/image/tile/{level:int}/{column:int}/{row:int}/{file:path}", labelling.tile, pictures),
    ]

    def close() -> None:
        labelling.proposer.close()
        labelling.store.save()
        for pool in (edits, pictures):
            pool.shutdown(wait=False, cancel_futures=True)

    return make_pages(routes, "label.html", close, {Conflict: _conflict, OSError: _full})


async def _conflict(request: Request, error: Conflict) -> Response:
    content = {"error": str(error), "revision": error.revision, "saved_by": error.saved_by}
    answer = as_json(content)
    answer.status_code = 409
    return answer


async def _full(request: Request, error: OSError) -> Response:
    return sentence(507, f"The project could not be saved: {error.strerror or error}.")


def teaching(project: Project) -> list[Any]:
    """What the machine learns from: equal before and after an edit, there is nothing to renew."""
    boxes = [one.box for one in project.photographs.values()]
    return [*boxes, *((one.file, one.points) for one in project.reviewed), project.names]


def _read(body: bytes) -> Json:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("The page sent a request that is no JSON.") from None
    if not isinstance(content, dict):
        raise InputError("The page sent a request that is no JSON object.")
    return content


def _number(request: Request, key: str) -> int:
    value = request.query_params.get(key, "0")
    return int(value) if value.isdecimal() and len(value) < 16 else 0
