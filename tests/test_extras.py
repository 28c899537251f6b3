"""Every extra is named by the packages that it brings, and each of them can be asked for."""

import importlib.metadata
import re

import pytest

from normmatch.errors import ConfigError
from normmatch.extras import EXTRAS, missing, require


def test_the_extras_are_those_of_the_project() -> None:
    brings: dict[str, set[str]] = {}
    for line in importlib.metadata.requires("normmatch") or ():
        if found := re.fullmatch(r"([\w.-]+).*extra == ['\"](\w+)['\"]", line):
            brings.setdefault(found[2], set()).add(found[1].replace("-", "_"))
    for package, extra in EXTRAS.items():
        assert package in brings[extra]


def test_what_is_missing_is_said_before_the_work() -> None:
    require("json", "csv")
    with pytest.raises(ConfigError) as error:
        require("json", "no_such_package")
    assert str(error.value) == "This needs no_such_package; install it with: pip install 'normmatch[dev]'."
    assert "'normmatch[ray]'" in str(missing("ray.data"))
