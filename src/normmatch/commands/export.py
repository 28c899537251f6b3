"""`normmatch export`: the network as files for other programs."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg


def export(
    weights: Positional[str] = "small",
    *,
    out: Annotated[Path, arg(metavar="DIR")],
    overwrite: bool = False,
) -> None:
    """Write a network as ONNX, with its weights: what runs without torch, here or in other programs.

    normmatch export runs/mine --out onnx

    There is an encoder of images, a graph that embeds an image with its keypoints, and one that matches two of them.
    The numbers of images, pairs and points stay free, and where the backbone allows it the size of images. The Delaunay
    graph of the points is an input. They are checked against torch. Matcher(DIR, backend="onnx") runs them, and so do
    commands with --weights DIR --backend onnx. A folder of a training may be its own DIR.

    Args:
        weights: a bundled name, a file, a folder, or owner/name on a hub
        out: the folder for the files
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.extras import require

    require("onnx", "onnxscript", "torch")
    from normmatch.export.files import FILES, in_place
    from normmatch.export.files import export as write
    from normmatch.model.network import NormMatch
    from normmatch.outputs import check_outputs
    from normmatch.weights import FILE_NAME, find_weights

    file = find_weights(weights)
    names = FILES if in_place(file, out) else (*FILES, FILE_NAME)
    check_outputs({"--out": [out / name for name in names]}, [file], overwrite)
    for name, difference in write(NormMatch.from_pretrained(file), out, file).items():
        print(f"{out / name}.onnx agrees with the network within {difference:.0e}")
