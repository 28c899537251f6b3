"""The two-stream transformer: attention against a loop, the sphere, the streams, and what must not matter."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from normmatch.model.transformer import (
    Attention,
    NormalizedLayer,
    Scale,
    SwiGLU,
    TwoStreamTransformer,
    UnitLinear,
    VanillaLayer,
    norm,
    swap,
)

FUZZ = settings(deadline=None, max_examples=15, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
KINDS = pytest.mark.parametrize("normalized", [True, False], ids=["normalized", "vanilla"])
DIM, HEADS = 12, 3


@pytest.fixture(autouse=True)
def _seed_and_one_thread():
    """One thread: for matrices this small, waiting for a second core on a busy machine is all that takes time."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tokens(*shape: int) -> Tensor:
    """Random tokens in float64, on the sphere."""
    return norm(torch.randn(*shape, DIM, dtype=torch.float64))


def some_mask(batch: int, length: int) -> Tensor:
    """A random mask (B, T) with the global token, number 0, always valid."""
    mask = torch.rand(batch, length) < 0.6
    mask[:, 0] = True
    return mask


def shake(module: nn.Module) -> nn.Module:
    """Move every parameter off its initial value (in float64), so that no test rests on ones and zeros."""
    for name, parameter in module.double().named_parameters():
        if "weight" not in name:
            parameter.data += 0.3 * parameter.data.abs().mean().clamp_min(0.1) * torch.randn_like(parameter)
    return module.eval()


def two_streams(normalized: bool = True, shared: bool = True, layers: int = 2) -> TwoStreamTransformer:
    return shake(TwoStreamTransformer(DIM, layers, HEADS, 2, normalized=normalized, shared_streams=shared))


def attention_by_loop(attention: Attention, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
    """Query by query and head by head, over the valid keys alone, with the softmax written out."""
    width = DIM // HEADS
    weight_k, weight_v = attention.kv.weight.chunk(2)
    bias_k, bias_v = (0, 0) if attention.normalized else attention.kv.bias.chunk(2)
    bias_q = 0 if attention.normalized else attention.q.bias
    out = torch.zeros_like(x)
    for b in range(x.shape[0]):
        keys = [weight_k @ token + bias_k for token, valid in zip(context[b], mask[b], strict=True) if valid]
        values = [weight_v @ token + bias_v for token, valid in zip(context[b], mask[b], strict=True) if valid]
        for t in range(x.shape[1]):
            query = attention.q.weight @ x[b, t] + bias_q
            for h in range(HEADS):
                part = slice(h * width, (h + 1) * width)
                if attention.normalized:
                    s = attention.s_qk()[part]
                    logits = [(s * norm(query[part])) @ (s * norm(key[part])) * math.sqrt(width) for key in keys]
                else:
                    logits = [query[part] @ key[part] / math.sqrt(width) for key in keys]
                weights = [logit.exp() for logit in logits]
                mixed = sum(w * value[part] for w, value in zip(weights, values, strict=True))
                out[b, t, part] = mixed / sum(weights)
    return attention.out(out)


@KINDS
@FUZZ
@given(seed=seeds, batch=st.integers(1, 2), queries=st.integers(1, 4), keys=st.integers(1, 4))
def test_attention_equals_an_unfused_loop(normalized, seed, batch, queries, keys):
    torch.manual_seed(seed)
    attention = shake(Attention(DIM, HEADS, normalized))
    x, context, mask = tokens(batch, queries), tokens(batch, keys), some_mask(batch, keys)
    with torch.no_grad():
        expected = attention_by_loop(attention, x, context, mask)
        torch.testing.assert_close(attention(x, context, mask), expected)


@KINDS
def test_masked_keys_have_no_influence(normalized):
    attention = shake(Attention(DIM, HEADS, normalized))
    x, context = tokens(2, 4), tokens(2, 5)
    mask = torch.tensor([[True, True, False, True, False], [True, False, False, False, True]])
    expected = attention(x, context, mask)
    context[~mask] = 100 * torch.randn_like(context[~mask])
    torch.testing.assert_close(attention(x, context, mask), expected)
    context[mask] = context[mask].roll(1, 0)
    assert not torch.allclose(attention(x, context, mask), expected)  # valid ones do have


def test_query_and_key_scales_start_at_one():
    attention = Attention(DIM, HEADS, normalized=True)
    torch.testing.assert_close(attention.s_qk(), torch.ones(DIM))
    torch.testing.assert_close(attention.s_qk.stored, torch.full((DIM,), DIM**-0.5))


def test_swiglu_by_its_formula():
    mlp, x = shake(SwiGLU(DIM, 20, normalized=True)), tokens(2, 3)
    up, gate = mlp.up_gate.weight.chunk(2)
    u, v = mlp.s_u * (x @ up.T), mlp.s_v * math.sqrt(DIM) * (x @ gate.T)
    torch.testing.assert_close(mlp(x), (u * v * torch.sigmoid(v)) @ mlp.down.weight.T)


def test_vanilla_swiglu_by_its_formula():
    mlp, x = shake(SwiGLU(DIM, 20, normalized=False)), tokens(2, 3)
    u, v = (x @ mlp.up_gate.weight.T + mlp.up_gate.bias).chunk(2, -1)
    torch.testing.assert_close(mlp(x), (u * v * torch.sigmoid(v)) @ mlp.down.weight.T + mlp.down.bias)


def test_mlp_scales_start_at_one():
    mlp = SwiGLU(DIM, 20, normalized=True)
    assert (mlp.s_u == 1).all()
    assert (mlp.s_v == 1).all()


@pytest.mark.parametrize(("dtype", "kept"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_norm_is_computed_in_float32_at_least(dtype, kept):
    x = norm(torch.randn(50, 300).to(dtype))
    assert x.dtype == kept
    torch.testing.assert_close(x.norm(dim=-1), torch.ones(50, dtype=kept), atol=1e-6, rtol=0)


def test_step_by_its_formula_and_alphas_start_at_a_twentieth():
    layer, x, y = NormalizedLayer(DIM, HEADS, 24, 0.0).double(), tokens(2, 3), 7 * torch.randn(2, 3, DIM).double()
    for alpha in (layer.alpha_self, layer.alpha_cross, layer.alpha_global, layer.alpha_mlp):
        torch.testing.assert_close(alpha(), torch.full((DIM,), 0.05, dtype=torch.float64))
        torch.testing.assert_close(alpha.stored.float(), torch.full((DIM,), DIM**-0.5))  # nGPT: moves as fast as others
        expected = x + 0.05 * (y / y.norm(dim=-1, keepdim=True) - x)
        torch.testing.assert_close(layer.step(x, y, alpha()), expected / expected.norm(dim=-1, keepdim=True))


def test_a_step_never_goes_backwards():
    """Alpha is positive: whatever the optimiser makes of what is stored, a step goes towards y."""
    layer, x, y = NormalizedLayer(DIM, HEADS, 24, 0.0).double(), tokens(2, 3), tokens(2, 3)
    layer.alpha_self.stored.data.copy_(torch.randn(DIM))
    stored = layer.alpha_self.stored.data.clone()
    moved = layer.step(x, y, layer.alpha_self())
    layer.alpha_self.stored.data.copy_(stored.abs())
    torch.testing.assert_close(layer.step(x, y, layer.alpha_self()), moved)


def test_scale_is_stored_small_and_read_at_its_value():
    scale = Scale(7, 0.3, 64)
    torch.testing.assert_close(scale(), torch.full((7,), 0.3))
    torch.testing.assert_close(scale.stored, torch.full((7,), 0.125))


def layer_by_hand(layer: NormalizedLayer, x: Tensor, other: Tensor, mask: Tensor, mask_other: Tensor) -> Tensor:
    """The layer's equations, with the global modulation as the third step."""

    def step(x: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
        return F.normalize(x + alpha * (F.normalize(y, dim=-1) - x), dim=-1)

    x = step(x, attention_by_loop(layer.self_attention, x, x, mask), layer.alpha_self().abs())
    x = step(x, attention_by_loop(layer.cross_attention, x, other, mask_other), layer.alpha_cross().abs())
    x = step(x, x * x[:, 0].unsqueeze(1), layer.alpha_global().abs())
    return step(x, layer.mlp(x), layer.alpha_mlp().abs())


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
@torch.no_grad()
def test_streams_read_each_other_as_at_the_start_of_the_layer(shared):
    model = two_streams(shared=shared)
    x, mask = tokens(4, 4), some_mask(4, 4)
    first, second = x.chunk(2)
    mask0, mask1 = mask.chunk(2)
    outputs = model(x, mask)
    assert len(outputs) == 2
    for streams, output in zip(model.layers, outputs, strict=True):
        new_first = layer_by_hand(streams[0], first, second, mask0, mask1)
        second = layer_by_hand(streams[-1], second, first, mask1, mask0)  # not the new first
        first = new_first
        torch.testing.assert_close(output, torch.cat([first, second]))


@torch.no_grad()
def test_global_modulation_multiplies_by_the_global_token():
    layer, x, mask = shake(NormalizedLayer(DIM, HEADS, 24, 0.0)), tokens(2, 4), some_mask(2, 4)
    for alpha in (layer.alpha_self, layer.alpha_cross, layer.alpha_mlp):
        alpha.stored.zero_()
    modulated = norm(x * x[:, :1])
    expected = norm(x + layer.alpha_global().abs() * (modulated - x))
    torch.testing.assert_close(layer(x, x, mask, mask), expected)
    assert not torch.allclose(expected, x)


@torch.no_grad()
def test_vanilla_layer_by_its_formula():
    layer = shake(VanillaLayer(DIM, HEADS, 24, 0.0))
    x, other, mask, mask_other = 3 * tokens(2, 4), tokens(2, 5), some_mask(2, 4), some_mask(2, 5)
    y = x + attention_by_loop(layer.self_attention, layer.norm_self(x), layer.norm_self(x), mask)
    context = layer.norm_context(other)
    y = y + attention_by_loop(layer.cross_attention, layer.norm_cross(y), context, mask_other)
    modulated = layer.norm_global(y)
    y = y + modulated * modulated[:, :1]
    torch.testing.assert_close(layer(x, other, mask, mask_other), y + layer.mlp(layer.norm_mlp(y)))


def test_the_switch_to_vanilla():
    kinds = {type(module) for module in two_streams(normalized=False).modules()}
    assert VanillaLayer in kinds
    assert not kinds & {NormalizedLayer, UnitLinear, Scale}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unit_norm_after_every_step_of_every_layer(monkeypatch, shared, dtype):
    """Promise 5, watched from within: also with weights far from their initial values, and in training."""
    model = TwoStreamTransformer(DIM, 3, HEADS, 2, shared_streams=shared, drop_path=0.3).to(dtype)
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter)
    lengths = []
    step = NormalizedLayer.step

    def watched(self, x, y, alpha):
        out = step(self, x, y, alpha)
        lengths.extend((x.norm(dim=-1), out.norm(dim=-1)))
        return out

    monkeypatch.setattr(NormalizedLayer, "step", watched)
    outputs = model(tokens(4, 6).to(dtype), some_mask(4, 6))
    assert len(lengths) == 2 * 4 * 3 * (1 if shared else 2)
    for length in (*lengths, *(output.norm(dim=-1) for output in outputs)):
        torch.testing.assert_close(length, torch.ones_like(length), atol=1e-5, rtol=0)


@KINDS
def test_outputs_are_unit_vectors(normalized):
    for output in two_streams(normalized)(tokens(2, 5), some_mask(2, 5)):
        torch.testing.assert_close(output.norm(dim=-1), torch.ones(2, 5, dtype=torch.float64))


def assert_unit_matrices(model: TwoStreamTransformer) -> None:
    """q, k, v, up and gate have unit rows (along the input), out and down unit columns (along the output)."""
    for streams in model.layers:
        for layer in streams:
            attentions = (layer.self_attention, layer.cross_attention)
            rows = [m.weight for a in attentions for m in (a.q, a.kv)] + [layer.mlp.up_gate.weight]
            columns = [a.out.weight for a in attentions] + [layer.mlp.down.weight]
            for length in [w.norm(dim=1) for w in rows] + [w.norm(dim=0) for w in columns]:
                torch.testing.assert_close(length, torch.ones_like(length), atol=1e-6, rtol=0)


@pytest.mark.parametrize("shared", [True, False])
def test_matrices_are_on_the_sphere_at_the_start_and_after_every_step(shared):
    model = TwoStreamTransformer(DIM, 2, HEADS, 2, shared_streams=shared)
    assert_unit_matrices(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        first, second = model(tokens(2, 5).float(), some_mask(2, 5))[-1]
        (first * second.roll(1, 0)).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimiser.step()
        with pytest.raises(AssertionError):
            assert_unit_matrices(model)  # the step leaves the sphere
        model.normalize_weights()
        assert_unit_matrices(model)


@KINDS
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
def test_swapping_the_images_swaps_the_answer_where_weights_are_shared(normalized, shared):
    model, x, mask = two_streams(normalized, shared), tokens(4, 5), some_mask(4, 5)
    there, back = model(x, mask)[-1], swap(model(swap(x), swap(mask))[-1])
    assert torch.allclose(there, back) == shared


def test_swap_exchanges_first_and_second_images():
    assert torch.equal(swap(torch.arange(6)), torch.tensor([3, 4, 5, 0, 1, 2]))


def test_number_of_layers_and_of_streams():
    def count(model: TwoStreamTransformer) -> int:
        return sum(p.numel() for p in model.parameters())

    assert count(two_streams(shared=False)) == 2 * count(two_streams())
    assert count(two_streams(layers=4)) == 2 * count(two_streams(layers=2))


@KINDS
@FUZZ
@given(seed=seeds, batch=st.integers(1, 3), length=st.integers(1, 5), more=st.integers(0, 4), shared=st.booleans())
def test_padding_and_order_and_the_batch_mean_nothing(normalized, seed, batch, length, more, shared):
    """Valid tokens come out the same with any garbage as padding, in any order, alone or in a batch."""
    torch.manual_seed(seed)
    model, x, mask = two_streams(normalized, shared), tokens(2 * batch, length), some_mask(2 * batch, length)
    expected = model(x, mask)
    order = torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(length + more - 1)])  # global stays first
    padded = torch.cat([x.masked_fill(~mask.unsqueeze(2), 40.0), torch.randn(2 * batch, more, DIM)], 1)[:, order]
    outputs = model(padded, F.pad(mask, (0, more))[:, order])
    pair = torch.tensor([0, batch])
    alone = model(x[pair], mask[pair])
    for want, output, single in zip(expected, outputs, alone, strict=True):
        torch.testing.assert_close(output[:, order.argsort()][:, :length][mask], want[mask])
        torch.testing.assert_close(single[mask[pair]], want[pair][mask[pair]])


@KINDS
def test_the_other_image_matters_and_other_pairs_do_not(normalized):
    model, x, mask = two_streams(normalized), tokens(4, 5), torch.ones(4, 5, dtype=torch.bool)
    before = model(x, mask)[-1]
    x[2] = tokens(5)  # the partner of image 0
    after = model(x, mask)[-1]
    assert not torch.allclose(before[0], after[0])
    torch.testing.assert_close(after[[1, 3]], before[[1, 3]])


@KINDS
def test_a_model_with_drop_path_is_deterministic_in_evaluation_alone(normalized):
    model = TwoStreamTransformer(DIM, 2, HEADS, 2, normalized=normalized, drop_path=0.5).double()
    x, mask = tokens(6, 4), some_mask(6, 4)
    assert not torch.equal(model.train()(x, mask)[-1], model(x, mask)[-1])
    assert torch.equal(model.eval()(x, mask)[-1], model(x, mask)[-1])


@KINDS
def test_gradients(normalized):
    kind = NormalizedLayer if normalized else VanillaLayer
    layer = shake(kind(4, 2, 4, 0.0))
    x, other = (torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mask, mask_other = torch.tensor([[True, True, False]]), torch.tensor([[True, False, True]])
    parameters = dict(layer.named_parameters())

    def run(x: Tensor, other: Tensor, *values: Tensor) -> Tensor:
        named = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(layer, named, (x, other, mask, mask_other))

    assert torch.autograd.gradcheck(run, (x, other, *parameters.values()), fast_mode=True)
