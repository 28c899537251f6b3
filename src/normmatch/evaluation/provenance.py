"""Where a number comes from: the code, the machine, the command and the date."""

import os
import platform
import shlex
import shutil
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
    if shutil.which("git") is None or _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return ""  # installed, perhaps below somebody else's checkout
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", ".")
    return (_git(package, "rev-parse", "--short=10", "HEAD") or "") + (" with changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def hardware(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "Apple GPU"
    return f"{_cpu_name()}, {torch.get_num_threads()} of {os.cpu_count()} threads"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
