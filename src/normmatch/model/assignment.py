"""From similarity to matches: masked log-Sinkhorn, then row arg-max or the Hungarian method.

What users see of matches is decoded by `matching/decoding.py`; here it is done for batches that stay on a device.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

MASKED = -1e6  # log of nothing, in float32 and after division by epsilon; finite, so that gradients are too
MARGIN = 20.0  # in logs: for thousands of points, and for slacks that take in as many

Iterations = Callable[[Tensor, Tensor, Tensor, int, float], Tensor]  # `sinkhorn_iterations`, or a kernel of the same


def sinkhorn_iterations(scores: Tensor, mask0: Tensor, mask1: Tensor, rounds: int, span: float) -> Tensor:
    """`rounds` times rows, then columns; scores (B, M, N) -> log assignment (B, M, N).

    `span` is how far scores can lie apart. One round in logs leaves entries between e^-span and the largest mass; from
    there factors do what logs do, in a third of the operations, where no factor can leave the range of the floats.
    """
    surplus = mask1.sum(1, keepdim=True) - mask0.sum(1, keepdim=True)  # (B, 1): points that image 1 has more
    nothing = ~(mask0.any(1, keepdim=True) | mask1.any(1, keepdim=True))  # slack against slack, or 0 / 0 would appear
    mass0 = torch.cat([mask0, surplus.clamp_min(0) + nothing], 1).to(scores.dtype)  # (B, M+1): what each row sums to
    mass1 = torch.cat([mask1, (-surplus).clamp_min(0) + nothing], 1).to(scores.dtype)  # (B, N+1)
    valid0, valid1 = mass0 > 0, mass1 > 0
    valid = valid0.unsqueeze(2) & valid1.unsqueeze(1)
    z = torch.nn.functional.pad(scores, (0, 1, 0, 1))  # (B, M+1, N+1): slack scores 0, absorbed by f and g
    z = z.masked_fill(~valid, MASKED)
    fits = factors_fit(z.dtype, span)
    z = _in_logs(z, mass0, mass1, 1 if fits else rounds)
    if fits and rounds > 1:
        z = z + _by_factors(z.exp().masked_fill(~valid, 1.0), mass0, mass1, rounds - 1)
    return z[:, :-1, :-1]


def factors_fit(dtype: torch.dtype, span: float) -> bool:
    """Whether factors for scores that lie up to `span` apart stay in the range of the floats."""
    return span + MARGIN < math.log(torch.finfo(dtype).max)


def log_sinkhorn(
    similarity: Tensor,
    mask0: Tensor,
    mask1: Tensor,
    epsilon: float,
    rounds: int,
    iterate: Iterations = sinkhorn_iterations,
) -> Tensor:
    """Log of the assignment (B, M, N) that the Sinkhorn iteration makes of similarity (B, M, N); padding is -inf.

    P = diag(e^f) e^{S / epsilon} diag(e^g), with f and g such that rows and columns sum to one. Where one image has
    more valid points, the other gets a slack row (or column) that takes in what is left: the points of the smaller
    side still sum to one, those of the larger to at most one. Rows-first and columns-first iterations are averaged, so
    that after any number of rounds the assignment of (b, a) is the transpose of that of (a, b).
    """
    scores = similarity / epsilon  # (B, M, N)
    span = 2 / epsilon  # of cosines
    if scores.shape[1] == scores.shape[2]:  # as in the network: both orders as one batch, in half as many kernels
        rows, columns = torch.cat([mask0, mask1]), torch.cat([mask1, mask0])
        both = iterate(torch.cat([scores, scores.mT]), rows, columns, rounds, span)
        rows_first, columns_first = both.unflatten(0, (2, both.shape[0] // 2))
    else:
        rows_first = iterate(scores, mask0, mask1, rounds, span)
        columns_first = iterate(scores.mT, mask1, mask0, rounds, span)
    valid = mask0.unsqueeze(2) & mask1.unsqueeze(1)  # (B, M, N)
    return ((rows_first + columns_first.mT) / 2).masked_fill(~valid, -torch.inf)


def _in_logs(z: Tensor, mass0: Tensor, mass1: Tensor, rounds: int) -> Tensor:
    """Log assignment (B, M, N) after `rounds` rounds from z (B, M, N)."""
    log_mass0, log_mass1 = mass0.clamp_min(1).log(), mass1.clamp_min(1).log()
    f, g = torch.zeros_like(mass0), torch.zeros_like(mass1)  # (B, M), (B, N)
    for _ in range(rounds):
        f = (log_mass0 - (z + g.unsqueeze(1)).logsumexp(2)).masked_fill(mass0 == 0, 0.0)
        g = (log_mass1 - (z + f.unsqueeze(2)).logsumexp(1)).masked_fill(mass1 == 0, 0.0)
    return z + f.unsqueeze(2) + g.unsqueeze(1)


def _by_factors(kernel: Tensor, mass0: Tensor, mass1: Tensor, rounds: int) -> Tensor:
    """Log of the factors (B, M, N) that `rounds` rounds put on kernel (B, M, N), which is positive everywhere.

    A padded row has mass 0, so its factor is 0: whatever stands in it, the columns do not see it. No matrix product
    here: where those run in TF32 or bf16, three digits would be left.
    """
    b = (mass1 > 0).to(kernel.dtype)  # (B, N)
    for _ in range(rounds):
        a = mass0 / (kernel * b.unsqueeze(1)).sum(2)  # (B, M)
        b = mass1 / (kernel * a.unsqueeze(2)).sum(1)  # (B, N)
    log_a, log_b = a.masked_fill(mass0 == 0, 1.0).log(), b.masked_fill(mass1 == 0, 1.0).log()
    return log_a.unsqueeze(2) + log_b.unsqueeze(1)


def match_scores(log_assignment: Tensor, similarity: Tensor) -> Tensor:
    """How sure each possible match is: its assignment times its cosine, in [0, 1]; (B, M, N), 0 for padding.

    Sinkhorn hands every point to somebody: between unlike objects the assignment stays high, but the cosine does not.
    """
    return log_assignment.exp().clamp(0, 1) * similarity.clamp(0, 1)


def best_matches(log_assignment: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of (B, M, N) the column of its largest assignment, and the score of that match: (B, M) each.

    A padded row, and a row without candidates, has -1 and 0.
    """
    if log_assignment.shape[2] == 0:
        empty = log_assignment.new_zeros(log_assignment.shape[:2])
        return torch.full_like(empty, -1, dtype=torch.long), empty
    best = log_assignment.amax(2, keepdim=True)  # (B, M, 1)
    count = log_assignment.shape[2]
    columns = torch.arange(count, device=best.device)
    # the first of the largest; not argmax, which torch 2.11 compiles wrong for CPUs where its input is transposed
    matches = torch.where(log_assignment == best, columns, count).amin(2)  # (B, M)
    place = matches.clamp_max(count - 1).unsqueeze(2)  # a row of NaN has no largest
    scores = match_scores(log_assignment, similarity).gather(2, place).squeeze(2)  # (B, M)
    return matches.masked_fill(best.squeeze(2).isneginf(), -1), scores


def one_to_one(log_assignment: Tensor) -> Tensor:
    """Matches (B, M) of the one-to-one assignment with the largest sum over the valid part (Hungarian method)."""
    scores = log_assignment.detach().cpu().double().numpy()
    matches = np.full(scores.shape[:2], -1, dtype=np.int64)
    for row, score in zip(matches, scores, strict=True):
        valid0, valid1 = np.isfinite(score).any(1).nonzero()[0], np.isfinite(score).any(0).nonzero()[0]
        chosen0, chosen1 = linear_sum_assignment(score[np.ix_(valid0, valid1)], maximize=True)
        row[valid0[chosen0]] = valid1[chosen1]
    return torch.from_numpy(matches).to(log_assignment.device)
