"""The head's attention as one kernel gives what it gives as many: through Triton's interpreter, and on a GPU."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normmatch.model.transformer import Attention
from tests.interpreter import run_interpreted

pytest.importorskip("triton")


def attend(q: Tensor, kv: Tensor, s: Tensor, mask: Tensor, num_heads: int) -> Tensor:
    """softmax(sqrt(d) (s norm(q)) . (s norm(k))) v by its formula, in as many operations as it has."""
    q, s = q.unflatten(-1, (num_heads, -1)).transpose(1, 2), s.view(num_heads, 1, -1)  # (B, heads, T, d)
    k, v = kv.unflatten(-1, (2, num_heads, -1)).permute(2, 0, 3, 1, 4)  # (B, heads, S, d) each
    logits = q.shape[-1] ** 0.5 * (s * F.normalize(q, dim=-1)) @ (s * F.normalize(k, dim=-1)).mT
    shares = logits.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
    return (shares @ v).transpose(1, 2).flatten(2)


def compare(
    shape: tuple[int, int, int], heads: int, width: int, device: str, dtype: torch.dtype = torch.float32
) -> None:
    """Queries and keys of all lengths, one of none; half the tokens are real, and the first, as the global one is."""
    from normmatch.model.compiled.attention_kernel import fused_attend

    images, t, n = shape
    rng = torch.Generator().manual_seed(t)
    q = 5 * torch.randn(images, t, heads * width, generator=rng)
    kv = 2 * torch.randn(images, n, 2 * heads * width, generator=rng)
    q[0, 0], kv[0, 0, : heads * width] = 0.0, 0.0
    s = 2 * torch.rand(heads * width, generator=rng)
    mask = torch.rand(images, n, generator=rng) < 0.5
    mask[:, 0], mask[1] = True, True
    given = q.to(dtype), kv.to(dtype), s
    expected = attend(*(x.double() for x in given), mask, heads)
    kv = given[1].masked_fill(~mask[:, :, None], 100.0)  # whatever stands there is not seen
    found = fused_attend(*(x.to(device) for x in (given[0], kv, s, mask)), heads).cpu()
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, atol=1e-4 if dtype == torch.float32 else 0.05, rtol=0)


def run_all(device: str) -> None:
    from normmatch.model.compiled.attention_kernel import MANY

    compare((3, 9, 9), 4, 8, device)
    compare((3, 33, 33), 5, 64, device)
    compare((3, 16, 16), 2, 54, device)
    compare((3, 5, 40), 1, 16, device)
    compare((3, 70, 5), 1, 16, device)
    compare((3, 33, 33), 2, 64, device, torch.float16)
    for t in (5, 33, 70):
        compare((MANY // 8, t, 20), 8, 16, device)


def test_one_kernel_is_many_in_the_interpreter() -> None:
    run_interpreted(__file__)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_one_kernel_is_many_on_a_gpu() -> None:
    run_all("cuda")
    for n in (17, 63, 64, 65):
        for images in (2, 100):
            compare((images, n, n), 5, 64, "cuda")
    compare((2, 33, 33), 5, 64, "cuda", torch.bfloat16)


@pytest.mark.parametrize(("tokens", "width", "normalized"), [(65, 8, True), (4, 65, True), (4, 8, False)])
def test_what_does_not_fit_is_done_the_plain_way(tokens: int, width: int, normalized: bool) -> None:
    from normmatch.model.compiled.attention_kernel import FusedAttention

    plain = Attention(2 * width, 2, normalized)
    fused = copy.deepcopy(plain)
    fused.__class__ = FusedAttention
    x, mask = torch.rand(1, tokens, 2 * width), torch.ones(1, tokens) > 0
    torch.testing.assert_close(fused(x, x, mask), plain(x, x, mask))


def test_the_formula_is_that_of_the_module() -> None:
    attention = Attention(24, 3, normalized=True)
    attention.s_qk.stored.data += 0.1 * torch.rand(24)
    x, mask = torch.rand(2, 5, 24), torch.tensor([[True] * 5, [True, False, True, True, False]])
    expected = attention.out(attend(attention.q(x), attention.kv(x), attention.s_qk(), mask, 3))
    torch.testing.assert_close(attention(x, x, mask), expected)
