"""Every result says what made it."""

import subprocess
from pathlib import Path

import pytest
import torch

import normmatch
from normmatch.evaluation.provenance import commit, made_with


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_commit_of_a_checkout(tmp_path: Path) -> None:
    package = tmp_path / "src" / "normmatch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    assert commit(package) == ""  # below a checkout, but no part of it
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    assert git(tmp_path, "rev-parse", "HEAD").startswith(commit(package))
    (package / "__init__.py").write_text("changed = True\n")
    assert commit(package).endswith(" with changes")


def test_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = made_with(torch.device("cpu"))
    assert found["commit"] == ""
    assert found["normmatch"] == normmatch.__version__
    assert found["torch"] == torch.__version__
    assert "threads" in found["hardware"]
    assert found["date"].endswith("+00:00")
