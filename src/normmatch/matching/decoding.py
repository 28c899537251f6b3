"""Decode the assignment: row arg-max, mutual or Hungarian, then threshold. No torch here, whatever ran the network."""

from collections.abc import Sequence

import numpy as np

Result = dict[str, np.ndarray]  # see `Matcher.match`

LOW_SCORE = 0.2  # unsure by any measure, also of a network that was not calibrated


def decode(
    similarity: np.ndarray,
    log_assignment: np.ndarray,
    counts: Sequence[tuple[int, int]],
    *,
    one_to_one: bool,
    mutual: bool,
    min_score: float,
    calibration: Sequence[float] = (),
) -> list[Result]:
    """The matches of B pairs, all at once; each result is that of `Matcher.match`.

    Args:
        similarity: (B, M, N) cosines.
        log_assignment: (B, M, N) after Sinkhorn; -inf where a pair has fewer than M and N points.
        counts: how many points each pair has in its images.
        one_to_one: the assignment with the largest sum (Hungarian method), so that no point is used twice.
        mutual: only matches that are the best of both their points; they use no point twice either.
        min_score: matches below this score are dropped.
        calibration: of the network's config; without it scores stay as they are.
    """
    scores = np.exp(log_assignment).clip(0, 1) * similarity.clip(0, 1)  # (B, M, N), as in model/assignment.py
    if one_to_one and not mutual:
        (matches0, scores0), (matches1, scores1) = _hungarian(log_assignment, scores, counts)
    else:
        (matches0, scores0), (matches1, scores1) = _best(log_assignment, scores), _best(log_assignment.mT, scores.mT)
    scores0, scores1 = (as_probabilities(scores, calibration) for scores in (scores0, scores1))
    matches0, matches1 = np.where(scores0 < min_score, -1, matches0), np.where(scores1 < min_score, -1, matches1)
    if mutual:
        matches0, matches1 = _returned(matches0, matches1), _returned(matches1, matches0)
    results = []
    for i, (m, n) in enumerate(counts):  # copies, or a result that is kept would keep the whole batch in memory
        (rows,) = (matches0[i, :m] >= 0).nonzero()
        results.append(
            {
                "matches0": matches0[i, :m].copy(),
                "matches1": matches1[i, :n].copy(),
                "matching_scores0": scores0[i, :m].copy(),
                "matching_scores1": scores1[i, :n].copy(),
                "matches": np.column_stack([rows, matches0[i, rows]]),  # (K, 2)
                "scores": scores0[i, rows],  # (K,)
                "similarity": similarity[i, :m, :n].copy(),
                "log_assignment": log_assignment[i, :m, :n].copy(),
            }
        )
    return results


def as_probabilities(scores: np.ndarray, calibration: Sequence[float]) -> np.ndarray:
    """The share of right answers among those with such scores, as it was on held-out objects."""
    if not len(calibration):
        return scores
    known, probabilities = np.split(np.asarray(calibration), 2)
    return np.interp(scores, known, probabilities).astype(np.float32)


def low_scores(result: Result, min_score: float) -> bool:
    """Whether the scores of a result are low altogether, as they are where the images show unlike objects.

    They are if more than half of the points of the side with fewer have no partner with a score above the threshold.
    """
    scores0, scores1 = result["matching_scores0"], result["matching_scores1"]
    scores = scores0 if len(scores0) <= len(scores1) else scores1
    return len(scores) > 0 and float(np.median(scores)) < max(min_score, LOW_SCORE)


def _best(log_assignment: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The column of the largest assignment of each row, -1 where there is none, and the score of that match."""
    if 0 in scores.shape:
        return np.full(scores.shape[:2], -1, np.int64), np.zeros(scores.shape[:2], np.float32)
    best = log_assignment.argmax(2)  # (B, M)
    found = np.take_along_axis(scores, best[:, :, None], 2)[:, :, 0]
    return np.where(np.isneginf(log_assignment.max(2)), -1, best), found


def _hungarian(
    log_assignment: np.ndarray, scores: np.ndarray, counts: Sequence[tuple[int, int]]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Matches and scores of both sides; a point that is left over has -1 and 0."""
    from scipy.optimize import linear_sum_assignment  # slow to import, and rarely asked for

    batch, *sizes = scores.shape
    sides = [(np.full((batch, size), -1, np.int64), np.zeros((batch, size), np.float32)) for size in sizes]
    for i, (m, n) in enumerate(counts):
        chosen = linear_sum_assignment(log_assignment[i, :m, :n].astype(np.float64), maximize=True)
        for (matches, found), here, there in zip(sides, chosen, reversed(chosen), strict=True):
            matches[i, here], found[i, here] = there, scores[i][chosen]
    return sides


def _returned(matches0: np.ndarray, matches1: np.ndarray) -> np.ndarray:
    """Of matches0 those that matches1 return; the rest become -1."""
    if not matches1.shape[1]:
        return matches0
    return np.where(np.take_along_axis(matches1, matches0, 1) == np.arange(matches0.shape[1]), matches0, -1)
