"""The fast paths give the answers of the plain network, and say so once where a device or a compiler lets them down."""

import copy
import gc
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

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
from normmatch.model import spline, transformer
from normmatch.model.assignment import alternate
from normmatch.model.backbone import compiled_parts, make_backbone
from normmatch.model.compiled import compile as fast_module
from normmatch.model.compiled.compile import Attempt, FastNetwork, bucket, choose_precision, with_kernels
from normmatch.model.network import cut, equal_points
from normmatch.model.window_attention import FusedWindowAttention, attend, keep_biases, use_window_kernel
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


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 1e-5) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if key.startswith("matches"):
            assert torch.equal(found[key], value), key
        else:
            tolerance = 100 * atol if key == "log_assignment" else atol  # cosines over epsilon, and logs of nothing
            torch.testing.assert_close(found[key], value, atol=tolerance, rtol=1e-4, msg=key)


# --------------------------------------------------------------------------------------------------------- same answers


@pytest.mark.parametrize(("m", "n", "batch", "compile"), [(5, 7, 1, False), (1, 1, 2, False), (9, 3, 3, True)])
def test_answers_are_those_of_the_plain_network(
    model: NormMatch, counter: Any, m: int, n: int, batch: int, compile: bool
) -> None:
    fast = FastNetwork(model, precision="float32", compile=compile)
    data = pair(m, n, batch)
    with torch.no_grad():
        assert_same(fast.match(data), model(data))
    assert bool(counter.frame_count) == compile


def test_generated_code_agrees() -> None:
    torch.manual_seed(0)
    config = replace(PRESETS["tiny"], image_size=SIZE, num_layers=1, sinkhorn_rounds=3)
    model = NormMatch(config).eval()
    fast, data = FastNetwork(model, precision="float32", compile=True), pair(6, 5)
    fast._backbone = fast._encoder(fast.backbone)  # compiling it takes long, and it is timm's
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert_same(fast.match(data), model(data), 1e-4)


def test_nothing_is_compiled_again_within_a_bucket(model: NormMatch, counter: Any) -> None:
    fast = FastNetwork(model, precision="float32", compile=True)
    fast.match(pair(9, 16))
    before = counter.frame_count
    for m, n in ((10, 9), (16, 16), (12, 2), (3, 11)):
        fast.match(pair(m, n))
    assert counter.frame_count == before
    for count in (20, 40, 20, 60):  # two new buckets: each part of the head is compiled for them
        fast.match(pair(count, count))
    assert counter.frame_count == before + 2 * HEAD_PARTS


def look_and_compare(fast: FastNetwork, data: dict[str, Tensor]) -> dict[str, Tensor]:
    """Both images by themselves, then the pair: their tokens and masks filled up to the same number."""
    points = equal_points(data)
    tokens = [fast.look(fast.encode(data[f"image{i}"]), points[f"keypoints{i}"], points[f"adjacency{i}"]) for i in "01"]
    found = fast.compare(tokens[0], tokens[1], points["mask0"], points["mask1"])
    return cut(found, data["keypoints0"].shape[1], data["keypoints1"].shape[1])


@pytest.mark.parametrize("compile", [False, True])
def test_images_that_were_looked_at_before(model: NormMatch, counter: Any, compile: bool) -> None:
    data, fast = pair(5, 3, 2), FastNetwork(model, precision="float32", compile=compile)
    fast._backbone = fast._encoder(fast.backbone)
    with torch.no_grad():
        assert_same(look_and_compare(fast, data), model(data))
    assert counter.frame_count == (HEAD_PARTS if compile else 0)


def test_everything_goes_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tensors of a GPU in name only, which have no values: an operation on two devices is an error, as there."""
    monkeypatch.setattr(fast_module, "_has_bfloat16", lambda device: True)
    model = NormMatch(replace(PRESETS["tiny"], image_size=SIZE)).eval()
    with FakeTensorMode():
        for module in model.modules():
            for tensors in (module._parameters, module._buffers):
                for name, value in tensors.items():
                    there = torch.empty(value.shape, dtype=value.dtype, device="cuda") if value is not None else None
                    tensors[name] = Parameter(there) if isinstance(value, Parameter) else there
        fast = FastNetwork(model, precision="float32")
        features = fast.encode(torch.zeros(2, 3, SIZE, SIZE, dtype=torch.uint8))
        graphs, mask = torch.zeros(2, 9, 9, dtype=torch.bool), torch.zeros(2, 9, dtype=torch.bool)
        tokens = fast.look(features, torch.zeros(2, 9, 2), graphs)
        found = fast.compare(tokens, tokens, mask, mask)
        assert {value.device.type for value in (*features.maps, tokens, *found.values())} == {"cuda"}
        with torch.inference_mode(), pytest.raises(RuntimeError, match="devices"):
            model.head.compare(torch.cat([tokens, tokens]), mask, mask)


def test_what_is_looked_at_is_not_kept(model: NormMatch) -> None:
    """Functions that are made once for all must not hold on to the images of their first call."""
    data, fast = pair(5, 5), FastNetwork(model, precision="float32")
    features, points = fast.encode(data["image0"]), equal_points(data)
    fast.look(features, points["keypoints0"], points["adjacency0"])
    kept = weakref.ref(features.maps[0])
    del features
    gc.collect()
    assert kept() is None


def test_bytes_are_images_too(model: NormMatch) -> None:
    fast = FastNetwork(model, precision="float32")
    images = (torch.rand(2, 3, SIZE, SIZE) * 255).to(torch.uint8)
    with torch.no_grad():
        expected = model.encode(images / 255)
    for found, value in zip(fast.encode(images).maps, expected.maps, strict=True):
        torch.testing.assert_close(found, value)


def test_images_of_different_sizes(model: NormMatch) -> None:
    fast = FastNetwork(model, precision="float32")
    data = {**pair(4, 4), "image1": torch.rand(1, 3, 96, 64)}
    with torch.no_grad():
        assert_same(fast.match(data), model(data))


def test_no_pairs_at_all(model: NormMatch) -> None:
    fast = FastNetwork(model, precision="float32")
    output = fast.match({key: value[:0] for key, value in pair(4, 6).items()})
    assert output["matches0"].shape == (0, 4)
    assert output["similarity"].shape == (0, 4, 6)


def test_the_model_stays_as_it_was(model: NormMatch) -> None:
    before = copy.deepcopy(model.state_dict())
    FastNetwork(model, precision="bfloat16", compile=True)
    for key, value in model.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key])
    assert model.backbone._compiled_call_impl is None


def test_float32_shares_the_weights(model: NormMatch) -> None:
    fast = FastNetwork(model, precision="float32", compile=True)
    assert next(fast.backbone.parameters()) is next(model.backbone.parameters())


def test_half_precision_is_close(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_module, "_has_bfloat16", lambda device: True)
    fast, image = FastNetwork(model), torch.rand(2, 3, SIZE, SIZE)
    assert fast.dtype == torch.bfloat16
    with torch.no_grad():
        expected = model.encode(image)
    found = fast.encode(image)
    for value, wanted in zip(found.maps, expected.maps, strict=True):
        assert value.dtype == torch.float32
        assert torch.cosine_similarity(value, wanted, 1).mean() > 0.999


# ---------------------------------------------------------------------------------------------------------- many points


def test_many_points_go_along_edges(model: NormMatch, counter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pair(40, 37)
    line = {**data, "keypoints0": torch.linspace(1, 60, 40).view(1, 40, 1).repeat(1, 1, 2)}  # no triangles: complete
    with torch.no_grad():
        expected, expected_line = model(data), model(line)
    monkeypatch.setattr(fast_module, "MANY_POINTS", 16)
    fast = FastNetwork(model, precision="float32", compile=True)
    fast._backbone = fast._encoder(fast.backbone)
    assert_same(fast.match(data), expected)
    assert_same(fast.match(line), expected_line)
    assert {"edges0" in names for *_, names in fast._parts} == {True, False}
    assert_same(look_and_compare(fast, data), expected)
    assert_same(look_and_compare(fast, line), expected_line)
    monkeypatch.setattr(spline, "MANY_POINTS", 16)
    with torch.no_grad():
        assert_same(model(data), expected)
        assert_same(model(line), expected_line)


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
    from normmatch.model.compiled.attention_kernel import fused_attend
    from normmatch.model.compiled.sinkhorn_kernel import fused_alternate

    head = NormMatch(PRESETS["tiny"]).head
    fused = with_kernels(head, torch.device("cuda"))
    assert fused.alternate is fused_alternate
    assert {m.attend for m in fused.modules() if isinstance(m, transformer.Attention)} == {fused_attend}
    for model in (head, with_kernels(head, torch.device("cpu"))):
        assert model.alternate is alternate
        assert {m.attend for m in model.modules() if isinstance(m, transformer.Attention)} == {transformer.attend}
    assert all(a is b for a, b in zip(fused.parameters(), head.parameters(), strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_swin_in_window_kernels_on_a_gpu(precision: str) -> None:
    """Windows of 256 tokens, several and shifted in the first stage, and one; then smaller ones."""
    torch.manual_seed(0)
    config = replace(PRESETS["tiny"], backbone="swinv2_tiny_window16_256", backbone_layers=(0, 2), image_size=128)
    model = NormMatch(config).eval().cuda()
    wake(model.backbone)
    fast, image = FastNetwork(model, precision=precision, compile=True), torch.rand(2, 3, 128, 128).cuda()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # of a compiler that gave up
        found, expected = fast.encode(image), model.encode(image)
    for i in (0, 1):
        cosine = torch.nn.functional.cosine_similarity(found.maps[i], expected.maps[i], dim=1)
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
    fast, image = FastNetwork(model, precision="float32", compile=True), torch.rand(1, 3, SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(fast.encode(image).maps[1], model.encode(image).maps[1], atol=1e-4, rtol=1e-4)
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
    fast, image = FastNetwork(model, precision="float32", compile=True), torch.rand(1, 3, 128, 128)
    with torch.no_grad():
        torch.testing.assert_close(fast.encode(image).maps[1], model.encode(image).maps[1], atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 11
    assert {module.drop_prob for module in model.backbone.modules() if isinstance(module, DropPath)} == rates


# -------------------------------------------------------------------------------------------------------------- trouble


def test_without_a_compiler_it_warns_once_and_runs(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: Any) -> Any:
        raise RuntimeError("No working C++ compiler found\nmore")

    monkeypatch.setattr(fast_module, "_with_settings", lambda function, device: no_compiler)
    fast, data = FastNetwork(model, precision="float32", compile=True), pair(5, 6)
    with pytest.warns(UserWarning, match=r"torch.compile does not work here.*No working C\+\+ compiler found$"):
        found = fast.match(data)
    with torch.no_grad():
        assert_same(found, model(data))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast.match(data)


def test_errors_of_the_user_are_not_taken_for_the_compilers() -> None:
    def wrong(*_: Tensor) -> Any:
        raise InputError("the image is 1 x 1")

    attempt = Attempt(wrong, lambda *_: (), "torch.compile")
    with pytest.raises(InputError):
        attempt(torch.zeros(1))
    assert attempt.fast is not None


def test_a_small_memory_gets_smaller_batches(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, data = FastNetwork(model, precision="float32"), pair(5, 6, batch=5)
    with torch.no_grad():
        expected = model(data)

    def small(function: Any, most: int) -> Any:
        def run(*tensors: Tensor) -> Any:
            if len(tensors[0]) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return function(*tensors)

        return run

    monkeypatch.setattr(fast, "_backbone", small(fast._backbone, 3))
    part = fast._part
    monkeypatch.setattr(fast, "_part", lambda *key: small(part(*key), 2))
    for match in (fast.match, partial(look_and_compare, fast)):
        with pytest.warns(UserWarning, match="too many for cpu's memory"):
            assert_same(match(data), expected)
    monkeypatch.setattr(fast, "_backbone", small(fast._backbone, 0))
    with (
        pytest.warns(UserWarning, match="too many"),
        pytest.raises(DeviceError, match="too little free memory for even one of the images"),
    ):
        fast.match(data)


def test_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setattr(fast_module, "_has_bfloat16", lambda device: True)
    assert choose_precision("auto", CPU) == choose_precision("auto", cuda) == torch.bfloat16
    assert choose_precision("float16", cuda) == torch.float16
    monkeypatch.setattr(fast_module, "_has_bfloat16", lambda device: False)
    assert choose_precision("auto", CPU) == torch.float32
    assert choose_precision("auto", cuda) == torch.float16
    for name in ("bfloat16", "float16"):
        with pytest.warns(UserWarning, match=f"cpu has no {name} arithmetic; float32"):
            assert choose_precision(name, CPU) == torch.float32
    with pytest.warns(UserWarning, match="cuda has no bfloat16 arithmetic; float16"):
        assert choose_precision("bfloat16", cuda) == torch.float16
    with pytest.raises(ConfigError, match="precision is 'int4', expected auto, float32"):
        choose_precision("int4", CPU)


def test_buckets() -> None:
    assert [bucket(n, 8) for n in (0, 1, 8, 9, 16, 17, 1000)] == [8, 8, 8, 16, 16, 32, 1024]
    assert [bucket(n, 1) for n in (0, 1, 2, 3, 5)] == [1, 1, 2, 4, 8]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("count", [7, 20, 150])
def test_compiled_and_recorded_on_a_gpu(count: int) -> None:
    torch.manual_seed(0)
    model = NormMatch(replace(PRESETS["tiny"], image_size=SIZE, sinkhorn_rounds=3)).eval().cuda()
    fast = FastNetwork(model, precision="float32", compile=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for batch in (1, 3):
            data = {key: value.cuda() for key, value in pair(count, count, batch).items()}
            expected = model(data)
            for match in (fast.match, fast.match, partial(look_and_compare, fast), partial(look_and_compare, fast)):
                found = match(data)
                torch.testing.assert_close(found["similarity"], expected["similarity"], atol=5e-3, rtol=0)  # TF32
                assert (found["matches0"] == expected["matches0"]).float().mean() > 0.9
