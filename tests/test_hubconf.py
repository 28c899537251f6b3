"""torch.hub finds the repository's entry."""

from pathlib import Path

import torch

from normmatch import Matcher
from tests.matching.scene import photograph, points, tiny_model

ROOT = Path(__file__).parents[1]


def test_a_matcher_from_the_repository(tmp_path: Path) -> None:
    file = tiny_model().save_pretrained(tmp_path / "tiny.safetensors")
    matcher = torch.hub.load(str(ROOT), "normmatch", source="local", weights=str(file), device="cpu")
    assert isinstance(matcher, Matcher)
    assert matcher.match(photograph(0), photograph(1), points(0, 4), points(1, 5))["matches0"].shape == (4,)
