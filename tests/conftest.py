"""Fixtures that every test may use."""

from pathlib import Path

import pytest
import torch

SHARED_DATASETS = Path(__file__).resolve().parents[2] / "shared" / "datasets"


def pytest_configure() -> None:
    """Tests run in as many processes as there are cores: one thread each, or they would wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_datasets() -> Path:
    """The folder with real archives beside the checkout; tests that need it are skipped where it is not."""
    if not SHARED_DATASETS.is_dir():
        pytest.skip("real datasets are not beside the checkout")
    return SHARED_DATASETS
