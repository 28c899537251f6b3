"""Where a number comes from: the code, the machine, the command and the date."""

import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

import normmatch


def made_with(device: torch.device) -> dict[str, str]:
    """What is written beside every result."""
    return {
        "normmatch": normmatch.__version__,
        "commit": commit(Path(normmatch.__file__).parent),
        "torch": torch.__version__,
        "hardware": hardware(device),
        "command": shlex.join(["normmatch", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit(package: Path) -> str:
    """The commit of the checkout that the package runs from, marked where files have changed; empty without one."""
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")  # or it lies below somebody else's checkout
        changed = _git(package, "status", "--porcelain", "--untracked-files=no", ".")
        return _git(package, "rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def hardware(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name, known = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if known.exists():
        found = re.search(r"^model name\s*: (.+)$", known.read_text(encoding="utf-8"), re.MULTILINE)
        name = found[1] if found else name
    return f"{name}, {torch.get_num_threads()} of {os.cpu_count()} threads" if device.type == "cpu" else f"{name} GPU"
