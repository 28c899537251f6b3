"""A Python without torch and whatever else the core does without, though it may be installed here."""

import os
import subprocess
import sys
from pathlib import Path

HEAVY = (
    "torch", "torchvision", "timm", "triton", "lightning_fabric", "tensorboard", "onnx", "onnx_ir", "onnxscript",
    "huggingface_hub", "ray", "pyarrow",
)  # fmt: skip
ABSENT = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(  # as if these were not installed
    lambda cls, name, *rest: None if name.split(".")[0] in {HEAVY} else find(name, *rest)
)
"""


def run_without_torch(
    program: str, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, in a folder."""
    command = [sys.executable, "-c", ABSENT + program, *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
