"""`normmatch propagate`: annotate once, match everywhere."""

import warnings
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from normmatch.commands.locate import locate
from normmatch.config import LocateOptions, MatchOptions

SHOWN = 3  # images that a message names


def propagate(
    reference: Annotated[Positional[Path], arg(metavar="REFERENCE")],
    images: Annotated[Positional[Path], arg(metavar="IMAGES")],
    *,
    candidates: Annotated[Path | None, arg(metavar="FILE")] = None,
    out: Annotated[Path | None, arg(metavar="FILE")] = None,
    options: Annotated[MatchOptions, arg(name="")] = MatchOptions(one_to_one=True),  # noqa: B008 - frozen
    overwrite: bool = False,
) -> None:
    """Find the named keypoints of one image among candidate points of all others; write COCO keypoints.

    normmatch propagate reference.json images --candidates candidates.json --out result.json

    Without candidates it is `normmatch locate`. A labelling tool opens the result; every keypoint has a score there,
    under `keypoint_scores`. Keypoints files are as for `normmatch match`; candidates may be called anything.

    Args:
        reference: a keypoints file with one object, whose image lies beside it or in IMAGES
        images: the folder of the other images
        candidates: a keypoints file with the candidate points of these images
        out: the COCO file to write, propagated.json if not given; without candidates the folder, located
        options: how each image is matched
        overwrite: replace files that NormMatch did not write, too
    """
    if candidates is None:
        how = LocateOptions(options.weights, options.device, options.backend)
        locate(reference, (images,), out=out or Path("located"), options=how, overwrite=overwrite)
        return
    from normmatch.matching.propagate import propagate as run
    from normmatch.outputs import words_apart

    out = out or Path("propagated.json")
    result = run(reference, images, candidates, out, options, overwrite)
    with words_apart(out):
        print(f"{result.objects:,} {'object is' if result.objects == 1 else 'objects are'} annotated in {out}")
    for what, listed in (
        ("images have no candidates", result.without),
        ("objects could not be matched", result.failed),
    ):
        if listed:
            more = " ..." if len(listed) > SHOWN else ""
            warnings.warn(f"{len(listed):,} {what}: {'; '.join(listed[:SHOWN])}{more}", stacklevel=2)
