"""From the network's assignment to matches: the best of each row, mutual, one to one, sure enough. No torch here."""

import numpy as np
from scipy.optimize import linear_sum_assignment

Result = dict[str, np.ndarray]  # see `Matcher.match`

LOW_SCORE = 0.2  # unsure by any measure, also of a network that was not calibrated


def choose(
    similarity: np.ndarray, log_assignment: np.ndarray, *, one_to_one: bool, mutual: bool, min_score: float
) -> Result:
    """The matches between M and N points; the result is that of `Matcher.match`.

    Args:
        similarity: (M, N) cosines.
        log_assignment: (M, N) after Sinkhorn.
        one_to_one: the assignment with the largest sum (Hungarian method), so that no point is used twice.
        mutual: only matches that are the best of both their points; they use no point twice either.
        min_score: a match with a lower score is none; a mutual one if the score of either of its points is lower.
    """
    scores = np.exp(log_assignment).clip(0, 1) * similarity.clip(0, 1)  # (M, N), as in model/assignment.py
    if one_to_one and not mutual:
        (matches0, scores0), (matches1, scores1) = _hungarian(log_assignment, scores)
    else:
        (matches0, scores0), (matches1, scores1) = _best(log_assignment, scores), _best(log_assignment.T, scores.T)
    matches0, matches1 = np.where(scores0 < min_score, -1, matches0), np.where(scores1 < min_score, -1, matches1)
    if mutual:
        matches0, matches1 = _returned(matches0, matches1), _returned(matches1, matches0)
    rows = np.flatnonzero(matches0 >= 0)
    return {
        "matches0": matches0,
        "matches1": matches1,
        "matching_scores0": scores0,
        "matching_scores1": scores1,
        "matches": np.stack([rows, matches0[rows]], axis=1),  # (K, 2)
        "scores": scores0[rows],  # (K,)
        "similarity": similarity,
        "log_assignment": log_assignment,
    }


def low_scores(result: Result, min_score: float) -> bool:
    """Whether the scores of a result are low altogether, as they are where the images show unlike objects.

    They are if more than half of the points of the side with fewer have no partner that is sure enough.
    """
    scores0, scores1 = result["matching_scores0"], result["matching_scores1"]
    scores = scores0 if len(scores0) <= len(scores1) else scores1
    return len(scores) > 0 and float(np.median(scores)) < max(min_score, LOW_SCORE)


def _best(log_assignment: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The column of the largest assignment of each row and the row's largest score, as in model/assignment.py."""
    if 0 in scores.shape:
        return np.full(len(scores), -1, np.int64), np.zeros(len(scores), np.float32)
    return log_assignment.argmax(1), scores.max(1)


def _hungarian(log_assignment: np.ndarray, scores: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Matches and scores of both sides; a point that is left over has -1 and 0."""
    rows, columns = linear_sum_assignment(log_assignment.astype(np.float64), maximize=True)
    sides = []
    for count, here, there in ((scores.shape[0], rows, columns), (scores.shape[1], columns, rows)):
        matches, found = np.full(count, -1, np.int64), np.zeros(count, np.float32)
        matches[here], found[here] = there, scores[rows, columns]
        sides.append((matches, found))
    return sides


def _returned(matches0: np.ndarray, matches1: np.ndarray) -> np.ndarray:
    """Of matches0 those that matches1 return; the rest become -1."""
    if not len(matches1):
        return matches0
    return np.where(matches1[matches0] == np.arange(len(matches0)), matches0, -1)
