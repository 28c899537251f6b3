"""The benchmarks: every figure is there, compared with the plain network, and written down with its origin."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from normmatch.bench.model import (
    Bench,
    Sizes,
    Variant,
    _batch_curve,
    bench_model,
    make_inputs,
    make_model,
    make_plain,
    match_pairs,
    variants,
)
from normmatch.bench.timing import LEAST, WARM_UP, Row, make_table, measure, output_files, write
from normmatch.bench.train import bench_data, bench_train
from normmatch.commands import main
from normmatch.config import AugmentConfig, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.errors import ConfigError, DeviceError
from normmatch.evaluation import provenance
from normmatch.evaluation.provenance import made_with
from normmatch.outputs import made_by_us
from normmatch.training import loader
from normmatch.training.loop import NetworkWithLosses

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    sizes = Sizes(points=6, curve=(4, 9), batches=(1, 2), images=3, seconds=0.001)
    return list(bench_model("tiny", CPU, [Variant("float32")], sizes))


def test_every_figure_is_there_for_every_way(rows: list[Row]) -> None:
    for variant in ("plain", "float32"):
        own = [(row.what, row.points, row.batch) for row in rows if row.variant == variant]
        expected = [("pair", 6, 1), ("head", 4, 1), ("head", 9, 1)]
        expected += [("batch", 6, 1), ("batch", 6, 2), ("cached", 6, 3), ("files", 6, 1)]
        assert own == expected


def test_figures_are_compared_with_the_plain_network(rows: list[Row]) -> None:
    plain = {(row.what, row.points, row.batch): row.ms for row in rows if row.variant == "plain"}
    for row in rows:
        assert 0 < row.low <= row.ms <= row.high
        assert row.pairs_per_second == pytest.approx(1000 / row.ms)
        assert row.ratio == pytest.approx(plain[row.what, row.points, row.batch] / row.ms)


def test_results_are_written_with_their_origin(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(rows, made_with(CPU), tmp_path, "speed")
    written = json.loads((tmp_path / "speed.json").read_text())
    assert written["rows"] == [asdict(row) for row in rows]
    assert {"commit", "command", "date", "hardware", "torch"} <= written["made_with"].keys()
    text = (tmp_path / "speed.md").read_text()
    assert written["made_with"]["hardware"] in text
    assert text.count("\n| ") == len(rows) + 2  # with the line of columns, and the one below it
    assert all(made_by_us(file) for file in output_files(tmp_path, "speed"))
    for file in output_files(tmp_path, "speed"):
        file.write_text("mine")
        with pytest.raises(SystemExit):
            main(["bench", "model", "tiny", "--out", str(tmp_path)])
        assert "was not written by NormMatch" in capsys.readouterr().err
        file.unlink()


def test_the_plain_network_is_the_same_network() -> None:
    model = make_model("tiny", CPU)
    pairs = make_inputs(model, 5, 2)
    networks = [Bench("tiny", m, Variant(), CPU, Sizes()).network() for m in (make_plain(model), model)]
    assert np.array_equal(*(match_pairs(network, pairs) for network in networks))


def test_timing_leaves_the_warm_up_out() -> None:
    calls: list[int] = []
    timing = measure(lambda: calls.append(0), CPU, 0.0)
    assert len(calls) == LEAST + WARM_UP
    assert timing.memory_mb is None


def test_the_batch_curve_ends_where_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the network had to halve is no figure of that batch."""
    model = make_model("tiny", CPU)
    bench = Bench("tiny", model, Variant(), CPU, Sizes(points=4, batches=(1, 2, 4, 8), seconds=0.001))
    network = bench.network()
    plain = network.backbone

    def small(images: torch.Tensor) -> Any:
        if len(images) > 4:
            raise torch.OutOfMemoryError
        return plain(images)

    network.backbone = small
    assert [row.batch for row in _batch_curve(bench, network)] == [1, 2]  # two images a pair


def test_a_training_step_is_measured_and_learns() -> None:
    torch.manual_seed(0)
    row = bench_train("tiny", CPU, batch=2, points=6, compile=False, seconds=0.001)
    assert row.pairs_per_second == pytest.approx(1000 / row.ms)
    assert make_table([row], made_with(CPU)).rows[0][:2] == ("tiny, float32", "train")


def test_a_training_step_too_large_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(NetworkWithLosses, "forward", full)
    with pytest.raises(DeviceError, match="cpu has too little memory for 2 pairs per step"):
        bench_train("tiny", CPU, batch=2, points=6, compile=False, seconds=0.001)


def test_a_surrounding_repository_is_not_ours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed below somebody else's checkout, such as in its virtual environment: their commit says nothing."""
    package = tmp_path / "venv" / "normmatch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "theirs").touch()
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "theirs"], ["commit", "-qm", "theirs"]):
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance.normmatch, "__file__", str(package / "__init__.py"))
    out = ["--out", str(tmp_path / "out")]
    main(["bench", "train", "tiny", "--batch-size", "2", "--seconds", "0.001", "--no-compile", *out])
    assert json.loads((tmp_path / "out" / "train.json").read_text())["made_with"]["commit"] == ""


@pytest.mark.parametrize("with_images", [False, True])
def test_the_loader_that_is_measured_is_that_of_training(with_images: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def recorded(shares: Any, config: TrainConfig, *more: Any, **named: Any) -> Any:
        made.append(loader.make_loader(shares, config, *more, **named))
        return made[-1]

    monkeypatch.setattr("normmatch.bench.train.make_loader", recorded)
    split = drawn.make(6, 64, seed=0, split="train")
    config = TrainConfig(out=Path(), data=DataConfig(workers=0), batch_size=3, augment=AugmentConfig(noise=2.0))
    assert bench_data(split, config, seconds=0.01, with_images=with_images) > 0
    (measured,) = made
    batches = measured.dataset.batches
    assert (batches.batch_size, batches.augment, batches.seed) == (3, config.augment, config.seed)
    assert ("image0" in measured.dataset[0]) == with_images
    shapes = {measured.dataset[step]["mask0"].shape for step in range(5)}
    assert len(shapes) == 1  # one shape for all batches, as in training


def test_ways_to_run() -> None:
    names = [variant.name for variant in variants(CPU, compile=False)]
    assert names[0] == "float32"
    assert not any("compiled" in name for name in names)
    chosen = variants(torch.device("cuda"), True, ["bfloat16"])
    assert [variant.name for variant in chosen] == ["bfloat16", "bfloat16, compiled"]


def test_parts_can_be_chosen() -> None:
    rows = bench_model("tiny", CPU, [], Sizes(points=4, seconds=0.001), parts=["pair"])
    assert [row.what for row in rows] == ["pair"]


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["bench", "train", "tiny", "--batch-size", "2", "--seconds", "0.001", "--no-compile", "--out", str(tmp_path)])
    assert "pairs/s" in capsys.readouterr().out
    assert json.loads((tmp_path / "train.json").read_text())["rows"][0]["preset"] == "tiny"
    for wrong in (["model", "huge"], ["train", "huge"], ["model", "--points", "0"], ["train", "--batch-size", "0"]):
        with pytest.raises(SystemExit) as stopped:
            main(["bench", *wrong])
        assert stopped.value.code == 2
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit):
            main(["bench", "model", "tiny", "--device", "cuda"])
        assert "cannot be used here" in capsys.readouterr().err


def test_unknown_presets() -> None:
    with pytest.raises(ConfigError, match="the preset is 'huge', expected one of small"):
        make_model("huge", CPU)
