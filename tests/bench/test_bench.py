"""The benchmarks: every figure is there, compared with the plain network, and written down with its origin."""

import copy
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from normmatch.bench.data import bench_data
from normmatch.bench.inputs import (
    Variant,
    make_inputs,
    make_model,
    make_network,
    make_plain,
    variants,
    write_photographs,
)
from normmatch.bench.model import Sizes, _batch_curve, bench_model, match_pairs, stages
from normmatch.bench.tables import curves, make_tables, output_files, plot, write
from normmatch.bench.timing import LEAST, WARM_UP, measure, peak_memory
from normmatch.bench.train import bench_train
from normmatch.commands import main
from normmatch.config import PRESETS, AugmentConfig, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.errors import ConfigError, DeviceError
from normmatch.evaluation import provenance
from normmatch.evaluation.provenance import made_with
from normmatch.model.assignment import log_sinkhorn
from normmatch.model.network import MatchingHead
from normmatch.model.transformer import Attention
from normmatch.outputs import made_by_us
from normmatch.training import loader
from normmatch.training.loop import NetworkWithLosses

CPU = torch.device("cpu")
STAGES = ["decode and resize", "graph", "backbone", "sampling", "spline", "transformer", "Sinkhorn", "decoding"]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    sizes = Sizes(points=6, curve=(4, 9), batches=(1, 2), images=3, seconds=0.001)
    return list(bench_model("tiny", CPU, [Variant("float32")], sizes))


def test_every_figure_is_there_for_every_way(rows: list[dict[str, Any]]) -> None:
    for variant in ("plain", "float32"):
        own = [(row["what"], row["points"], row["batch"]) for row in rows if row["variant"] == variant]
        expected = [("pair", 6, 1), *((f"stage: {name}", 6, 1) for name in STAGES), ("head", 4, 1), ("head", 9, 1)]
        expected += [("batch", 6, 1), ("batch", 6, 2), ("cached", 6, 3), ("files", 6, 1)]
        assert own == expected


def test_matcher_is_not_timed_with_a_head_that_it_does_not_have() -> None:
    sizes, parts = Sizes(points=4, images=2, seconds=0.001), ("pair", "cached", "files")
    rows = list(bench_model("tiny", CPU, [Variant("float32", "bfloat16")], sizes, parts=parts))
    assert [row["what"] for row in rows if row["variant"] == "plain"] == ["pair", "cached", "files"]
    assert [row["what"] for row in rows if row["variant"] != "plain"] == ["pair"]


def test_stages_of_a_compiled_network_have_its_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Here their stand-ins: what a head for a GPU would call."""
    called = set()

    def stand_in(name: str, plain: Any) -> Any:
        return lambda *arguments: called.add(name) or plain(*arguments)

    def with_stand_ins(head: MatchingHead, device: torch.device) -> MatchingHead:
        fused = copy.deepcopy(head)
        fused.log_sinkhorn = stand_in("Sinkhorn", log_sinkhorn)
        for module in fused.modules():
            if isinstance(module, Attention):
                module.forward = stand_in("attention", module.forward)
        return fused

    model = make_model("tiny", CPU)
    network = make_network(model, Variant("float32"))
    network.head.plain, network.compiled = network.head, True  # an eager one that says it is compiled
    monkeypatch.setattr("normmatch.bench.model.fastest", lambda compiled, plain, device: plain)
    monkeypatch.setattr("normmatch.bench.model.with_kernels", with_stand_ins)
    functions = stages(network, model, 6, write_photographs(tmp_path, 2))
    for name, kernel in (("transformer", "attention"), ("Sinkhorn", "Sinkhorn")):
        called.clear()
        functions[name]()
        assert called == {kernel}


def test_figures_are_compared_with_the_plain_network(rows: list[dict[str, Any]]) -> None:
    plain = {(row["what"], row["points"], row["batch"]): row["ms"] for row in rows if row["variant"] == "plain"}
    for row in rows:
        assert 0 < row["best"] <= row["low"] <= row["ms"] <= row["high"]
        assert row["pairs_per_second"] == pytest.approx(1000 / row["ms"])
        assert row["ratio"] == pytest.approx(plain[row["what"], row["points"], row["batch"]] / row["ms"])
        assert row["agreement"] == 1  # float32 changes no match


def test_results_are_written_with_their_origin(
    rows: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(rows, made_with(CPU), tmp_path, "speed")
    plot(rows, tmp_path / "speed.png")
    written = json.loads((tmp_path / "speed.json").read_text())
    assert written["rows"] == rows
    assert {"commit", "command", "date", "hardware", "torch"} <= written["made_with"].keys()
    text = (tmp_path / "speed.md").read_text()
    assert written["made_with"]["hardware"] in text
    assert text.count("\n| ") == len(rows) + 2  # with the line of columns, and the one below it
    assert Image.open(tmp_path / "speed.png").size[0] > 500
    assert all(made_by_us(file) for file in output_files(tmp_path, "speed"))
    for file in output_files(tmp_path, "speed"):
        file.write_text("mine")
        with pytest.raises(SystemExit):
            main(["bench", "model", "tiny", "--out", str(tmp_path)])
        assert "was not written by NormMatch" in capsys.readouterr().err
        file.unlink()


def test_curves_go_from_left_to_right() -> None:
    rows = [{"preset": "tiny", "variant": v, "what": "head", "points": n} for v in "ab" for n in (20, 1000, 10)]
    both = curves([*rows, {**rows[0], "what": "pair"}], "head", "points")
    found = {name: [row["points"] for row in curve] for name, curve in both.items()}
    assert found == {"tiny, a": [10, 20, 1000], "tiny, b": [10, 20, 1000]}


@pytest.mark.parametrize(
    ("backbone", "layers", "size"), [("vit_small_patch14_dinov2", (0, 1), 28), ("swinv2_tiny_window8_256", (0, 1), 64)]
)
def test_matches_depend_on_the_blocks(
    backbone: str, layers: tuple[int, int], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timm starts the scales of such blocks at 1e-5 and at 0; then wrong attention would not change a match."""
    small = replace(PRESETS["tiny"], backbone=backbone, backbone_layers=layers, image_size=size)
    monkeypatch.setitem(PRESETS, "blocks", small)
    model, image = make_model("blocks", CPU), torch.rand(1, 3, size, size)
    with torch.no_grad():
        before = model.encode(image).pooled
        for module in model.backbone.modules():
            if isinstance(getattr(module, "qkv", None), torch.nn.Linear):
                module.proj.weight.zero_()
        after = model.encode(image).pooled
    assert torch.nn.functional.cosine_similarity(before, after).item() < 0.99


def test_the_plain_network_is_the_same_network() -> None:
    model = make_model("tiny", CPU)
    plain, pairs = make_network(make_plain(model), Variant("float32")), make_inputs(model, 5, 2)
    expected, found = match_pairs(plain, pairs), match_pairs(make_network(model, Variant("float32")), pairs)
    assert np.array_equal(found, expected)


def test_timing_leaves_the_warm_up_out() -> None:
    calls: list[int] = []
    timing = measure(lambda: calls.append(0), CPU, 0.0)
    assert timing.runs == LEAST
    assert len(calls) == LEAST + WARM_UP
    assert peak_memory(lambda: None, CPU) is None


def test_the_batch_curve_ends_where_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the network had to halve is no figure of that batch."""
    model = make_model("tiny", CPU)
    network = make_network(model, Variant("float32"))
    plain = network.backbone

    def small(images: torch.Tensor) -> Any:
        if len(images) > 4:
            raise torch.OutOfMemoryError
        return plain(images)

    network.backbone = small
    found = [row["batch"] for row in _batch_curve(network, model, Sizes(points=4, batches=(1, 2, 4, 8), seconds=0.001))]
    assert found == [1, 2]  # two images a pair


def test_a_training_step_is_measured_and_learns() -> None:
    torch.manual_seed(0)
    row = bench_train("tiny", CPU, batch=2, points=6, compile=False, seconds=0.001)
    assert row["pairs_per_second"] == pytest.approx(1000 / row["ms"])
    assert row["gpu_busy"] is None
    (table,) = make_tables([row], made_with(CPU))
    assert (table.title, table.rows[0][1]) == ("tiny", "train")


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

    monkeypatch.setattr("normmatch.bench.data.make_loader", recorded)
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
    chosen = variants(torch.device("cuda"), True, ["bfloat16"], ["float32", "bfloat16"])
    expected = ["bfloat16", "bfloat16, compiled", "bfloat16, head bfloat16, compiled"]
    assert [variant.name for variant in chosen] == expected


def test_parts_can_be_chosen() -> None:
    rows = bench_model("tiny", CPU, [], Sizes(points=4, seconds=0.001), parts=["pair"])
    assert [row["what"] for row in rows] == ["pair"]


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
