"""SwinV2's window attention as one GPU kernel: cosines, position bias and mask, softmax, values.

A window has hundreds of tokens and its heads are narrow, so most of the work is what surrounds the two products.
Kernels that take any bias need more time, after others have made queries and keys unit vectors.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

QUERIES, KEYS = 64, 64  # tokens that a program holds at once


def attend_in_one(qkv: Tensor, scale: Tensor, logits: Tensor, dropout: float = 0.0) -> Tensor:
    """`attend`, for heads as wide as a power of two; without gradients or dropout."""
    windows, heads, n, _ = logits.shape
    parts = qkv.unflatten(2, (3, heads, -1))  # (B * windows, N, 3, heads, D)
    inverse = 1 / parts[:, :, 1].float().norm(dim=-1).clamp_min(1e-12)  # (B * windows, N, heads): of keys' lengths
    scale, logits = (t.float() * math.log2(math.e) for t in (scale, logits))  # powers of two are what GPUs have
    out = qkv.new_empty(*qkv.shape[:2], qkv.shape[2] // 3)
    _attend[(len(qkv) * heads * triton.cdiv(n, QUERIES),)](
        qkv.contiguous(), inverse.mT.contiguous(), scale.contiguous(), logits.to(qkv.dtype).contiguous(), out,
        windows, heads, n, parts.shape[-1], QUERIES, KEYS, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    qkv, inverse, scale, logits, out, windows, heads,
    N: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Queries i of one head in one window, over blocks of its keys j; the softmax is kept up as they come."""
    blocks: tl.constexpr = tl.cdiv(N, QUERIES)
    part = tl.program_id(0) // blocks  # blocks of queries that share keys run side by side
    window, head = (part // heads).to(tl.int64), part % heads
    i, j, d = tl.program_id(0) % blocks * QUERIES + tl.arange(0, QUERIES), tl.arange(0, KEYS), tl.arange(0, D)
    here = ((i < N) | (N % QUERIES == 0))[:, None]  # known when it is compiled, where blocks fill a window
    row = 3 * heads * D
    start = qkv + window * N * row + head * D
    bias = logits + (window % windows * heads + head) * N * N + i[:, None] * N
    lengths = inverse + part.to(tl.int64) * N

    q = tl.load(start + i[:, None] * row + d, here, 0.0).to(tl.float32)  # (QUERIES, D)
    q *= (tl.load(scale + head) / tl.maximum(tl.sqrt(tl.sum(q * q, 1)), 1e-12))[:, None]
    q = q.to(qkv.dtype.element_ty)
    largest, total = tl.full((QUERIES,), -1e30, tl.float32), tl.zeros((QUERIES,), tl.float32)
    y = tl.zeros((QUERIES, D), tl.float32)
    for first in range(0, N, KEYS):
        keys = start + heads * D + (first + j)[:, None] * row + d
        there = (first + j < N) | (N % KEYS == 0)
        k, v = tl.load(keys, there[:, None], 0.0), tl.load(keys + heads * D, there[:, None], 0.0)  # (KEYS, D)
        added = tl.load(bias + first + j, here & there, -1e30)  # (QUERIES, KEYS)
        s = tl.dot(q, tl.trans(k)) * tl.load(lengths + first + j, there, 0.0) + added
        larger = tl.maximum(largest, tl.max(s, 1))
        p, shrink = tl.exp2(s - larger[:, None]), tl.exp2(largest - larger)
        total = total * shrink + tl.sum(p, 1)
        y = tl.dot(p.to(v.dtype), v, y * shrink[:, None])
        largest = larger
    place = out + (window * N + i[:, None]) * heads * D + head * D + d
    tl.store(place, (y / total[:, None]).to(out.dtype.element_ty), here)
