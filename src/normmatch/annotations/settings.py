"""How keypoints came about: version, weights, options, references and date, kept with them.

In our JSON they stand under `settings`, in COCO under `info`; beside files of other formats, as `NAME.settings.json`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from normmatch import __version__
from normmatch.annotations import MAX_BYTES
from normmatch.io import parse_json, read_text
from normmatch.outputs import write_json

Settings = dict[str, Any]


def settings_of(
    weights: str, references: Sequence[str] = (), options: Mapping[str, Any] | None = None, day: str = ""
) -> Settings:
    """The settings of keypoints that NormMatch places now."""
    return {
        "program": "NormMatch",
        "version": __version__,
        "weights": weights,
        "references": list(references),
        "options": dict(options or {}),
        "date": day or date.today().isoformat(),
    }


def beside(path: Path) -> Path:
    """Where the settings of a file are kept whose format has no room for them."""
    return path.with_name(f"{path.name}.settings.json")


def read_settings(path: Path) -> Settings:
    """The settings that a file came with, in it or beside it; none is empty."""
    if beside(path).is_file():
        content = parse_json(beside(path), read_text(beside(path), MAX_BYTES))
    elif path.suffix.lower() == ".json" and path.is_file():
        content = parse_json(path, read_text(path, MAX_BYTES))
        content = content if isinstance(content, dict) else {}
        content = content if "settings" in content else content.get("info") or {}
    else:
        return {}
    found = content.get("settings") if isinstance(content, dict) else None
    return dict(found) if isinstance(found, dict) else {}


def keep_beside(path: Path, settings: Settings) -> Path:
    """Write the settings of a file whose format has no room for them; where they are."""
    write_json(beside(path), {"settings": settings}, indent=1)
    return beside(path)


def sentence(settings: Settings) -> str:
    """What a paper's methods section says."""
    number = len(settings.get("references") or [])
    given = f" from {number} annotated photograph{'' if number == 1 else 's'}" if number else ""
    options = settings.get("options") or {}
    told = [f"weights {settings.get('weights', 'unknown')}"]
    told += [f"{key.replace('_', ' ')} {json.dumps(value)}" for key, value in options.items()]
    version, day = (settings.get(key, "of an unknown one") for key in ("version", "date"))
    return f"Landmarks were placed{given} with NormMatch {version} ({'; '.join(told)}) on {day}."
