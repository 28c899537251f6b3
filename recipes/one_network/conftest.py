"""Lets pytest find the modules of this folder, which runs as scripts and is no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
