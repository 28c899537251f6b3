"""Match two sample photographs and show how well it went: what `make demo` runs."""

import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from normmatch.io import read_image
from normmatch.photographs.matcher import Matcher
from normmatch.photographs.samples import Sample, get_sample


def match_samples(first: str, second: str, weights: str = "small", out: Path = Path("matches.png")) -> float:
    """Match two samples by title, print a table, draw `out`; the share of the points of the first that are right."""
    from normmatch import viz

    console = Console()
    sample0, sample1 = get_sample(first), get_sample(second)
    points0, points1 = sample0.points, sample1.points
    matcher = Matcher(weights)
    start = time.perf_counter()
    result = matcher.match(
        sample0.path,
        sample1.path,
        points0.keypoints,
        points1.keypoints,
        box0=points0.box,
        box1=points1.box,
    )
    seconds = time.perf_counter() - start
    matches, scores = result["matches0"], result["matching_scores0"]
    console.print(match_table(sample0, sample1, matches, scores))
    right = matches == true_matches(sample0, sample1)
    console.print(f"{right.sum()} of {len(right)} right, in {seconds:.1f} s")
    figure = viz.plot_images([read_image(sample0.path), read_image(sample1.path)])
    viz.plot_matches(figure, points0.keypoints, points1.keypoints, matches, scores, names=points0.names)
    viz.save_plot(figure, out)
    console.print(f"the picture is {out}")
    return float(right.mean())


def true_matches(sample0: Sample, sample1: Sample) -> np.ndarray:
    """For each point of the first sample the point of the same name in the second, -1 where there is none."""
    places = {name: index for index, name in enumerate(sample1.points.names)}
    return np.array([places.get(name, -1) for name in sample0.points.names])


def match_table(sample0: Sample, sample1: Sample, matches: np.ndarray, scores: np.ndarray) -> Table:
    table = Table(title=f"{sample0.title} and {sample1.title}")
    for column in (f"point of the {sample0.title}", f"found on the {sample1.title}", "score", ""):
        table.add_column(column, justify="right" if column == "score" else "left")
    truth = true_matches(sample0, sample1)
    for index, name in enumerate(sample0.points.names):
        found = sample1.points.names[matches[index]] if matches[index] >= 0 else "-"
        verdict = "[green]right[/]" if matches[index] == truth[index] else "[red]wrong[/]"
        table.add_row(name, found, f"{scores[index]:.2f}", verdict)
    return table
