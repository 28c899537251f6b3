"""`normmatch forecast`: how well landmarks will be found, told from those that are annotated already."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from normmatch.checks import check_count
from normmatch.config import Vertical
from normmatch.errors import InputError

NEW = 200  # photographs that a forecast is for
HARD = 0.5  # share of a landmark's places within 5 % below which it is called hard


def forecast(
    labels: Annotated[Positional[Path], arg(metavar="LABELS")],
    *,
    photographs: Annotated[Path | None, arg(metavar="DIR")] = None,
    most: int = 24,
    weights: str = "small",
    device: str = "auto",
    seed: int = 0,
    json: Annotated[Path | None, arg(metavar="FILE")] = None,
    plot: Annotated[Path | None, arg(metavar="FILE")] = None,
    y: Vertical = "file",
    overwrite: bool = False,
) -> None:
    """Tell from some annotated photographs how well landmarks will be found in the others, and how many need a hand.

    normmatch forecast beetles.tps --photographs photographs --plot curve.png

    Args:
        labels: a keypoints file of any format with three annotated photographs at least
        photographs: their folder, if they are not beside the labels
        most: annotated photographs that are drawn from; more take longer
        weights: a bundled name, a weights file, or a folder that training wrote
        device: auto, cpu, cuda or mps
        seed: of the draws
        json: write the numbers to this file
        plot: draw the curve
        y: from where y counts, if it is not as the format says
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.matching.forecast import forecast as run
    from normmatch.matching.matcher import Matcher
    from normmatch.outputs import check_outputs, words_apart, write_json, writing
    from normmatch.progress import show_progress

    check_count(most, "--most", 3, 1000)
    check_outputs({"--json": json, "--plot": plot}, [labels], overwrite)
    names, known = _known(labels, photographs, most, seed, y)
    matcher = Matcher(weights, device=device)
    found = run(known, matcher.backend, seed, lambda steps, total: show_progress(steps, total, 0, True, "draws"))
    with words_apart(json):
        _show(found, names, len(known))
        if json:
            rows = {
                str(n): {"within": p.within.tolist(), "low": p.low.tolist(), "high": p.high.tolist()}
                for n, p in found.curve.items()
            }
            landmarks = {name: None if v != v else v for name, v in zip(names, found.landmarks.tolist(), strict=True)}
            content = {"shares_of_the_object": [0.01, 0.02, 0.05, 0.1], "references": rows, "landmarks": landmarks}
            with writing(json):
                write_json(json, content | {"seconds": found.seconds, "advice": found.advice})
        if plot:
            with writing(plot):
                _draw(found, plot)


def _known(labels: Path, photographs: Path | None, most: int, seed: int, y: Vertical) -> tuple[list[str], list[Any]]:
    """The landmarks' names, and annotated photographs, of which some are drawn where there are many."""
    import numpy as np

    from normmatch import annotations
    from normmatch.annotations.formats import Photographs
    from normmatch.annotations.reading import Reading
    from normmatch.annotations.suspicions import stack
    from normmatch.matching.forecast import Known

    items = [item for item in annotations.read(labels, how=Reading(photographs, y=y)) if len(item.names) > 1]
    order = np.random.default_rng(seed).permutation(len(items))[:most]
    items = [items[k] for k in sorted(order.tolist())]
    folder = Photographs(labels if labels.is_dir() else labels.parent, photographs)
    files = [folder.find(item.image) for item in items]
    lost = [item.image for item, file in zip(items, files, strict=True) if file is None]
    if lost:
        raise InputError(f"{len(lost)} photographs are not there, such as {lost[0]}; expected them beside the labels.")
    names = list(dict.fromkeys(name for item in items for name in (*item.order, *item.names)))
    points = stack(items, names)
    return names, [Known(str(file), xy, item.box) for file, xy, item in zip(files, points, items, strict=True)]


def _show(found: Any, names: list[str], annotated: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "references", "within 1 %", "2 %", "5 % of the object", "10 %", title="landmarks, with 90 % intervals"
    )
    for count, point in found.curve.items():
        cells = [f"{w:.0%} ({a:.0%} to {b:.0%})" for w, a, b in zip(point.within, point.low, point.high, strict=True)]
        table.add_row(str(count), *cells)
    Console(markup=False, highlight=False).print(table)
    last = found.curve[max(found.curve)]
    low, high = (round(NEW * len(names) * (1 - share[2])) for share in (last.high, last.low))
    print(
        f"Of the {NEW * len(names):,} landmarks of {NEW} new photographs, {low:,} to {high:,} would need a hand, "
        f"more than 5 % of the object off; finding them takes {NEW * found.seconds / 60:.0f} minutes on this machine."
    )
    hard = [name for name, share in zip(names, found.landmarks, strict=True) if share < HARD]
    if hard:
        print(f"Hard: {', '.join(hard)}.")
    print(found.advice)


def _draw(found: Any, path: Path) -> None:
    from matplotlib.figure import Figure

    from normmatch.viz import save_plot

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    counts = sorted(found.curve)
    for k, share in enumerate(("1 %", "2 %", "5 %", "10 %")):
        (line,) = axes.plot(
            counts, [100 * found.curve[n].within[k] for n in counts], marker="o", label=f"within {share}"
        )
        low, high = ([100 * getattr(found.curve[n], side)[k] for n in counts] for side in ("low", "high"))
        axes.fill_between(counts, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xscale="log", xticks=counts, xlabel="references", ylabel="% of landmarks", ylim=(0, 100))
    axes.set_xticklabels([str(n) for n in counts])
    axes.minorticks_off()
    axes.legend(loc="upper left", fontsize=8)
    save_plot(figure, path)
