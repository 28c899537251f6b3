"""The head's attention as one GPU kernel: unit queries and keys, softmax, values.

For up to 64 tokens (compiled networks see 33 for 32 points, then 65) and heads of up to 64 channels: such a sequence
fits into one program. General kernels take longer here to find their way than to do the work, and need others before
them for the unit vectors and the mask.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from normmatch.model.transformer import Attention

MOST_TOKENS = MOST_CHANNELS = 64  # more do not fit into the shared memory of every GPU
MANY = 256  # heads of all images: with fewer, an image's queries are shared among programs, or most of a GPU would rest


class FusedAttention(Attention):
    """`Attention` with another `forward`, without gradients; parameters and their names are its own."""

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """`Attention.forward`, in one kernel where it is the normalized kind and fits."""
        width = x.shape[-1] // self.num_heads
        if not self.normalized or context.shape[1] > MOST_TOKENS or width > MOST_CHANNELS:
            return super().forward(x, context, mask)
        return self.out(fused_attend(self.q(x), self.kv(context), self.s_qk(), mask, self.num_heads))  # (B, T, D)


def fused_attend(q: Tensor, kv: Tensor, s: Tensor, mask: Tensor, num_heads: int) -> Tensor:
    """softmax(sqrt(d) (s norm(q)) . (s norm(k))) v of q (B, T, D) and kv (B, S, 2D), where mask (B, S); (B, T, D)."""
    (batch, queries, dim), keys = q.shape, kv.shape[1]
    width = dim // num_heads
    together = min(_room(queries), MOST_TOKENS) if batch * num_heads >= MANY else 16
    out = q.new_empty(q.shape)
    _attend[(batch * num_heads, triton.cdiv(queries, together))](
        q.contiguous(), kv.contiguous(), s.contiguous(), mask.contiguous(), out, queries, keys, num_heads,
        width**0.5 * math.log2(math.e), width, together, _room(keys), _room(width), num_warps=4,
    )  # fmt: skip
    return out


def _room(count: int) -> int:
    """What a matrix product on a GPU takes for so many rows or columns: a power of two, at least 16."""
    return max(16, 1 << (count - 1).bit_length())


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    q, kv, s, mask, out, queries, keys, heads,
    scale: tl.constexpr, width: tl.constexpr, QUERIES: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Queries i of one head of one image over all its keys j; e^x is 2^x here, which GPUs have."""
    image, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    i, j, d = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES), tl.arange(0, N), tl.arange(0, D)
    here_i, here_j = (i < queries)[:, None] & (d < width), (j < keys)[:, None] & (d < width)
    row = heads * width
    rows = (image * queries + i[:, None]) * row + head * width + d  # (QUERIES, D)
    columns = (image * keys + j[:, None]) * 2 * row + head * width + d  # (N, D)
    valid = tl.load(mask + image * keys + j, j < keys, 0) != 0  # (N,)

    factor = tl.load(s + head * width + d, d < width, 0.0).to(tl.float32)  # (D,)
    x = tl.load(q + rows, here_i, 0.0).to(tl.float32)  # (QUERIES, D)
    x *= factor * (scale / tl.maximum(tl.sqrt(tl.sum(x * x, 1)), 1e-12))[:, None]
    k = tl.load(kv + columns, here_j, 0.0).to(tl.float32)  # (N, D)
    k *= factor / tl.maximum(tl.sqrt(tl.sum(k * k, 1)), 1e-12)[:, None]
    v = tl.load(kv + columns + row, here_j, 0.0).to(tl.float32)

    logits = tl.where(valid, tl.dot(x, tl.trans(k), input_precision="tf32x3"), -1e30)  # (QUERIES, N)
    p = tl.exp2(logits - tl.max(logits, 1)[:, None])
    y = tl.dot(p, v, input_precision="tf32x3") / tl.sum(p, 1)[:, None]  # (QUERIES, D)
    tl.store(out + rows, y.to(out.dtype.element_ty), here_i)
