"""The lock fits to pyproject.toml: every requirement has one exact version there, and it is an admitted one."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def requirements() -> list[Requirement]:
    every = [*PROJECT["dependencies"], *(text for texts in PROJECT["optional-dependencies"].values() for text in texts)]
    return [r for r in map(Requirement, every) if r.name != "normmatch" and (r.marker is None or r.marker.evaluate())]


def test_lines_are_names_and_versions_alone() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line)] == []
    names = [canonicalize_name(line.partition("==")[0]) for line in LINES]
    assert len(set(names)) == len(names)
    assert {"pip", "hatchling", "editables"} <= set(names)  # what builds the package is locked, too


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_requirement_has_an_admitted_version(requirement: Requirement) -> None:
    locked = {
        canonicalize_name(name): Version(version) for name, _, version in (line.partition("==") for line in LINES)
    }
    name = canonicalize_name(requirement.name)
    assert name in locked
    assert locked[name] in requirement.specifier


def test_users_get_versions_from_tested_ranges() -> None:
    """A lower bound, which the code needs, and an upper one: a new major version has not been tried."""
    for requirement in requirements():
        assert {clause.operator for clause in requirement.specifier} >= {">=", "<"}, requirement
