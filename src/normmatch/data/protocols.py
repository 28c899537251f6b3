"""The evaluation protocols of the field, named: numbers under different ones do not belong in one table."""

from dataclasses import dataclass

from normmatch.errors import ConfigError


@dataclass(frozen=True)
class Protocol:
    """How a benchmark's annotations become matching problems."""

    name: str
    size: int  # side of the square that a crop is resized to
    keep_outside: bool  # keypoints outside the crop: kept or dropped
    fewest_shared: int  # a pair needs this many common keypoints
    crop_spair: bool  # SPair-71k: crop to the object's box, or take the whole image


PROTOCOLS = {
    "nmt": Protocol("nmt", size=384, keep_outside=False, fewest_shared=2, crop_spair=False),
    "bbgm": Protocol("bbgm", size=256, keep_outside=False, fewest_shared=2, crop_spair=False),
    "thinkmatch": Protocol("thinkmatch", size=256, keep_outside=True, fewest_shared=3, crop_spair=True),
}


def get_protocol(name: str) -> Protocol:
    """The protocol of that name, or a sentence that lists the names there are."""
    if name not in PROTOCOLS:
        raise ConfigError(f"There is no protocol {name!r}; choose one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]
