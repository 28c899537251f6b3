"""Exported files compute what the network does, for any number of pairs and points, and say what they are."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from normmatch import PRESETS, NormMatch
from normmatch.commands import main
from normmatch.errors import ExportError
from normmatch.export import files, graphs
from normmatch.export.files import export
from normmatch.export.graphs import ENCODED, HEAD_INPUTS, HEAD_OUTPUTS, Graph, image_step, trace
from normmatch.export.parity import Runner, check_parity, onnx_runner
from normmatch.model.network import delaunay_batch
from normmatch.model.spline import SplineConv, spline_basis
from normmatch.outputs import made_by_us
from tests.command_line import run as run_command

CONFIG = PRESETS["tiny"]
SIZE = CONFIG.image_size
Exported = tuple[Runner, Runner]


@pytest.fixture(scope="module")
def model(exported_folder: Path) -> NormMatch:
    return NormMatch.from_pretrained(exported_folder)


@pytest.fixture(scope="module")
def exported(exported_folder: Path) -> Exported:
    return onnx_runner(exported_folder / "encoder.onnx"), onnx_runner(exported_folder / "head.onnx")


def run(exported: Exported, data: dict[str, Tensor]) -> dict[str, Tensor]:
    """Match with the files as a user of theirs would: any junk in the padding."""
    encoder, head = exported
    inputs: dict[str, Tensor] = {}
    for i in "01":
        image, keypoints, mask = (data[f"{name}{i}"] for name in ("image", "keypoints", "mask"))
        inputs |= {name + i: value for name, value in zip(ENCODED, encoder({"image": image}), strict=True)}
        inputs |= {f"size{i}": torch.tensor(image.shape[:1:-1]).float(), f"mask{i}": mask}
        inputs[f"adjacency{i}"] = delaunay_batch(keypoints, mask)
        inputs[f"keypoints{i}"] = keypoints.masked_fill(~mask.unsqueeze(2), torch.nan)
    return dict(zip(HEAD_OUTPUTS, head({name: inputs[name] for name in HEAD_INPUTS}), strict=True))


def make_data(counts0: tuple[int, ...], counts1: tuple[int, ...], *sizes: tuple[int, int]) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(len(counts0))
    data = {}
    n = max(*counts0, *counts1)
    for i, counts, (height, width) in zip("01", (counts0, counts1), sizes, strict=True):
        data[f"image{i}"] = torch.rand(len(counts), 3, height, width, generator=rng)
        data[f"keypoints{i}"] = torch.rand(len(counts), n, 2, generator=rng) * torch.tensor([width, height])
        data[f"mask{i}"] = torch.arange(n) < torch.tensor(counts).unsqueeze(1)
    return data


@pytest.mark.parametrize(
    ("counts0", "counts1", "size0", "size1"),
    [
        ((1,), (1,), (SIZE, SIZE), (SIZE, SIZE)),
        ((2, 5), (7, 5), (SIZE, SIZE), (SIZE, SIZE)),
        ((30,), (11,), (64, 128), (SIZE, SIZE)),
        ((4, 1, 9, 3, 9), (9, 6, 1, 3, 2), (32, 64), (160, 112)),
    ],
)
def test_files_agree_with_the_network(
    model: NormMatch, exported: Exported, counts0: Any, counts1: Any, size0: Any, size1: Any
) -> None:
    data = make_data(counts0, counts1, size0, size1)
    with torch.no_grad():
        expected = model(data)
    found = run(exported, data)
    for name in ("matches0", "matches1"):
        assert torch.equal(found[name], expected[name])
    for name in ("similarity", "matching_scores0", "matching_scores1", "log_assignment"):
        tolerance = 2e-3 if name == "log_assignment" else 1e-4  # logarithms of next to nothing
        torch.testing.assert_close(found[name], expected[name], atol=tolerance, rtol=0)


def test_a_pair_gives_the_same_answer_alone_and_in_a_batch(exported: Exported) -> None:
    data = make_data((4, 6), (5, 2), (SIZE, SIZE), (SIZE, SIZE))
    together = run(exported, data)
    alone = {k: v[:1] if "image" in k else v[:1, :5] for k, v in data.items()}
    found = run(exported, alone)
    torch.testing.assert_close(found["similarity"][0], together["similarity"][0, :5, :5], atol=1e-5, rtol=0)
    assert torch.equal(found["matches0"][0, :4], together["matches0"][0, :4])


def test_nothing_but_the_files_is_left(exported_folder: Path) -> None:
    names = {path.name for path in exported_folder.iterdir()}
    assert names == {"encoder.onnx", "head.onnx", "model.safetensors"}


@pytest.mark.parametrize("name", ["encoder", "head"])
def test_files_carry_the_config(exported_folder: Path, name: str) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(exported_folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
    text = session.get_modelmeta().custom_metadata_map["config"]
    assert (json.loads(text)["min_score"], json.loads(text)["image_size"]) == (0.01, SIZE)
    shapes = {item.name: item.shape for item in session.get_inputs()}
    if name == "encoder":
        assert shapes == {"image": ["batch", 3, "height", "width"]}
    else:
        assert tuple(shapes) == HEAD_INPUTS
        assert shapes["adjacency1"] == ["batch", "points", "points"]


def test_of_a_backbone_file_only_the_name_is_kept() -> None:
    model = NormMatch(CONFIG)
    model.config = replace(CONFIG, backbone_weights="/home/me/net.safetensors")
    assert json.loads(files.config_text(model))["backbone_weights"] == "net.safetensors"


def test_the_network_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = NormMatch(CONFIG), []
    monkeypatch.setattr(graphs, "_trace_encoder", seen.append)
    monkeypatch.setattr(graphs, "_trace_head", seen.append)
    trace(model)
    for each, in_blocks in ((model, True), *((copy, False) for copy in seen)):
        assert {module.in_blocks for module in each.modules() if isinstance(module, SplineConv)} == {in_blocks}
        assert {parameter.requires_grad for parameter in each.parameters()} == {in_blocks}
        assert each.training == in_blocks


def test_without_blocks_the_convolution_is_the_same() -> None:
    torch.manual_seed(0)
    conv, x = SplineConv(3, 4), torch.randn(2, 6, 3)
    basis, adjacency = spline_basis(torch.rand(2, 6, 6, 2), 5), torch.rand(2, 6, 6) < 0.4
    expected = conv(x, basis, adjacency)
    conv.in_blocks = False
    torch.testing.assert_close(conv(x, basis, adjacency), expected)


def test_files_that_compute_something_else_are_refused(exported: Exported) -> None:
    torch.manual_seed(1)
    other = NormMatch(CONFIG)
    message = "^the exported encoder differs from the network by .*, expected 1e-4 at most[.]$"
    with pytest.raises(ExportError, match=message):
        check_parity(other, *exported, free_size=False)
    assert other.training  # as it was


def test_what_is_refused_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        assert {path.name.split(".")[1] for path in (tmp_path / "out").iterdir()} == {"encoder", "head"}
        raise ExportError("it differs")

    monkeypatch.setattr(
        files,
        "trace",
        lambda _: {"encoder": Graph(None, (), (), {"image": {}}), "head": Graph(None, (), (), {"image": {}})},
    )
    monkeypatch.setattr(files, "_write", lambda graph, path, *_: path.touch())
    monkeypatch.setattr(files, "onnx_runner", lambda path: None)
    monkeypatch.setattr(files, "check_parity", refuse)
    with pytest.raises(ExportError, match="it differs"):
        export(NormMatch(CONFIG), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


# ------------------------------------------------------------------------------------------------------ other backbones


def agree(model: NormMatch, *sizes: tuple[int, int]) -> Graph:
    """The encoder's graph, which computes what the network does for images of these sizes."""
    graph = graphs._trace_encoder(model)
    for batch, size in enumerate(sizes, start=1):
        image = torch.rand(batch, 3, *size)
        with torch.no_grad():
            expected = model.encode(image)
            found = graph.program.module()(image)
        for a, b in zip(found, (*expected.maps, expected.pooled), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=0)
    return graph


def test_a_vit_takes_any_multiple_of_its_patch() -> None:
    model = NormMatch(replace(CONFIG, backbone="test_vit", backbone_layers=(2, 5))).eval()
    assert image_step(model) == 16
    assert 2 in agree(model, (96, 96), (160, 160), (64, 208)).axes["image"]


def test_a_swin_has_one_size() -> None:
    model = NormMatch(replace(CONFIG, backbone="swinv2_tiny_window8_256", backbone_layers=(2, 3), image_size=64)).eval()
    assert image_step(model) == 0
    assert agree(model, (64, 64), (64, 64)).axes["image"] == {0: "batch"}


def test_a_size_between_the_strides_is_fixed() -> None:
    model = NormMatch(replace(CONFIG, image_size=100)).eval()
    assert agree(model, (100, 100)).axes["image"] == {0: "batch"}


# ------------------------------------------------------------------------------------------------------------ bad input


def sentence(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The one line that the command ends with."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(["export", *map(str, args)])
    assert caught.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_bad_arguments_get_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = NormMatch(CONFIG)
    weights, out = model.save_pretrained(tmp_path / "weights"), tmp_path / "out"
    missing = sentence(capsys, tmp_path / "none.safetensors", "--out", out)
    assert missing.startswith(f"weights {tmp_path / 'none.safetensors'} not found")
    assert sentence(capsys, weights, "--out", weights).endswith(f"cannot be written: {weights} is not a folder.")
    below = sentence(capsys, weights, "--out", weights / "below")
    assert below.endswith(f"cannot be written: {weights} is not a folder.")
    monkeypatch.setattr(type(model.backbone), "forward", lambda self, image: 1 / 0)
    traced = sentence(capsys, weights, "--out", out)
    assert traced == "the network test_resnet cannot be traced by torch.export: division by zero"
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("format", ["torch", "tflite"])
def test_there_is_one_format(capsys: pytest.CaptureFixture[str], tmp_path: Path, format: str) -> None:
    weights, out = NormMatch(CONFIG).save_pretrained(tmp_path / "weights"), tmp_path / "out"
    said = sentence(capsys, weights, "--out", out, "--format", format)
    assert said == f"format is {format!r}, expected onnx: other formats are not written any more."
    assert not out.exists()


def test_only_files_of_ours_are_replaced(
    exported_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert all(made_by_us(exported_folder / f"{name}.onnx") for name in ("encoder", "head"))
    (tmp_path / "head.onnx").write_text("mine")
    code, _, err = run_command(capsys, "export", exported_folder, "--out", tmp_path)
    assert (code, "head.onnx exists and was not written by NormMatch" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["head.onnx"]
