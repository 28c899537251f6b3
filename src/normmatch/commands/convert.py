"""`normmatch convert`: keypoints from one format into another."""

import warnings
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from normmatch.config import Format, Vertical
from normmatch.errors import InputError


def convert(
    source: Annotated[Positional[Path], arg(metavar="IN")],
    target: Annotated[Positional[Path], arg(metavar="OUT")],
    *,
    to: Format | None = None,
    images: Annotated[Path | None, arg(metavar="DIR")] = None,
    names: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = (),
    y: Vertical = "file",
    size: Annotated[tuple[int, int] | None, arg(metavar="WIDTH HEIGHT")] = None,
    negative_missing: bool = False,
    measure: Annotated[tuple[str, ...], arg(metavar="'NAME = A to B' ...")] = (),
    deviation: float | None = None,
    methods: bool = False,
    overwrite: bool = False,
) -> None:
    """Convert landmarks between the formats of labelling programs; what the new one cannot hold is said.

    normmatch convert wings.tps wings.csv --images photographs

    Read, by ending and content: our JSON and CSV, COCO, wide tables, TPS, NTS, DeepLabCut, Lightning Pose, SLEAP, YOLO
    pose, CVAT, Label Studio, labelme, VIA, ImageJ, StereoMorph, webmorph, .pts, morphologika. Written: those of `--to`.
    A format whose y counts from the bottom, as in TPS, needs the photographs, for their heights.

    Args:
        source: the file to read, or a folder of formats with a file a photograph
        target: the file to write; a folder for YOLO pose and labelme
        to: the format to write, if the ending does not say it
        images: the folder of the photographs, if they are not beside the file
        names: the landmarks in their order, for files that only count them
        y: from where y counts in IN, if it is not as the format says
        size: width and height of the photographs that IN is about, if they are not at hand
        negative_missing: points with a negative coordinate are missing, in TPS and NTS
        measure: columns of a wide table: 'head = nose to neck', 'bend = angle a b c', 'share = head / body'
        deviation: of setting a landmark, as a share of the object, for columns of the measures' errors
        methods: print a sentence for a methods section, of how NormMatch placed the landmarks
        overwrite: replace a file that NormMatch did not write, too
    """
    from normmatch import annotations
    from normmatch.annotations import formats, tables
    from normmatch.annotations import settings as kept
    from normmatch.annotations.measures import columns
    from normmatch.annotations.reading import Reading
    from normmatch.outputs import STDOUT, check_outputs, words_apart, write_text, writing

    format: Format = to or ("wide" if measure else formats.by_ending(target))
    if measure and format != "wide":
        raise InputError("--measure makes columns of a wide table; expected --to wide.")
    output = formats.OUTPUTS[format]
    check_outputs({"OUT": target if output.ending else target / "data.yaml"}, [source], overwrite)
    found = annotations.read(source, how=Reading(images, names, y, size, negative_missing), turned=False)
    found = formats.with_sizes(found, formats.Photographs(source if source.is_dir() else source.parent, images))
    for lost in formats.losses(found, format):
        warnings.warn(f"{output.title} cannot hold {lost}", stacklevel=2)
    settings = kept.read_settings(source)
    with writing(target):
        annotations.write(target, found, format, images, settings)
        if settings and format not in ("native", "coco"):
            kept.keep_beside(target, settings)
        if measure:
            write_text(target, tables.write_wide(found, columns(found, measure, deviation)))
    points, photographs = sum(len(item.names) for item in found), len({item.image for item in found})
    with words_apart(target if target == STDOUT else None):
        print(f"{points:,} landmarks of {photographs:,} photograph{'s' * (photographs != 1)} are in {target}")
        if methods:
            print(kept.sentence(settings) if settings else f"{source} does not say how its landmarks came about.")
