"""Exported graphs compute what the network does, for any number of images, pairs and points, and say what they are."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from normmatch import PRESETS, NormMatch
from normmatch.errors import ExportError
from normmatch.export import files, graphs
from normmatch.export.files import FILES, export
from normmatch.export.graphs import EMBED_INPUTS, MATCH_INPUTS, MATCH_OUTPUTS, Graph, image_step, trace
from normmatch.export.parity import check_parity
from normmatch.geometry import pad_points
from normmatch.matching.backends.onnx import OnnxBackend
from normmatch.matching.backends.torch import TorchBackend
from normmatch.model.spline import SplineConv, spline_basis
from normmatch.outputs import made_by_us
from normmatch.weights import BUNDLED, FILE_NAME, find_weights
from normmatch.weights.graphs import INDEX, NAMES, find_graphs, read_index
from tests.command_line import run as run_command

CONFIG = PRESETS["tiny"]
SIZE = CONFIG.image_size


@pytest.fixture(scope="module")
def model(exported_folder: Path) -> NormMatch:
    return NormMatch.from_pretrained(exported_folder)


def open_file(folder: Path, name: str) -> Any:
    """A graph as another program opens it: with the weights that lie beside it."""
    return onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("counts0", "counts1", "size0", "size1"),
    [
        ((1,), (1,), (SIZE, SIZE), (SIZE, SIZE)),
        ((30,), (11,), (64, 128), (SIZE, SIZE)),
        ((4, 1, 9, 3, 9), (9, 6, 1, 3, 2), (32, 64), (160, 112)),
    ],
)
def test_other_programs_run_the_files(
    model: NormMatch, exported_folder: Path, counts0: Any, counts1: Any, size0: Any, size1: Any
) -> None:
    """Batches of any images and points, padded, with nothing of ours but the adjacency."""
    rng, n = np.random.default_rng(0), max(*counts0, *counts1)
    data, inputs = {}, {}
    encoder, embed, match = (open_file(exported_folder, name) for name in NAMES)
    for i, counts, size in (("0", counts0, size0), ("1", counts1, size1)):
        image = rng.random((len(counts), 3, *size), dtype=np.float32)
        points = pad_points([rng.uniform(0, size[::-1], (k, 2)).astype(np.float32) for k in counts], n)
        data |= {f"image{i}": image} | {f"{key}{i}": value for key, value in points.items()}
        maps = dict(zip(("first", "second", "pooled"), encoder.run(None, {"image": image}), strict=True))
        place = {"size": np.array(size[::-1], np.float32), **{key: points[key] for key in EMBED_INPUTS[-2:]}}
        (inputs[f"tokens{i}"],) = embed.run(None, maps | place)
        inputs[f"mask{i}"] = points["mask"]
    found = dict(zip(MATCH_OUTPUTS, match.run(None, inputs), strict=True))
    with torch.no_grad():
        expected = model({key: torch.from_numpy(value) for key, value in data.items()})
    for name in ("matches0", "matches1"):
        np.testing.assert_array_equal(found[name], expected[name].numpy())
    for name in ("similarity", "matching_scores0", "matching_scores1", "log_assignment"):
        tolerance = 2e-3 if name == "log_assignment" else 1e-4  # logarithms of next to nothing
        np.testing.assert_allclose(found[name], expected[name].numpy(), atol=tolerance)


def test_nothing_but_the_files_is_left(exported_folder: Path) -> None:
    assert {path.name for path in exported_folder.iterdir()} == {*FILES, FILE_NAME}
    assert sum(path.stat().st_size for path in exported_folder.glob("*.onnx")) < 400_000  # no weights


@pytest.mark.parametrize("name", NAMES)
def test_files_carry_the_config(exported_folder: Path, name: str) -> None:
    session = open_file(exported_folder, name)
    text = session.get_modelmeta().custom_metadata_map["config"]
    assert (json.loads(text)["min_score"], json.loads(text)["image_size"]) == (0.01, SIZE)
    shapes = {item.name: item.shape for item in session.get_inputs()}
    if name == "encoder":
        assert shapes == {"image": ["batch", 3, "height", "width"]}
    elif name == "embed":
        assert tuple(shapes) == EMBED_INPUTS
        assert shapes["adjacency"] == ["batch", "points", "points"]
    else:
        assert tuple(shapes) == MATCH_INPUTS


def test_the_network_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = NormMatch(CONFIG), []
    for name in NAMES:
        monkeypatch.setattr(graphs, f"_trace_{name}", seen.append)
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


def test_graphs_that_compute_something_else_are_refused(exported_folder: Path) -> None:
    torch.manual_seed(1)
    other = NormMatch(replace(CONFIG, num_layers=1, sinkhorn_rounds=2, shared_streams=False))
    with pytest.raises(
        ExportError, match="^the exported encoder differs from the network by .*, expected 1e-4 at most"
    ):
        check_parity(other, exported_folder / FILE_NAME, read_index(exported_folder / INDEX))
    assert other.training  # as it was


def test_what_is_refused_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: NormMatch, file: Path, graphs: Any) -> None:
        assert file.is_file()
        raise ExportError("it differs")

    monkeypatch.setattr(files, "trace", lambda _: {"encoder": Graph(None, (), (), {"image": {}})})
    monkeypatch.setattr(files, "convert", lambda *_: None)
    monkeypatch.setattr(files, "tensors_of", lambda _: {})
    monkeypatch.setattr(files, "in_8_bits", lambda _: [])
    monkeypatch.setattr(files.ir, "save", lambda _, path: path.touch())
    monkeypatch.setattr(files, "check_parity", refuse)
    with pytest.raises(ExportError, match="it differs"):
        export(NormMatch(CONFIG), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


# ------------------------------------------------------------------------------------------------- the bundled network


def test_the_graphs_in_the_package_are_those_of_the_bundled_network(tmp_path: Path) -> None:
    """Made anew they are the same, so that torch and onnx cannot drift apart: `normmatch export small` writes them."""
    known = find_graphs(find_weights("small"), NormMatch.from_pretrained("small").config)
    assert known is not None
    assert known.folder == BUNDLED
    made = files.write_graphs(NormMatch.from_pretrained("small"), find_weights("small"), tmp_path)
    assert replace(made, folder=BUNDLED) == known
    for name in FILES:
        if name != INDEX:
            assert operations(tmp_path / name) == operations(BUNDLED / name), f"{name} is of another network"


def operations(file: Path) -> list[tuple[Any, ...]]:
    """What a graph does, whatever its insides are called."""
    import onnx_ir as ir

    nodes = list(ir.load(file).graph)
    return [(node.op_type, node.domain, *sorted(str(a) for a in node.attributes.values())) for node in nodes]


# ------------------------------------------------------------------------------------------------------ other backbones


def agree(model: NormMatch, *sizes: tuple[int, int]) -> Graph:
    """The encoder's graph, which computes what the network does for images of these sizes."""
    graph = graphs._trace_encoder(model)
    for batch, size in enumerate(sizes, start=1):
        image = torch.rand(batch, 3, *size)
        with torch.no_grad():
            expected = model.encode(image)
            found = dict(zip(graph.outputs, graph.program.module()(image), strict=True))
        names = [f"map{layer}" for layer in model.config.backbone_layers]
        for name, value in zip((*names, "pooled"), (*expected.maps, expected.pooled), strict=True):
            torch.testing.assert_close(found[name], value, atol=1e-4, rtol=0)
    return graph


def test_a_vit_takes_any_multiple_of_its_patch_and_shows_all_its_blocks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = replace(CONFIG, backbone="test_vit", backbone_layers=(2, 5), num_layers=1, sinkhorn_rounds=2)
    model = NormMatch(config).eval()
    assert image_step(model) == 16
    export(model, tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 64, 208), dtype=np.uint8)
    for precision, tolerance in (("float32", 1e-4), ("int8", 0.2)):
        backend = OnnxBackend(tmp_path, "cpu", precision, False)
        assert backend.blocks == (0, 1, 2, 3, 4, 5)
        found = backend.maps(images, (0, 3, 5))
        expected = TorchBackend(model, "cpu", "float32", False).maps(images, (0, 3, 5))
        np.testing.assert_allclose(found, expected, atol=tolerance)


def test_a_swin_has_one_size() -> None:
    model = NormMatch(replace(CONFIG, backbone="swinv2_tiny_window8_256", backbone_layers=(2, 3), image_size=64)).eval()
    assert image_step(model) == 0
    assert agree(model, (64, 64), (64, 64)).axes["image"] == {0: "batch"}


def test_a_size_between_the_strides_is_fixed() -> None:
    model = NormMatch(replace(CONFIG, image_size=100)).eval()
    assert agree(model, (100, 100)).axes["image"] == {0: "batch"}


# ------------------------------------------------------------------------------------------------------------ bad input


def test_bad_arguments_get_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sentence(*args: object) -> str:
        code, _, err = run_command(capsys, "export", *args)
        assert (code, len(err.splitlines())) == (2, 1)
        return err.strip()

    model = NormMatch(CONFIG)
    weights, out = model.save_pretrained(tmp_path / "weights"), tmp_path / "out"
    missing = sentence(tmp_path / "none.safetensors", "--out", out)
    assert missing.startswith(f"weights {tmp_path / 'none.safetensors'} not found")
    assert sentence(weights, "--out", weights).endswith(f"cannot be written: {weights} is not a folder.")
    monkeypatch.setattr(type(model.backbone), "forward", lambda self, image: 1 / 0)
    monkeypatch.setattr(type(model.backbone), "maps", lambda self, image, blocks: 1 / 0)
    traced = sentence(weights, "--out", out)
    assert traced == "the network test_resnet cannot be traced by torch.export: division by zero"
    assert list(out.iterdir()) == []


def test_only_files_of_ours_are_replaced(
    exported_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert all(made_by_us(exported_folder / name) for name in FILES)
    (tmp_path / "match.onnx").write_text("mine")
    code, _, err = run_command(capsys, "export", exported_folder, "--out", tmp_path)
    assert (code, "match.onnx exists and was not written by NormMatch" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["match.onnx"]
