"""All of Sinkhorn's rounds as one GPU kernel, for up to 128 points.

Each half of a round is a tiny sum over rows or columns; as kernels of their own they take longer to start than to run.
Here a pair's scores stay in the registers of one program from the first round to the last.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from normmatch.model.assignment import MASKED, factors_fit, log_sinkhorn, sinkhorn_iterations

MOST_POINTS = 128  # larger ones do not fit into registers


def fused_log_sinkhorn(similarity: Tensor, mask0: Tensor, mask1: Tensor, epsilon: float, rounds: int) -> Tensor:
    """`log_sinkhorn` with `fused_iterations`."""
    return log_sinkhorn(similarity, mask0, mask1, epsilon, rounds, fused_iterations)


def fused_iterations(scores: Tensor, mask0: Tensor, mask1: Tensor, rounds: int, span: float) -> Tensor:
    """`sinkhorn_iterations`, in one kernel where scores (B, N, N) allow it; no gradients; undefined for padding."""
    n = scores.shape[1]
    square = scores.shape[2] == n <= MOST_POINTS
    if not square or scores.dtype != torch.float32 or not factors_fit(scores.dtype, span):
        return sinkhorn_iterations(scores, mask0, mask1, rounds, span)
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    size = max(16, 1 << (n - 1).bit_length())
    _rounds[(len(scores),)](
        scores.contiguous(), mask0.contiguous(), mask1.contiguous(), out, n, rounds - 1, MASKED, size,
        num_warps=max(1, size * size // 1024),
    )  # fmt: skip
    return out


@triton.jit
def _rounds(scores, mask0, mask1, out, n, more_rounds, MASKED: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """One pair: a round in logs, then `more_rounds` by factors. The slack row and column are kept apart."""
    pair = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, N)
    here = index < n
    valid0 = tl.load(mask0 + pair * n + index, here, 0) != 0  # (N,)
    valid1 = tl.load(mask1 + pair * n + index, here, 0) != 0
    count0, count1 = tl.sum(valid0.to(tl.float32), 0), tl.sum(valid1.to(tl.float32), 0)
    slack0, slack1 = tl.maximum(count1 - count0, 0.0), tl.maximum(count0 - count1, 0.0)  # what they take in

    places = pair * n * n + index[:, None] * n + index[None, :]  # (N, N)
    inside = here[:, None] & here[None, :]
    valid = valid0[:, None] & valid1[None, :]
    z = tl.where(valid, tl.load(scores + places, inside, 0.0), MASKED)

    z_slack1 = tl.where(slack1 > 0, 0.0, MASKED)  # a slack's scores are 0
    largest = tl.maximum(tl.max(z, 1), z_slack1)
    f = -largest - tl.log(tl.sum(tl.exp(z - largest[:, None]), 1) + tl.exp(z_slack1 - largest))
    f = tl.where(valid0, f, 0.0)
    f_slack = tl.where(slack0 > 0, tl.log(slack0 / count1), MASKED)
    z += f[:, None]
    largest = tl.maximum(tl.max(z, 0), f_slack)
    g = -largest - tl.log(tl.sum(tl.exp(z - largest[None, :]), 0) + tl.exp(f_slack - largest))
    g = tl.where(valid1, g, 0.0)
    z += g[None, :]
    all_f = tl.where(valid0, f, MASKED)
    largest_f = tl.max(all_f, 0)
    g_slack = tl.where(slack1 > 0, tl.log(slack1 / tl.sum(tl.exp(all_f - largest_f), 0)) - largest_f, MASKED)

    kernel = tl.where(valid, tl.exp(z), 0.0)  # (N, N)
    slack_row = tl.where(valid1, tl.exp(f_slack + g), 0.0)  # (N,): 0 where there is no slack
    slack_column = tl.where(valid0, tl.exp(f + g_slack), 0.0)
    a, b = tl.where(valid0, 1.0, 0.0), tl.where(valid1, 1.0, 0.0)
    b_slack = tl.where(slack1 > 0, 1.0, 0.0)
    for _ in range(more_rounds):
        a = tl.where(valid0, 1.0 / (tl.sum(kernel * b[None, :], 1) + slack_column * b_slack), 0.0)
        a_slack = tl.where(slack0 > 0, slack0 / tl.sum(slack_row * b, 0), 0.0)
        b = tl.where(valid1, 1.0 / (tl.sum(kernel * a[:, None], 0) + slack_row * a_slack), 0.0)
        b_slack = tl.where(slack1 > 0, slack1 / tl.sum(slack_column * a, 0), 0.0)
    tl.store(out + places, z + tl.log(a)[:, None] + tl.log(b)[None, :], inside)
