"""The report of an evaluation: results of each network, what several have in common, and tables of it all."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from normmatch.errors import DataError
from normmatch.evaluation.metrics import mean_and_deviation
from normmatch.evaluation.predictions import Predictions
from normmatch.evaluation.published import HPATCHES, JITTER, MEAN, published_rows
from normmatch.evaluation.score import accuracy_result, f1_curve, f1_result, mma_result, pck_result
from normmatch.evaluation.tables import Sheet, percent

Result = dict[str, Any]
CURVE_STEP = 20  # of the curve's thresholds every twentieth is printed
AS_PRINTED = "as printed in the paper, each under its own authors' rules, with its best epoch chosen on the test set"


def make_report(said: Sequence[Predictions], calibrations: Sequence[Result] = ()) -> Result:
    """Everything as JSON: a result for each network and protocol, and a summary of those that differ in the weights."""
    results: dict[tuple[str, ...], Result] = {}
    for predictions in sorted(said, key=lambda p: p.meta["jitter"]):  # the plain ones first
        result = score(predictions)
        plain = results.get((*_group(result | {"jitter": 0.0}), result["weights"]))
        if plain is not None and result["jitter"]:
            drop = plain["mean"] - result["mean"]
            kept = {key: result[key] for key in ("jitter", "mean", "classes")}
            plain["jittered"].append(kept | {"drop": drop})
            continue
        key = (*_group(result), result["weights"])
        if key in results:
            raise DataError(f"there are two predictions of {result['weights']} for the same pairs; expected one.")
        results[key] = result | {"jittered": []}
    groups = defaultdict(list)
    for result in results.values():
        groups[_group(result)].append(result)
    summary = [summarize(group) for group in groups.values()]
    return {"results": list(results.values()), "summary": summary, "calibrations": list(calibrations)}


def score(predictions: Predictions) -> Result:
    """All numbers of one set of predictions."""
    result = accuracy_result(predictions) | {"pck": pck_result(predictions)}
    if predictions.meta["dataset"] == "hpatches":
        result["mma"] = mma_result(predictions)
    if predictions.meta["sampling"] != "intersection":
        result["f1"] = f1_result(predictions, predictions.meta.get("min_score", 0.0))
        result["curve"] = f1_curve(predictions)
    return result


def _group(result: Result) -> tuple[str, ...]:
    """What results must have in common to be averaged."""
    keys = ("dataset", "objects", "split", "protocol", "sampling", "pairs", "seed", "jitter", "gray", "reading")
    return tuple(str(result.get(key)) for key in keys)


def summarize(group: Sequence[Result]) -> Result:
    """Mean and standard deviation of results that differ only in the weights."""
    first = group[0]
    labels = [label for label in first["classes"] if all(label in result["classes"] for result in group)]
    mean, deviation = mean_and_deviation([result["mean"] for result in group])
    levels = [row["jitter"] for row in first["jittered"]]
    drops = {
        level: [row["drop"] for result in group for row in result["jittered"] if row["jitter"] == level]
        for level in levels
    }
    return {
        **{
            key: first[key]
            for key in ("dataset", "split", "protocol", "sampling", "pairs", "seed", "jitter", "reading")
        },
        "gray": first.get("gray", False),
        "left_out": first.get("left_out", []),
        "pck": {share: mean_and_deviation([r["pck"][share] for r in group]) for share in first["pck"]},
        "weights": [result["weights"] for result in group],
        "mean": mean,
        "deviation": deviation,
        "classes": {label: mean_and_deviation([r["classes"][label] for r in group]) for label in labels},
        "drops": [{"jitter": level, "drop": mean_and_deviation(values)} for level, values in drops.items()],
    }


def make_sheets(report: Result) -> list[Sheet]:
    """The tables of a report; every protocol has its own."""
    sheets = []
    for summary in report["summary"]:
        sheets.append(accuracy_sheet(summary))
        if summary["drops"]:
            sheets.append(jitter_sheet(summary))
    for result in report["results"]:
        if "mma" in result:
            sheets.append(mma_sheet(result))
        if "f1" in result:
            sheets += [f1_sheet(result), curve_sheet(result)]
    sheets += [calibration_sheet(found) for found in report["calibrations"]]
    if report["results"] and report["results"][0].get("made_with"):
        sheets[-1].notes.append(provenance(report["results"][0]["made_with"]))
    return sheets


def accuracy_sheet(summary: Result) -> Sheet:
    """Accuracy by class in per cent, beside the published rows that may stand there."""
    runs = len(summary["weights"])
    rows = {} if summary["gray"] else published_rows(summary["dataset"], summary["protocol"])
    ours = {**summary["classes"], MEAN: (summary["mean"], summary["deviation"])}
    table = []
    for label, (mean, deviation) in ours.items():
        cells = [label, percent(mean, 2 if label == MEAN else 1)]
        cells += [percent(deviation, 2 if label == MEAN else 1)] if runs > 1 else []
        table.append((*cells, *(f"{row[label]:.1f}" if label in row else "" for row in rows.values())))
    columns = ("class", "ours" if runs == 1 else f"ours, mean of {runs}", *(("deviation",) if runs > 1 else ()), *rows)
    notes = [f"weights: {', '.join(summary['weights'])}"]
    close = ", ".join(f"{percent(mean)} at {share}" for share, (mean, _) in summary["pck"].items())
    notes.append(f"matched to within a share of crop 1's longer side (PCK): {close}")
    if summary["left_out"]:
        notes.append(f"no pair to evaluate in {', '.join(summary['left_out'])}, so the mean is without")
    if rows:
        notes.append(f"{', '.join(rows)}: {AS_PRINTED}")
    return Sheet(f"accuracy in %: {_title(summary)}", columns, table, notes, sums_up=True)


def jitter_sheet(summary: Result) -> Sheet:
    """What noise on the keypoints costs, beside what it costs the paper."""
    paper = JITTER if (summary["dataset"], summary["protocol"]) == ("pascal-voc", "nmt") else {}
    rows = []
    for row in summary["drops"]:
        drop, deviation = row["drop"]
        published = f"{paper[row['jitter']]:.2f}" if row["jitter"] in paper else ""
        spread = f" ± {percent(deviation, 2)}" if len(summary["weights"]) > 1 else ""
        cells = (f"{row['jitter']:g} px", percent(summary["mean"] - drop, 2), percent(drop, 2) + spread)
        rows.append((*cells, published) if paper else cells)
    columns = ("jitter", "accuracy", "drop", *(("the paper's drop",) if paper else ()))
    return Sheet(f"noise on the keypoints, in points of %: {_title(summary)}", columns, rows)


def mma_sheet(result: Result) -> Sheet:
    """Mean matching accuracy on HPatches, by threshold in pixels of the images."""
    kinds = ("viewpoint", "illumination", "overall")
    rows = []
    for pixels, found in result["mma"].items():
        cells = [
            (percent(found[kind], 2) if kind in found else "", f"{HPATCHES[int(pixels)][kind]:.2f}") for kind in kinds
        ]
        rows.append((f"{pixels} px", *(cell for pair in cells for cell in pair)))
    columns = ("within", *(word for kind in kinds for word in (kind, "the paper's")))
    notes = [
        "mean over image pairs; a point may be matched with the true places of the grid's points only, so thresholds "
        "matter where the grid is denser than they are wide (--grid)",
        f"weights: {result['weights']}",
    ]
    return Sheet(f"mean matching accuracy in %: {_title(result)}", columns, rows, notes)


def f1_sheet(result: Result) -> Sheet:
    """Precision, recall and F1 by class."""
    f1 = result["f1"]
    rows = [(label, *(percent(v) for v in row.values())) for label, row in [*f1["classes"].items(), (MEAN, f1["mean"])]]
    title = f"matches with a score of {f1['threshold']:g} or more, in %: {_title(result)}"
    return Sheet(title, ("class", "precision", "recall", "F1"), rows, [f"weights: {result['weights']}"], sums_up=True)


def curve_sheet(result: Result) -> Sheet:
    """How the three depend on the threshold."""
    curve = result["curve"]
    rows = list(zip(*(curve[name] for name in ("threshold", "precision", "recall", "f1")), strict=True))
    shown = [(f"{t:g}", *map(percent, values)) for t, *values in rows[::CURVE_STEP]]
    best = max(rows, key=lambda row: row[3])
    note = f"best here: F1 {percent(best[3])} at {best[0]:g}; a threshold is to be chosen on val (--calibrate)"
    return Sheet(
        f"means of classes by score, in %: {_title(result)}", ("score", "precision", "recall", "F1"), shown, [note]
    )


def calibration_sheet(found: Result) -> Sheet:
    """What the calibrated threshold does."""
    rows = []
    for words, key in (("without a threshold", "without"), (f"score {found['threshold']:g} or more", "with")):
        for split, result in found[key].items():
            rows.append((f"{split}, {words}", *(percent(value) for value in result["mean"].values())))
    title = f"calibration of {found['weights']}, in %: protocol {found['protocol']}, {found['sampling']} points"
    note = f"min_score {found['threshold']:g} is in the weights file now"
    return Sheet(title, ("split", "precision", "recall", "F1"), rows, [note])


def _title(result: Result) -> str:
    points = "" if result["sampling"] == "intersection" else f", {result['sampling']} points"
    noise = f", jitter {result['jitter']:g} px" if result["jitter"] else ""
    grid, magnitude, only = result["reading"]
    points += f", grid of {grid}" if grid else ""
    points += f", magnitude {magnitude[0]:g} to {magnitude[1]:g}" if magnitude else ""
    points += f", only {' '.join(only)}" if only else ""
    points += ", gray pictures" if result.get("gray") else ""
    rules = f"{result['split']}, protocol {result['protocol']}"
    return f"{result['dataset']} {rules}, {result['pairs']:,} pairs{points}{noise}"


def provenance(made: dict[str, str]) -> str:
    version = f"normmatch {made['normmatch']}" + (f" ({made['commit']})" if made["commit"] else "")
    return f"{version}, torch {made['torch']}, {made['hardware']}, {made['date']}: {made['command']}"
