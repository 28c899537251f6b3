"""A tiny network for the page's tests: what it matches does not matter there."""

import io

import pytest
import torch
from PIL import Image

from normmatch import PRESETS, Matcher, NormMatch


@pytest.fixture(scope="session")
def matcher() -> Matcher:
    torch.manual_seed(0)
    return Matcher(NormMatch(PRESETS["tiny"]).eval(), device="cpu")


def encoded(width: int, height: int, color: str = "teal", kind: str = "PNG") -> bytes:
    """A picture file."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), color).save(file, kind)
    return file.getvalue()


@pytest.fixture(scope="session")
def picture() -> bytes:
    return encoded(320, 240)
