"""The folder of a long run: results a line each as they come, what failed, what was asked for. A run goes on there.

results.jsonl    one line for each task that is done; `row` is the task's number, from 0
failed.jsonl     the tasks that could not be done, and why; they are tried again by the next run
run.json         what was asked for, and the size and time of each photograph: a run about something else is refused
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from normmatch.errors import DataError
from normmatch.io import locked
from normmatch.outputs import write_json, write_text, writing
from normmatch.progress import show_progress

Task = dict[str, Any]  # plain JSON values, so that it can travel to another machine
Record = dict[str, Any]


def run_tasks_in(
    out: Path,
    asked: dict[str, Any],
    tasks: Sequence[Task],
    run: Callable[[list[Task]], Iterator[Record]],
    unit: str,
    progress: bool = True,
    finish: Callable[[], None] = lambda: None,
) -> list[Record]:
    """Do the tasks that an earlier run in this folder has left; those that fail are returned.

    Args:
        out: the folder; the caller has checked `files_of` it.
        asked: what the run is about: it does not go on where an earlier one was about something else.
        tasks: with their photographs as `image`, or `image0` and `image1`.
        run: does some tasks, in their order.
        unit: what progress counts.
        finish: is called while no other run may write there.
    """
    results, photographs = out / "results.jsonl", sizes_and_times(images_of(tasks))
    with writing(out):
        try:
            with locked(out / ".lock"):
                earlier = check_run(out, asked)
                done = read_done(results, len(tasks))
                check_photographs(out, earlier, photographs, images_of(t for t in tasks if t["row"] in done))
                add_to_run(out, asked | {"photographs": photographs})
                left = [task for row, task in enumerate(tasks) if row not in done]
                records = run(left) if left else iter(())
                failed = append(results, show_progress(records, len(tasks), len(done), progress, unit))
                write_failed(out / "failed.jsonl", failed)
                finish()
        except BlockingIOError:
            raise DataError(f"Another run is writing to {out}; wait for it, or give another folder.") from None
    return failed


def read_run(out: Path) -> dict[str, Any]:
    """What run.json says, nothing if there is none that can be read."""
    try:
        content = json.loads((out / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: value for key, value in content.items() if key != "made_by"} if isinstance(content, dict) else {}


def add_to_run(out: Path, more: dict[str, Any]) -> None:
    """Let run.json say more."""
    write_json(out / "run.json", read_run(out) | more)


def images_of(tasks: Iterable[Task]) -> list[str]:
    """Their photographs, each once."""
    keys = ("image", "image0", "image1")
    return list(dict.fromkeys(task[key] for task in tasks for key in keys if key in task))


def files_of(out: Path) -> list[Path]:
    """The files that a run may replace; those that `check_run` and `read_done` look into are not among them."""
    results, failed = out / "results.jsonl", out / "failed.jsonl"
    files = [] if results.is_file() and results.stat().st_size else [results, out / "run.json"]
    return files if failed.is_file() and row_of(failed.open("rb").readline()) is not None else [*files, failed]


def sizes_and_times(photographs: Iterable[str]) -> dict[str, list[int]]:
    """Of each photograph that is there."""
    found = {}
    for image in photographs:
        with suppress(OSError, ValueError):
            info = os.stat(image)
            found[image] = [info.st_size, info.st_mtime_ns]
    return found


def check_photographs(out: Path, earlier: Any, now: dict[str, list[int]], done: Iterable[str]) -> None:
    """Refuse to go on where a photograph that is done is another one now; others may be mended and tried again."""
    for image in done:
        if image in earlier and image in now and earlier[image] != now[image]:
            raise DataError(f"{image} has changed since it was read for {out}; give another folder.")


def digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def check_run(out: Path, asked: dict[str, Any]) -> Any:
    """Refuse the folder of another run; returns the photographs of this one as they were when it broke off."""
    path, results = out / "run.json", out / "results.jsonl"
    if not results.exists() or not results.stat().st_size:  # nothing that could be mixed up
        return {}
    if not path.exists():
        raise DataError(f"{out} holds results.jsonl but no run.json; give another folder.")
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}); give another folder.") from error
    changed = [key for key, value in asked.items() if not isinstance(earlier, dict) or earlier.get(key) != value]
    if changed:
        raise DataError(f"{out} holds results of a run with other {', '.join(changed)}; give another folder.")
    photographs = earlier.get("photographs")
    return photographs if isinstance(photographs, dict) else {}


def read_done(path: Path, total: int) -> set[int]:
    """The rows that are done. A last line that breaks off, as where a run was killed, is removed."""
    done: set[int] = set()
    if not path.exists():
        return done
    whole = 0
    with path.open("r+b") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            row = row_of(line)
            if row is None or not 0 <= row < total:
                raise DataError(f"{path} line {number} is no result of this run; give another folder.")
            done.add(row)
        file.truncate(whole)
    return done


def row_of(line: bytes) -> int | None:
    try:
        row = json.loads(line)["row"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return row if type(row) is int else None


def append(results: Path, records: Iterable[Record]) -> list[Record]:
    """Append the records to the results as they come; those that failed are returned."""
    failed = []
    with results.open("a", encoding="utf-8") as file:
        for record in records:
            if "error" in record:
                failed.append(record)
            else:
                file.write(json.dumps(record) + "\n")
                file.flush()
    return failed


def write_failed(path: Path, failed: Sequence[Record]) -> None:
    if not failed:
        path.unlink(missing_ok=True)
        return
    write_text(path, "".join(json.dumps(record) + "\n" for record in failed))
