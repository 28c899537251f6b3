"""Fixtures that every test may use."""

import os

# Tests run in as many processes as there are cores: one thread each, or they would wait for each other, up to a
# hundred times as long. Set before numpy is imported, and inherited by the processes.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# ruff: noqa: E402
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock

SHARED_DATASETS = Path(__file__).resolve().parents[2] / "shared" / "datasets"


def pytest_configure() -> None:
    """One thread each here, too."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_datasets() -> Path:
    """The folder with real archives beside the checkout; tests that need it are skipped where it is not."""
    if not SHARED_DATASETS.is_dir():
        pytest.skip("real datasets are not beside the checkout")
    return SHARED_DATASETS


@pytest.fixture(scope="session")
def exported_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network, and its exported files. That takes a while: once for all test processes."""
    from normmatch import PRESETS, NormMatch
    from normmatch.export import files

    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with FileLock(root / "exported.lock"):
        if not (root / "exported" / "graphs.json").exists():
            torch.manual_seed(0)
            # One layer and few rounds, because all are alike; separate streams cut the batch in two most often.
            model = NormMatch(replace(PRESETS["tiny"], num_layers=1, sinkhorn_rounds=2, shared_streams=False))
            model.config = replace(model.config, min_score=0.01)
            files.export(model, root / "exported", model.save_pretrained(root / "exported"))
    return root / "exported"
