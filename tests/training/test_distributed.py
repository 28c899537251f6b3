"""Devices that are not there are refused, and a command for several of them becomes a process for each."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from normmatch.commands import main
from normmatch.config import PRESETS, TrainConfig
from normmatch.datasets import drawn
from normmatch.errors import ConfigError
from normmatch.training import distributed
from normmatch.training.distributed import check_devices, count_processes


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    return TrainConfig(out=tmp_path / "run", model=PRESETS["tiny"], accelerator="cpu")


def test_a_command_for_several_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "cores", lambda: 2)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    drawn.write(tmp_path / "data", 4, 64, seed=0)
    options = ["--data.names", "synthetic", "--data.root", str(tmp_path / "data"), "--accelerator", "cpu"]
    args = ["train", "tiny", "--out", str(tmp_path / "run"), "--devices", "2", "--model.image-size", "64", *options]
    monkeypatch.setattr(sys, "argv", ["normmatch", *args])
    started: list[list[str]] = []
    failure = ProcessFailure(local_rank=1, pid=1, exitcode=2, error_file="")
    for raised, code in ((ChildFailedError("", {1: failure}), 2), (SignalException("", 15), 143)):

        def torchrun(command: list[str], raised: Exception = raised) -> None:
            started.append(command)
            raise raised

        monkeypatch.setattr(run, "main", torchrun)
        with pytest.raises(SystemExit) as exited:
            main(args)
        assert exited.value.code == code
    assert started[0] == ["--standalone", "--nproc-per-node", "2", "-m", "normmatch", *args]
    monkeypatch.setattr(distributed, "cores", lambda: 1)
    with pytest.raises(SystemExit):  # refused before any process is started
        main(args)
    assert len(started) == 2
    assert not (tmp_path / "run").exists()


def test_devices_that_are_not_there(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"devices is 1000, but of kind cpu this machine has \d+"):
        check_devices(replace(config, devices=1000))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="devices is 4, but of kind cuda this machine has 1"):
        check_devices(replace(config, accelerator="auto", devices=4))
    check_devices(replace(config, accelerator="cuda", devices=1))


def test_processes_are_counted(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "cores", lambda: 2)
    assert count_processes(config) == (1, 1)
    with pytest.raises(ConfigError, match="a single process; expected a start by `normmatch train`"):
        count_processes(replace(config, devices=2))
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert not distributed.is_first()
    assert count_processes(config) == (2, 2)
    with pytest.raises(ConfigError, match="batch_size is 3, expected a pair for each of 4 devices"):
        count_processes(replace(config, batch_size=3))
    with pytest.raises(ConfigError, match="devices is 3, but torchrun has started 2 processes here"):
        count_processes(replace(config, devices=3))
