"""From similarity to matches: masked log-Sinkhorn, then row arg-max, a mutual check, or the Hungarian method."""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

MASKED = -1e6  # log of nothing, in float32 and after division by epsilon; finite, so that gradients are too


def log_sinkhorn(similarity: Tensor, mask0: Tensor, mask1: Tensor, epsilon: float, rounds: int) -> Tensor:
    """Log of the assignment (B, M, N) that the Sinkhorn iteration makes of similarity (B, M, N); padding is -inf.

    P = diag(e^f) e^{S / epsilon} diag(e^g), with f and g such that rows and columns sum to one. Where one image has
    more valid points, the other gets a slack row (or column) that takes in what is left: the points of the smaller
    side still sum to one, those of the larger to at most one. Rows-first and columns-first iterations are averaged, so
    that after any number of rounds the assignment of (b, a) is the transpose of that of (a, b).
    """
    rows_first = _alternate(similarity / epsilon, mask0, mask1, rounds)
    columns_first = _alternate(similarity.mT / epsilon, mask1, mask0, rounds).mT
    valid = mask0.unsqueeze(2) & mask1.unsqueeze(1)  # (B, M, N)
    return ((rows_first + columns_first) / 2).masked_fill(~valid, -torch.inf)


def _alternate(scores: Tensor, mask0: Tensor, mask1: Tensor, rounds: int) -> Tensor:
    """`rounds` times rows, then columns; scores (B, M, N) -> log assignment (B, M, N)."""
    surplus = mask1.sum(1, keepdim=True) - mask0.sum(1, keepdim=True)  # (B, 1): points that image 1 has more
    slack0, slack1 = surplus.clamp_min(0), (-surplus).clamp_min(0)
    mass0 = torch.cat([mask0, slack0], 1).to(scores.dtype)  # (B, M+1): what each row sums to
    mass1 = torch.cat([mask1, slack1], 1).to(scores.dtype)  # (B, N+1)
    valid0, valid1 = mass0 > 0, mass1 > 0
    z = torch.nn.functional.pad(scores, (0, 1, 0, 1))  # (B, M+1, N+1): slack scores 0, absorbed by f and g
    valid = valid0.unsqueeze(2) & valid1.unsqueeze(1)
    z = z.masked_fill(~valid, MASKED)
    log_mass0, log_mass1 = mass0.clamp_min(1).log(), mass1.clamp_min(1).log()
    f, g = torch.zeros_like(mass0), torch.zeros_like(mass1)  # (B, M+1), (B, N+1)
    for _ in range(rounds):
        f = (log_mass0 - (z + g.unsqueeze(1)).logsumexp(2)).masked_fill(~valid0, 0.0)
        g = (log_mass1 - (z + f.unsqueeze(2)).logsumexp(1)).masked_fill(~valid1, 0.0)
    return (z + f.unsqueeze(2) + g.unsqueeze(1))[:, :-1, :-1]


def match_scores(log_assignment: Tensor, similarity: Tensor) -> Tensor:
    """How sure each possible match is: its assignment times its cosine, in [0, 1]; (B, M, N), 0 for padding.

    Sinkhorn hands every point to somebody: between unlike objects the assignment stays high, but the cosine does not.
    """
    return log_assignment.exp().clamp(0, 1) * similarity.clamp(0, 1)


def best_matches(log_assignment: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of (B, M, N) the column of its largest assignment, and its largest score: (B, M) each.

    The largest score is nearly always that of the match; unlike it, it does not jump where two columns tie. A padded
    row, and a row without candidates, has -1 and 0.
    """
    if log_assignment.shape[2] == 0:
        empty = log_assignment.new_zeros(log_assignment.shape[:2])
        return torch.full_like(empty, -1, dtype=torch.long), empty
    best, matches = log_assignment.max(2)  # (B, M)
    return matches.masked_fill(best.isneginf(), -1), match_scores(log_assignment, similarity).amax(2)


def mutual(matches0: Tensor, matches1: Tensor) -> Tensor:
    """Keep of matches0 (B, M) those that matches1 (B, N) return; the rest become -1."""
    back = matches1.gather(1, matches0.clamp_min(0))  # (B, M)
    here = torch.arange(matches0.shape[1], device=matches0.device)
    return matches0.masked_fill(back != here, -1)


def one_to_one(log_assignment: Tensor) -> Tensor:
    """Matches (B, M) of the one-to-one assignment with the largest sum over the valid part (Hungarian method)."""
    scores = log_assignment.detach().cpu().double().numpy()
    matches = np.full(scores.shape[:2], -1, dtype=np.int64)
    for row, score in zip(matches, scores, strict=True):
        valid0, valid1 = np.isfinite(score).any(1).nonzero()[0], np.isfinite(score).any(0).nonzero()[0]
        chosen0, chosen1 = linear_sum_assignment(score[np.ix_(valid0, valid1)], maximize=True)
        row[valid0[chosen0]] = valid1[chosen1]
    return torch.from_numpy(matches).to(log_assignment.device)
