"""The evaluation protocols of the field, named: numbers under different ones do not belong in one table."""

from dataclasses import dataclass
from typing import Literal

from normmatch.errors import ConfigError


@dataclass(frozen=True)
class Protocol:
    """How a benchmark's annotations become matching problems, and how the answers are scored."""

    name: str
    size: int  # side of the square that a crop is resized to
    keep_outside: bool = False  # keypoints outside the crop: kept or dropped
    fewest_shared: int = 2  # a pair needs this many common keypoints
    crop_spair: bool = False  # SPair-71k: crop to the object's box, or take the whole image
    pairs: Literal["replacement", "distinct"] = "replacement"  # test pairs of a class: repeats allowed or not
    average: Literal["keypoints", "pairs"] = "keypoints"  # what the accuracy of a class is the mean of
    one_to_one: bool = False  # decoded by the Hungarian method, or by the best column of each row


PROTOCOLS = {
    "nmt": Protocol("nmt", size=384),
    "bbgm": Protocol("bbgm", size=256),
    "thinkmatch": Protocol(
        "thinkmatch",
        size=256,
        keep_outside=True,
        fewest_shared=3,
        crop_spair=True,
        pairs="distinct",
        average="pairs",
        one_to_one=True,
    ),
}


def get_protocol(name: str) -> Protocol:
    """The protocol of that name, or a sentence that lists the names there are."""
    if name not in PROTOCOLS:
        raise ConfigError(f"There is no protocol {name!r}; choose one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]
