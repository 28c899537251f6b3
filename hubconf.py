"""The entry of torch.hub: `torch.hub.load(repository, "normmatch", weights="small")`, also with source="local"."""

import sys
from pathlib import Path
from typing import Any

dependencies = ["torch", "timm", "numpy", "scipy", "PIL", "safetensors", "huggingface_hub"]

SOURCE = str(Path(__file__).resolve().parent / "src")


def normmatch(weights: str = "small", **options: Any) -> Any:
    """A `Matcher`: `weights` is a bundled name, a file, a folder or owner/name on a hub; `options` are Matcher's.

    torch.hub has fetched the repository but not installed it, so its sources are put on the path.
    """
    if SOURCE not in sys.path:
        sys.path.insert(0, SOURCE)
    from normmatch import Matcher

    return Matcher(weights, **options)
