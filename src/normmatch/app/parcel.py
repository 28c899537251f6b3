"""What a page sends: a line of JSON, then the files that it names, one after the other.

    {"files": [{"name": "a.jpg", "size": 8123}, {"name": "b.jpg", "size": 9001}], "one_to_one": false}
    <8,123 bytes><9,001 bytes>

Nothing is searched for in the files and nothing of them is written to a disk, as a form's parts would be.
"""

import json
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from normmatch.errors import InputError

MAX_LINE = 1_000_000  # bytes of the JSON
EXPECTED = "expected a line of JSON with `files`, of each its name and size, and then the files"


class File(NamedTuple):
    """A file that came with a request."""

    name: str  # the last part of what a browser calls it
    data: bytes


def unpack(body: bytes, count: int | None) -> tuple[dict[str, Any], list[File]]:
    """The JSON of a request, and its `count` files; None is two or more."""
    line, _, _ = body[:MAX_LINE].partition(b"\n")
    if len(line) == MAX_LINE:
        raise InputError(f"The page sent more than {MAX_LINE:,} bytes of JSON; {EXPECTED}.")
    try:
        asked = json.loads(line, parse_constant=_refuse_constant)
        named = [(str(file["name"]), file["size"]) for file in asked["files"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"The page sent a request that cannot be read; {EXPECTED}.") from None
    sizes = [size for _, size in named]
    if not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) != len(body) - len(line) - 1:
        raise InputError(f"The page sent files of other sizes than it says; {EXPECTED}.")
    if len(named) != count if count is not None else len(named) < 2:
        raise InputError(f"The page sent {len(named)} files; expected {count or 'two or more'}.")
    files, start = [], len(line) + 1
    for name, size in named:
        files.append(File(file_name(name), body[start : start + size]))
        start += size
    return asked, files


def file_name(name: str) -> str:
    """The last part of what a browser calls a file, short enough for a message."""
    last = PurePosixPath(PureWindowsPath(name[-1000:]).as_posix()).name
    kept = "".join(character for character in last if character.isprintable())
    return kept[-80:] or "the picture"


def _refuse_constant(name: str) -> None:
    """JSON has no NaN and no Infinity; Python's reader takes them."""
    raise ValueError(name)
