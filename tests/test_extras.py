"""Every extra is named by the packages that it brings, and each of them can be asked for."""

import re
import tomllib
from pathlib import Path

import pytest

from normmatch.errors import ConfigError
from normmatch.extras import EXTRAS, missing, require


def test_the_extras_are_those_of_the_project() -> None:
    brings: dict[str, set[str]] = {}
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, lines in project["optional-dependencies"].items():
        brings[extra] = {re.match(r"[\w.-]+", line)[0].replace("-", "_") for line in lines}  # type: ignore[index]
    for package, extra in EXTRAS.items():
        assert package in brings[extra]


def test_what_is_missing_is_said_before_the_work() -> None:
    require("json", "csv")
    with pytest.raises(ConfigError) as error:
        require("json", "no_such_package")
    assert str(error.value) == "This needs no_such_package; install it with: pip install 'normmatch[dev]'."
    assert "'normmatch[ray]'" in str(missing("ray.data"))
