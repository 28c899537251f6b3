"""The scores of located landmarks: PCK by image and by point, left and right confused, how good the certainties are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from normmatch.evaluation.published import LOCATING, MEAN
from normmatch.evaluation.score import Result
from normmatch.evaluation.tables import Table, origin, percent

Row = dict[str, Any]  # a prediction, see `locating`

WITHIN = (0.01, 0.02, 0.05, 0.1, 0.2)  # of the longer side of the object's box, or of that of its landmarks
RIGHT, HAND = 0.1, 0.05  # what a score is the probability of; beyond which a point must be set by hand
BINS = 10


def score(rows: Sequence[Row]) -> list[Result]:
    """The scores for each number of references."""
    found = []
    for count in sorted({row["references"] for row in rows}):
        some = [row for row in rows if row["references"] == count]
        classes = {
            label: _figures([r for r in some if r["class"] == label]) for label in sorted({r["class"] for r in some})
        }
        draws = [_figures([row for row in some if row["draw"] == draw]) for draw in sorted({r["draw"] for r in some})]
        spread = {f"pck {share}": float(np.std([draw[f"pck {share}"] for draw in draws])) for share in WITHIN}
        mean = {
            f"pck {share}": float(np.nanmean([one[f"pck {share}"] for one in classes.values()])) for share in WITHIN
        }
        found.append({"references": count, **_figures(some), "classes": classes, "class mean": mean, "spread": spread})
    return found


def _figures(rows: Sequence[Row]) -> Result:
    """The scores of some photographs."""
    off = [_distances(row["keypoints"], row["truth"]) / row["size"] for row in rows]
    flipped = [_distances(row["keypoints"], [row["truth"][i] for i in row["flip"]]) / row["size"] for row in rows]
    sided = [np.array(row["flip"]) != np.arange(len(row["flip"])) for row in rows]
    every, there = np.concatenate(off), np.isfinite(np.concatenate(off))
    scores, visible = (np.concatenate([row[key] for row in rows]) for key in ("scores", "visible"))
    spread = np.concatenate([np.array(row["spread"]) / row["size"] for row in rows])
    both, side = np.concatenate(flipped), np.concatenate(sided) & there & np.isfinite(np.concatenate(flipped))
    known, sure = every[there], scores[there]
    result: Result = {"photographs": len(rows), "points": int(there.sum())}
    for share in WITHIN:
        result[f"pck {share}"] = float((known <= share).mean()) if len(known) else float("nan")
        by_image = [float((one[np.isfinite(one)] <= share).mean()) for one in off if np.isfinite(one).any()]
        result[f"by image {share}"] = float(np.mean(by_image)) if by_image else float("nan")
    result |= {
        "sides confused": float(((both < every) & (every > RIGHT))[side].mean()) if side.any() else None,
        "by hand": float((known > HAND).mean()) if len(known) else None,
        "auc": area(sure, known <= HAND),
        "ece": calibration_error(scores, np.where(there, every, np.inf) <= RIGHT),
        "in spread": float((known <= spread[there]).mean()) if len(known) else None,
        "auc visible": area(visible, there),
        "ece visible": calibration_error(visible, there),
        "seconds": float(np.mean([row["seconds"] for row in rows])),
    }
    return result


def _distances(points: Sequence[Any], truth: Sequence[Any]) -> np.ndarray:
    """(K,); NaN where there is no truth."""
    places = np.array([(np.nan, np.nan) if xy is None else xy for xy in truth], float)
    found: np.ndarray = np.linalg.norm(np.array(points) - places, axis=1)
    return found


def area(scores: np.ndarray, right: np.ndarray) -> float | None:
    """The area under the curve: how often what is right scores higher than what is wrong; None without either."""
    order = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(order[2]) - (order[2] - 1) / 2)[order[1]]  # equal ones share theirs
    pairs = int(right.sum()) * int((~right).sum())
    return float((ranks[right].sum() - right.sum() * (right.sum() + 1) / 2) / pairs) if pairs else None


def calibration_error(scores: np.ndarray, right: np.ndarray) -> float:
    """The expected difference between a score and how often it is right, in ten bins."""
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    return float(sum(abs(right[bins == b].sum() - scores[bins == b].sum()) for b in range(BINS)) / max(len(scores), 1))


def make_tables(report: Mapping[str, Any]) -> list[Table]:
    """By number of references, by class, and beside published numbers."""
    shown = [str(share) for share in WITHIN]
    rows, others = [], []
    for one in report["results"]:
        several = any(one["spread"].values())
        cells = [
            percent(one[f"pck {s}"]) + (f" ± {percent(one['spread'][f'pck {s}'])}" if several else "") for s in shown
        ]
        rows.append((str(one["references"]), *cells, *(percent(one[f"by image {s}"]) for s in ("0.05", "0.1"))))
        keys = ("by hand", "sides confused", "auc", "ece", "in spread", "auc visible", "ece visible")
        figures = ["" if one[key] is None else f"{one[key]:.3f}" for key in keys]
        others.append((str(one["references"]), *figures, f"{one['seconds']:.2f}"))
    notes = ["of the longer side of the object's box, or of its landmarks where it has none"]
    notes += ["by point, or by image: mean over photographs; ± over draws"]
    tables = [
        Table(f"located within a share of the object, in %: {report['data']}",
              ("references", *shown, "by image 0.05", "0.1"), rows, notes),
        Table("certainty and cost", ("references", "off by more than 0.05", "left for right", "AUC right", "ECE",
                                     "in spread", "AUC visible", "ECE visible", "CPU s"), others,
              ["right for the AUC: within 0.05; for the ECE: within 0.1, and there; spread should hold 0.68"]),
    ]  # fmt: skip
    for one in (result for result in report["results"] if len(result["classes"]) > 1):
        by_class = {**one["classes"], MEAN: one["class mean"]}
        rows = [(label, *(percent(figures[f"pck {s}"]) for s in shown)) for label, figures in by_class.items()]
        title = f"by class and point, {one['references']} references"
        tables.append(Table(title, ("class", *shown), rows, sums_up=True))
    published = LOCATING.get(str(report["data"]), {})
    if published:
        rows = [(name, *("" if v is None else f"{v:.1f}" for v in values)) for name, values in published.items()]
        tables.append(Table("published, by image, whole photographs", ("method", "0.01", "0.05", "0.1"), rows,
                            ["as their authors report them; trained on SPair-71k's trn unless said"]))  # fmt: skip
    if report.get("made_with"):
        tables[-1].notes.append(origin(report["made_with"]))
    return tables
