"""Work is never lost, whatever happens to a run; and several processes train like one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("processes.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("runs"))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_killed_at_any_moment(results: dict[str, Any]) -> None:
    killed = results["killed"]
    assert set(killed["codes"].values()) == {-9}
    assert len(killed["codes"]) == 9
    assert (killed["end"], killed["same"]) == (0, True)


def test_its_log_has_every_line_once(results: dict[str, Any]) -> None:
    steps = [[step, validation] for step in range(1, 7) for validation in (False, True)[: 2 - step % 2]]
    assert results["killed"]["entries"] == steps


def test_nothing_half_written_is_left(results: dict[str, Any]) -> None:
    assert results["killed"]["left"] == [
        "config.json", "log.jsonl", "model.safetensors", "step-0000004.safetensors", "step-0000006.safetensors",
    ]  # fmt: skip


def test_sigterm_saves_and_stops(results: dict[str, Any]) -> None:
    told = results["told"]
    assert told["code"] == 128 + 15
    assert told["saved"] == ["step-0000002.safetensors", "step-0000003.safetensors"]
    assert (told["end"], told["same"]) == (0, True)


def test_a_full_disk_leaves_the_last_checkpoint(results: dict[str, Any]) -> None:
    full = results["full_disk"]
    assert full["code"] == 2
    assert full["error"].count("\n") == 0
    assert "step-0000004.safetensors cannot be written" in full["error"]
    assert full["left"] == ["config.json", "log.jsonl", "step-0000002.safetensors"]
    assert (full["end"], full["same"]) == (0, True)


def test_two_processes_are_like_one(results: dict[str, Any]) -> None:
    pair = results["pair"]
    assert pair["codes"] == [0, 0, 0]
    one, two = pair["logs"]
    assert [line["step"] for line in two] == [line["step"] for line in one]
    assert sum("loss" in line for line in one) == 6
    for a, b in zip(one, two, strict=True):
        for key in a.keys() & {"loss", "info_nce", "hyperspherical", "layers", "layer_match", "names", "accuracy"}:
            assert b[key] == pytest.approx(a[key], rel=1e-4, abs=1e-5), key
    assert pair["worst"] < 1e-4


def test_sigterm_to_one_of_two_stops_both(results: dict[str, Any]) -> None:
    told = results["told_pair"]
    assert told["codes"] == [143, 143]
    assert told["end"] == 0
    assert told["steps"][1] == told["steps"][0] + 1  # on one device now


def test_a_first_process_that_fails_takes_the_other_along(results: dict[str, Any]) -> None:
    assert results["full_disk_pair"]["codes"] == [2, 2]


def test_the_first_of_several_prepares_the_data(results: dict[str, Any]) -> None:
    assert results["unprepared_pair"] == {"codes": [0, 0], "refused": [2, 2], "left": False}
