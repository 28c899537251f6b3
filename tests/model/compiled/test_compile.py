"""The fast paths give the answers of the plain network, and say so once where a device or a compiler lets them down."""

import copy
import gc
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from timm.layers import DropPath
from timm.models.swin_transformer_v2 import WindowAttention
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Parameter

from normmatch import PRESETS, NormMatch
from normmatch.errors import ConfigError, DeviceError, InputError
from normmatch.matching.backends.torch import TorchBackend
from normmatch.model import device as device_module
from normmatch.model import spline
from normmatch.model.assignment import log_sinkhorn
from normmatch.model.backbone import Features, compiled_parts, make_backbone
from normmatch.model.compiled import compile as module
from normmatch.model.compiled.compile import CompiledHead, FallbackOnError, bucket, use_window_kernel, with_kernels
from normmatch.model.device import choose_precision
from normmatch.model.transformer import Attention
from normmatch.model.window_attention import FusedWindowAttention, attend, keep_biases
from tests.swin import wake

HEAD_PARTS = 4  # what is gathered at the keypoints, spline convolutions, a layer for all of them, the assignment
SIZE = 64
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def model() -> NormMatch:
    torch.manual_seed(0)
    return NormMatch(
        replace(PRESETS["tiny"], image_size=SIZE, num_layers=1, sinkhorn_rounds=2)
    ).eval()  # compiling takes time


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    """Compile without generating code: what is traced, and how often, is all the same."""
    counter = CompileCounterWithBackend("eager")
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: compile(function, backend=counter, **options))
    return counter


def pair(m: int, n: int, batch: int = 1, seed: int = 0, size: int = SIZE) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    images = {f"image{i}": torch.rand(batch, 3, size, size, generator=rng) for i in "01"}
    points = {f"keypoints{i}": torch.rand(batch, k, 2, generator=rng) * size for i, k in (("0", m), ("1", n))}
    return {**images, **points}


def open_network(model: NormMatch, compile: bool = True) -> TorchBackend:
    return TorchBackend(model, "cpu", "float32", compile)


def answer(network: TorchBackend, data: dict[str, Tensor]) -> dict[str, Tensor]:
    """Encode, embed and match as `Matcher` does."""
    features = network.encode(torch.cat([data["image0"], data["image1"]]).numpy())
    tokens = network.embed(features, [xy.numpy() for i in "01" for xy in data[f"keypoints{i}"]])
    batch, m, n = len(data["image0"]), data["keypoints0"].shape[1], data["keypoints1"].shape[1]
    found = network.match(tokens[:batch], tokens[batch:])
    return dict(zip(("similarity", "log_assignment"), (torch.from_numpy(x[:, :m, :n]) for x in found), strict=True))


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 1e-5) -> None:
    assert found.keys() == {"similarity", "log_assignment"}
    for key, value in found.items():
        tolerance = 100 * atol if key == "log_assignment" else atol  # cosines over epsilon, and logs of nothing
        torch.testing.assert_close(value, expected[key], atol=tolerance, rtol=1e-4, msg=key)


# --------------------------------------------------------------------------------------------------------- same answers


@pytest.mark.parametrize(("m", "n", "batch", "compile"), [(5, 7, 1, False), (1, 1, 2, False), (9, 3, 3, True)])
def test_answers_are_those_of_the_plain_network(
    model: NormMatch, counter: Any, m: int, n: int, batch: int, compile: bool
) -> None:
    network, data = open_network(model, compile), pair(m, n, batch)
    with torch.no_grad():
        assert_same(answer(network, data), model(data))
    assert bool(counter.frame_count) == compile


def test_generated_code_agrees() -> None:
    torch.manual_seed(0)
    config = replace(PRESETS["tiny"], image_size=SIZE, num_layers=1, sinkhorn_rounds=3)
    model = NormMatch(config).eval()
    network, data = open_network(model), pair(6, 5)
    network.backbone = model.backbone  # compiling it takes long, and it is timm's
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert_same(answer(network, data), model(data), 1e-4)


def test_nothing_is_compiled_again_within_a_bucket(model: NormMatch, counter: Any) -> None:
    network = open_network(model)
    answer(network, pair(9, 16))
    before = counter.frame_count
    for m, n in ((10, 9), (16, 16), (12, 2), (3, 11)):
        answer(network, pair(m, n))
    assert counter.frame_count == before
    for count in (20, 40, 20, 60):  # two new buckets: each part of the head is compiled for them
        answer(network, pair(count, count))
    assert counter.frame_count == before + 2 * HEAD_PARTS


def test_an_eager_network_goes_through_nothing_of_the_compilers(tmp_path: Path) -> None:
    NormMatch(PRESETS["tiny"]).save_pretrained(tmp_path / "tiny.safetensors")
    code = """
import sys
import numpy as np
from normmatch import Matcher
points = [[5, 5], [20, 10], [30, 30]]
image = np.zeros((40, 40, 3), np.uint8)
Matcher(sys.argv[1], device="cpu").match(image, image, points, points)
print([name for name in sys.modules if name.startswith("normmatch.model.compiled")])
"""
    found = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "tiny.safetensors"], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


def test_everything_goes_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tensors of a GPU in name only, which have no values: an operation on two devices is an error, as there."""
    head = NormMatch(replace(PRESETS["tiny"], image_size=SIZE)).eval().head
    monkeypatch.setattr(module, "CudaGraphs", lambda function, _: function)
    monkeypatch.setattr(module, "_compile_head", lambda head, _: head)
    with FakeTensorMode():
        for part in head.modules():
            for tensors in (part._parameters, part._buffers):
                for name, value in tensors.items():
                    there = torch.empty(value.shape, dtype=value.dtype, device="cuda") if value is not None else None
                    tensors[name] = Parameter(there) if isinstance(value, Parameter) else there
        compiled = CompiledHead(head, torch.device("cuda"))
        maps = tuple(torch.zeros(2, c, 4, 4, device="cuda") for c in (head.spline.skip.in_features // 2,) * 2)
        pooled = torch.zeros(2, head.global_token.in_features, device="cuda")
        graphs, mask = torch.zeros(2, 9, 9, dtype=torch.bool), torch.zeros(1, 9, dtype=torch.bool)
        with torch.inference_mode():
            tokens = compiled.embed((Features(maps, pooled, (SIZE, SIZE)), torch.zeros(2, 9, 2), graphs))  # type: ignore[arg-type]
            found = compiled.match(tokens, mask, mask)
        assert {value.device.type for value in (tokens, *found.values())} == {"cuda"}
        with torch.inference_mode(), pytest.raises(RuntimeError, match="devices"):
            head.match(tokens, mask, mask)


@pytest.mark.parametrize("compile", [False, True])
def test_what_is_embedded_is_not_kept(model: NormMatch, counter: Any, compile: bool) -> None:
    """Functions that are made once for all must not hold on to the images of their first call."""
    network = open_network(model, compile)
    network.backbone = model.backbone
    features = network.encode(pair(5, 5)["image0"].numpy())
    network.embed(features, [np.random.default_rng(0).uniform(0, SIZE, (5, 2)).astype(np.float32)])
    kept = weakref.ref(features[0].maps[0])
    del features
    gc.collect()
    assert kept() is None


def test_bytes_are_images_too(model: NormMatch) -> None:
    images = (torch.rand(2, 3, SIZE, SIZE) * 255).to(torch.uint8)
    with torch.no_grad():
        expected = model.encode(images / 255)
    for found, value in zip(open_network(model, False).encode(images.numpy()), expected.maps[0], strict=True):
        torch.testing.assert_close(found.maps[0][0], value)


def test_the_model_stays_as_it_was(model: NormMatch) -> None:
    """Also where it is being trained."""
    model = copy.deepcopy(model).train()
    before = copy.deepcopy(model.state_dict())
    for compile in (False, True):
        TorchBackend(model, "cpu", "bfloat16", compile)
    assert model.training
    assert model.backbone.training
    for key, value in model.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key])
    assert model.backbone._compiled_call_impl is None


def test_what_is_compiled_shares_the_weights(model: NormMatch) -> None:
    compiled = CompiledHead(model.head, CPU)
    assert all(a is b for a, b in zip(compiled.compiled.parameters(), model.head.parameters(), strict=True))


def test_half_precision_is_close(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "_has_bfloat16", lambda device: True)
    network, image = TorchBackend(model, "cpu", "auto", False), torch.rand(2, 3, SIZE, SIZE)
    assert network.dtype == torch.bfloat16
    with torch.no_grad():
        expected = model.encode(image)
    for found, wanted in zip(network.encode(image.numpy()), expected.maps[1], strict=True):
        assert found.maps[1].dtype == torch.float32
        assert torch.cosine_similarity(found.maps[1][0], wanted, 0).mean() > 0.999


# ---------------------------------------------------------------------------------------------------------- many points


def test_many_points_go_along_edges(model: NormMatch, counter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pair(40, 37)
    line = {**data, "keypoints0": torch.linspace(1, 60, 40).view(1, 40, 1).repeat(1, 1, 2)}  # no triangles: complete
    with torch.no_grad():
        expected, expected_line = model(data), model(line)
    monkeypatch.setattr(module, "MANY_POINTS", 16)
    network, listed = open_network(model), []
    network.backbone = model.backbone
    along = spline.SplineCNN._along_edges
    monkeypatch.setattr(spline.SplineCNN, "_along_edges", lambda self, *a: listed.append(1) or along(self, *a))
    assert_same(answer(network, data), expected)
    assert listed
    listed.clear()
    assert_same(answer(network, line), expected_line)
    assert not listed
    monkeypatch.setattr(spline, "MANY_POINTS", 16)
    with torch.no_grad():
        for given, wanted in ((data, expected), (line, expected_line)):
            found = model(given)
            assert_same({key: found[key] for key in ("similarity", "log_assignment")}, wanted)


# ----------------------------------------------------------------------------------------------------- window attention


def swin(fused: bool) -> Any:
    torch.manual_seed(0)
    backbone = make_backbone("swinv2_tiny_window8_256", (2, 3), 128, "random", fused)
    wake(backbone)
    return backbone.eval()


def test_fused_window_attention_is_timms() -> None:
    """At 128 pixels the first two stages have several windows and shift them; the others are one window."""
    plain, fused = swin(False), swin(True)
    fused.load_state_dict(plain.state_dict())
    kinds = {type(module) for module in fused.modules() if isinstance(module, WindowAttention)}
    assert kinds == {FusedWindowAttention}
    image = torch.rand(2, 3, 128, 128)
    with torch.no_grad():
        expected, found = plain(image), fused(image)
        keep_biases(fused)
        kept = fused(image)
    for i in (0, 1):
        torch.testing.assert_close(found.maps[i], expected.maps[i], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(kept.maps[i], expected.maps[i], atol=1e-4, rtol=1e-4)


def test_large_windows_fused_attend_kernel() -> None:
    """At 128 pixels windows of 16 x 16 tokens fit into the first two stages, and smaller ones into the others."""
    pytest.importorskip("triton")
    from normmatch.model.compiled.window_kernel import fused_attend

    backbone = make_backbone("swinv2_tiny_window16_256", (2, 3), 128, "random")
    use_window_kernel(backbone)
    chosen = [m.attend is fused_attend for m in backbone.modules() if isinstance(m, FusedWindowAttention)]
    assert chosen == [True] * 4 + [False] * 8


def test_a_head_for_a_gpu_has_kernels_and_the_same_weights() -> None:
    pytest.importorskip("triton")
    from normmatch.model.compiled.attention_kernel import FusedAttention
    from normmatch.model.compiled.sinkhorn_kernel import fused_log_sinkhorn

    head = NormMatch(PRESETS["tiny"]).head
    fused = with_kernels(head, torch.device("cuda"))
    assert fused.log_sinkhorn is fused_log_sinkhorn
    assert {type(m) for m in fused.modules() if isinstance(m, Attention)} == {FusedAttention}
    for model in (head, with_kernels(head, torch.device("cpu"))):
        assert model.log_sinkhorn is log_sinkhorn
        assert {type(m) for m in model.modules() if isinstance(m, Attention)} == {Attention}
    assert all(a is b for a, b in zip(fused.parameters(), head.parameters(), strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_swin_in_window_kernels_on_a_gpu(precision: str) -> None:
    """Windows of 256 tokens, several and shifted in the first stage, and one; then smaller ones."""
    torch.manual_seed(0)
    config = replace(PRESETS["tiny"], backbone="swinv2_tiny_window16_256", backbone_layers=(0, 2), image_size=128)
    model = NormMatch(config).eval().cuda()
    wake(model.backbone)
    network, image = TorchBackend(model, "cuda", precision, True), torch.rand(2, 3, 128, 128)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # of a compiler that gave up
        found, expected = network.encode(image.numpy()), model.encode(image.cuda())
    for i in (0, 1):
        maps = torch.cat([item.maps[i] for item in found])
        cosine = torch.nn.functional.cosine_similarity(maps, expected.maps[i], dim=1)
        assert cosine.min() > (0.9999 if precision == "float32" else 0.999)


def test_fused_window_attention_learns_like_timms() -> None:
    torch.manual_seed(0)
    plain = WindowAttention(16, (4, 4), 2)
    fused = copy.deepcopy(plain)
    fused.__class__ = FusedWindowAttention
    keep_biases(fused)
    fused.train()  # lets the kept bias go
    x, mask = torch.randn(6, 16, 16), torch.randn(3, 16, 16)
    for attention in (plain, fused):
        attention(x, mask).square().sum().backward()
    for (name, expected), found in zip(plain.named_parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, atol=1e-4, rtol=1e-4, msg=name)


def test_a_vits_blocks_share_their_code(counter: Any) -> None:
    """Standardising, patches, and one piece for all blocks."""
    model = NormMatch(replace(PRESETS["tiny"], backbone="test_vit", backbone_layers=(3, 5), image_size=SIZE))
    network, image = open_network(model), torch.rand(1, 3, SIZE, SIZE)
    with torch.no_grad():
        found, expected = network.encode(image.numpy())[0].maps[1], model.eval().encode(image).maps[1]
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 3


def test_a_network_that_is_trained_again_has_gradients() -> None:
    pytest.importorskip("triton")
    backbone = make_backbone("swinv2_tiny_window16_256", (2, 3), 128, "random")
    use_window_kernel(backbone)
    backbone.train()
    assert {m.attend for m in backbone.modules() if isinstance(m, FusedWindowAttention)} == {attend}


def test_swins_blocks_share_their_code(counter: Any) -> None:
    """Two stages of two kinds of blocks, shifted or not, two of one kind, three mergers, two parts before them."""
    config = replace(PRESETS["tiny"], backbone="swinv2_tiny_window8_256", image_size=128)
    model = NormMatch(config)
    wake(model.backbone)
    rates = {module.drop_prob for module in model.backbone.modules() if isinstance(module, DropPath)}
    assert len(rates) > 2
    assert compiled_parts(model.backbone) == [model.backbone]  # as it is trained
    network, image = open_network(model), torch.rand(1, 3, 128, 128)
    with torch.no_grad():
        found, expected = network.encode(image.numpy())[0].maps[1], model.eval().encode(image).maps[1]
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 11
    assert {module.drop_prob for module in model.backbone.modules() if isinstance(module, DropPath)} == rates


# -------------------------------------------------------------------------------------------------------------- trouble


def test_without_a_compiler_it_warns_once_and_runs(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: Any) -> Any:
        raise RuntimeError("No working C++ compiler found\nmore")

    monkeypatch.setattr(module, "_with_settings", lambda function, device: no_compiler)
    network, data = open_network(model), pair(5, 6)
    with pytest.warns(UserWarning, match=r"torch.compile does not work here.*No working C\+\+ compiler found$"):
        found = answer(network, data)
    with torch.no_grad():
        assert_same(found, model(data))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer(network, data)


def test_errors_of_the_user_are_not_taken_for_the_compilers() -> None:
    def wrong(*_: Tensor) -> Any:
        raise InputError("the image is 1 x 1")

    attempt = FallbackOnError(wrong, lambda *_: (), "torch.compile")
    with pytest.raises(InputError):
        attempt(torch.zeros(1))
    assert attempt.fast is not None


@pytest.mark.parametrize("compile", [False, True])
def test_a_small_memory_gets_smaller_batches(
    model: NormMatch, counter: Any, monkeypatch: pytest.MonkeyPatch, compile: bool
) -> None:
    network, data = open_network(model, compile), pair(5, 6, batch=5)
    with torch.no_grad():
        expected = model(data)

    def small(function: Any, most: int) -> Any:
        def run(first: Any, *more: Any) -> Any:
            if len(first[1] if isinstance(first, tuple) else first) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return function(first, *more)

        return run

    backbone, head = model.backbone, network.head
    network.backbone = small(backbone, 3)
    network.head = SimpleNamespace(embed=small(head.embed, 2), match=small(head.match, 4))  # two pairs
    with pytest.warns(UserWarning, match="too many for cpu's memory"):
        assert_same(answer(network, data), expected)
    network.backbone = small(backbone, 0)
    with (
        pytest.warns(UserWarning, match="too many"),
        pytest.raises(DeviceError, match="too little free memory for even one of the images"),
    ):
        answer(network, data)


def test_halves_with_other_numbers_of_points_are_joined(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    network, rng = open_network(model, False), np.random.default_rng(0)
    features = network.encode(torch.rand(4, 3, SIZE, SIZE).numpy())
    points = [rng.uniform(0, SIZE, (n, 2)).astype(np.float32) for n in (3, 9, 4, 2)]
    tokens = network.embed(features, points)
    expected = network.match(tokens[:2], tokens[2:])
    match = network.head.match

    def small(both: Tensor, *masks: Tensor) -> Any:
        if len(both) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return match(both, *masks)

    monkeypatch.setattr(network.head, "match", small)
    with pytest.warns(UserWarning, match="2 pairs at a time are too many"):
        found = network.match(tokens[:2], tokens[2:])
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-3)


def test_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setattr(device_module, "_has_bfloat16", lambda device: True)
    assert choose_precision("auto", CPU) == choose_precision("auto", cuda) == torch.bfloat16
    assert choose_precision("float16", cuda) == torch.float16
    monkeypatch.setattr(device_module, "_has_bfloat16", lambda device: False)
    assert choose_precision("auto", CPU) == torch.float32
    assert choose_precision("auto", cuda) == torch.float16
    for name in ("bfloat16", "float16"):
        with pytest.warns(UserWarning, match=f"cpu has no {name} arithmetic; float32"):
            assert choose_precision(name, CPU) == torch.float32
    with pytest.warns(UserWarning, match="cuda has no bfloat16 arithmetic; float16"):
        assert choose_precision("bfloat16", cuda) == torch.float16
    with pytest.raises(ConfigError, match="precision is 'int4'; expected auto, float32"):
        choose_precision("int4", CPU)


def test_buckets() -> None:
    assert [bucket(n, 8) for n in (0, 1, 8, 9, 16, 17, 1000)] == [8, 8, 8, 16, 16, 32, 1024]
    assert [bucket(n, 1) for n in (0, 1, 2, 3, 5)] == [1, 1, 2, 4, 8]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("count", [7, 20, 150])
def test_compiled_and_recorded_on_a_gpu(count: int) -> None:
    torch.manual_seed(0)
    model = NormMatch(replace(PRESETS["tiny"], image_size=SIZE, sinkhorn_rounds=3)).eval().cuda()
    network = TorchBackend(model, "cuda", "float32", True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for batch in (1, 3):
            data = pair(count, count, batch)
            expected = model({key: value.cuda() for key, value in data.items()})
            for _ in range(2):
                found = answer(network, data)["similarity"]
                torch.testing.assert_close(found, expected["similarity"].cpu(), atol=5e-3, rtol=0)  # TF32
