"""Matching one pair without a thought about loading: the network is kept from call to call."""

import functools
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from normmatch.checks import check_path, shown
from normmatch.config import BackendName
from normmatch.matching.decoding import Result
from normmatch.matching.matcher import Matcher


def match_pair(
    image0: Any,
    image1: Any,
    keypoints0: Any,
    keypoints1: Any,
    *,
    weights: str | Path = "small",
    device: str = "auto",
    backend: BackendName = "auto",
    **options: Any,
) -> Result:
    """`Matcher.match` with a network that is loaded at the first call and kept; `options` are those of `match`."""
    key: Any = (value if isinstance(value, Hashable) else shown(value) for value in (device, backend))
    return _shared(str(check_path(weights, "weights")), *key).match(image0, image1, keypoints0, keypoints1, **options)


@functools.lru_cache(maxsize=2)
def _shared(weights: str, device: str, backend: BackendName) -> Matcher:
    return Matcher(weights, device=device, backend=backend)
