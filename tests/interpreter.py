"""GPU kernels without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_interpreted(test_file: str) -> None:
    """Call `run_all("cpu")` of a test file under Triton's interpreter.

    In a process of its own: Triton asks once, when it is imported, whether to interpret.
    """
    code = "import runpy, sys; runpy.run_path(sys.argv[1])['run_all']('cpu')"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, test_file], env=environment, cwd=ROOT, check=True)
