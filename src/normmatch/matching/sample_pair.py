"""Match two sample photographs and draw them: what `make demo` runs."""

import time
from pathlib import Path

from normmatch.annotations import Annotation
from normmatch.io import read_image
from normmatch.matching.decoding import Result
from normmatch.matching.matcher import Matcher
from normmatch.matching.picture import draw_matches
from normmatch.matching.samples import get_sample
from normmatch.viz import check_format


def match_samples(
    title0: str, title1: str, weights: str = "small", out: Path = Path("matches.png")
) -> tuple[Annotation, Annotation, Result, float]:
    """Match two samples by their titles and draw them; returns their points, the result and the seconds it took."""
    check_format(out)
    first, second = get_sample(title0).points, get_sample(title1).points
    image0, image1 = (read_image(item.image) for item in (first, second))
    matcher = Matcher(weights)
    start = time.perf_counter()
    result = matcher.match(image0, image1, first.keypoints, second.keypoints, box0=first.box, box1=second.box)
    seconds = time.perf_counter() - start
    draw_matches(out, (image0, image1), (first, second), result)
    return first, second, result, seconds
