"""SwinV2's window attention as one GPU kernel: cosines, position bias and mask, softmax, values.

A window has hundreds of tokens and its heads are narrow, so most of the work is what surrounds the two products.
General kernels (SDPA, FlexAttention) are slower here, and need another one before them to normalise queries and keys.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

QUERIES, KEYS = 64, 64  # tokens that a program holds at once


def fused_attend(qkv: Tensor, scale: Tensor, logits: Tensor, dropout: float = 0.0) -> Tensor:
    """`attend` without gradients or dropout; heads have a power of two of channels, at least 16 (SwinV2's have 32).

    Products are in the precision of qkv, for float32 in TF32.
    """
    windows, heads, n, _ = logits.shape
    parts = qkv.unflatten(2, (3, heads, -1))  # (B * windows, N, 3, heads, D)
    inverse_norms = 1 / parts[:, :, 1].float().norm(dim=-1).clamp_min(1e-12)  # (B * windows, N, heads): of the keys
    scale, logits = (t.float() * math.log2(math.e) for t in (scale, logits))  # e^x as 2^x, which GPUs have
    out = qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)
    _attend[(len(qkv) * heads * triton.cdiv(n, QUERIES),)](
        qkv.contiguous(), inverse_norms.mT.contiguous(), scale.contiguous(), logits.to(qkv.dtype).contiguous(), out,
        windows, heads, n, parts.shape[-1], QUERIES, KEYS, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    qkv, inverse_norms, scale, logits, out, windows, heads,
    N: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Queries i of one head in one window, over blocks of its keys j; the softmax is kept up as they come."""
    blocks: tl.constexpr = tl.cdiv(N, QUERIES)
    window_head = tl.program_id(0) // blocks  # blocks that share keys run side by side
    window, head = (window_head // heads).to(tl.int64), window_head % heads
    i, j, d = tl.program_id(0) % blocks * QUERIES + tl.arange(0, QUERIES), tl.arange(0, KEYS), tl.arange(0, D)
    valid_i = ((i < N) | (N % QUERIES == 0))[:, None]  # where blocks fill a window the compiler knows it
    row = 3 * heads * D
    start = qkv + window * N * row + head * D
    bias = logits + (window % windows * heads + head) * N * N + i[:, None] * N
    inverse_norms += window_head.to(tl.int64) * N

    q = tl.load(start + i[:, None] * row + d, valid_i, 0.0).to(tl.float32)  # (QUERIES, D)
    q *= (tl.load(scale + head) / tl.maximum(tl.sqrt(tl.sum(q * q, 1)), 1e-12))[:, None]
    q = q.to(qkv.dtype.element_ty)
    largest, total = tl.full((QUERIES,), -1e30, tl.float32), tl.zeros((QUERIES,), tl.float32)
    y = tl.zeros((QUERIES, D), tl.float32)
    for first in range(0, N, KEYS):
        keys = start + heads * D + (first + j)[:, None] * row + d
        valid_j = (first + j < N) | (N % KEYS == 0)
        k, v = tl.load(keys, valid_j[:, None], 0.0), tl.load(keys + heads * D, valid_j[:, None], 0.0)  # (KEYS, D)
        added = tl.load(bias + first + j, valid_i & valid_j, -1e30)  # (QUERIES, KEYS)
        s = tl.dot(q, tl.trans(k)) * tl.load(inverse_norms + first + j, valid_j, 0.0) + added
        larger = tl.maximum(largest, tl.max(s, 1))
        p, shrink = tl.exp2(s - larger[:, None]), tl.exp2(largest - larger)
        total = total * shrink + tl.sum(p, 1)
        y = tl.dot(p.to(v.dtype), v, y * shrink[:, None])
        largest = larger
    rows = out + (window * N + i[:, None]) * heads * D + head * D + d
    tl.store(rows, (y / total[:, None]).to(out.dtype.element_ty), valid_i)
