"""Match two sample photographs and show how well it went: what `make demo` runs."""

import time
from pathlib import Path

from normmatch.matching.decoding import Result
from normmatch.matching.matcher import Matcher
from normmatch.matching.record import draw_matches, print_matches
from normmatch.matching.samples import get_sample
from normmatch.viz import check_format


def match_samples(title0: str, title1: str, weights: str = "small", out: Path = Path("matches.png")) -> Result:
    """Match two samples by their titles, print the table of their points, and draw them."""
    check_format(out)
    first, second = get_sample(title0).points, get_sample(title1).points
    matcher = Matcher(weights)
    start = time.perf_counter()
    result = matcher.match(
        first.image, second.image, first.keypoints, second.keypoints, box0=first.box, box1=second.box
    )
    seconds = time.perf_counter() - start
    print_matches(first, second, result)
    print(f"they were matched in {seconds:.1f} s")
    draw_matches(out, first, second, result)
    print(f"the picture is {out}")
    return result
