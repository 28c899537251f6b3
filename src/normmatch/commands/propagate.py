"""`normmatch propagate`: annotate once, match everywhere."""

import warnings
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from normmatch.commands.options import Score

SHOWN = 3  # images that a message names


def propagate(
    reference: Annotated[Positional[Path], arg(metavar="REFERENCE")],
    images: Annotated[Positional[Path], arg(metavar="IMAGES")],
    *,
    candidates: Annotated[Path, arg(metavar="FILE")],
    out: Annotated[Path, arg(metavar="FILE")] = Path("propagated.json"),
    one_to_one: bool = True,
    min_score: Score = None,
    weights: str = "small",
    device: str = "auto",
    backend: Literal["torch", "onnx"] = "torch",
) -> None:
    """Find the named keypoints of one image among candidate points of all others; write COCO keypoints.

    normmatch propagate reference.json images --candidates candidates.json --out result.json

    A labelling tool opens the result; every keypoint has a score there, under `keypoint_scores`. Keypoints files are as
    for `normmatch match`; what the candidates are called does not matter.

    Args:
        reference: a keypoints file with one object, whose image lies beside it or in IMAGES
        images: the folder of the other images
        candidates: a keypoints file with the candidate points of these images
        out: the COCO file to write
        one_to_one: give no candidate two names
        min_score: a match with a lower score, from 0 to 1, is none; the network's calibrated one if not given
        weights: a bundled network, or a file or folder that training wrote
        device: auto, cpu, cuda or mps
        backend: what runs the network; onnx needs what `normmatch export` wrote as its weights
    """
    from normmatch.photographs.many import MatchOptions
    from normmatch.photographs.propagate import propagate as run

    options = MatchOptions(weights, device, backend, one_to_one=one_to_one, min_score=min_score)
    result = run(reference, images, candidates, out, options)
    print(f"{result.objects:,} objects are annotated in {out}")
    for what, listed in (
        ("images have no candidates", result.without),
        ("objects could not be matched", result.failed),
    ):
        if listed:
            more = " ..." if len(listed) > SHOWN else ""
            warnings.warn(f"{len(listed):,} {what}: {'; '.join(listed[:SHOWN])}{more}", stacklevel=2)
