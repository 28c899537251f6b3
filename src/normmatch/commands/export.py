"""`normmatch export`: the network as files for other programs."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg


def export(
    weights: Positional[str] = "small",
    *,
    out: Annotated[Path, arg(metavar="DIR")],
    format: str = "onnx",
    overwrite: bool = False,
) -> None:
    """Write a network as two ONNX files, an encoder of images and a head that matches, and check them against torch.

    The number of pairs, of points and, where the backbone allows it, the size of the images stay free. The encoder is
    run once for each image, the head once for each pair. The Delaunay graph of the points is an input of the head.
    Matcher(DIR, backend="onnx") matches photographs with the ONNX files, without torch.

    Args:
        weights: a bundled name, a file, a folder, or owner/name on a hub
        out: the folder for the files
        format: onnx; there is no other
        overwrite: replace files that NormMatch did not write, too
    """
    from normmatch.export.files import export as write
    from normmatch.export.files import output_files
    from normmatch.model.network import NormMatch
    from normmatch.outputs import check_outputs
    from normmatch.weights import find_weights

    check_outputs({"--out": [*output_files(out).values()]}, [find_weights(weights)], overwrite)
    for file, difference in write(NormMatch.from_pretrained(weights), out, format).items():
        agreement = f"within {difference:.0e}" if difference else "exactly"
        print(f"{file}  {file.stat().st_size / 1e6:.1f} MB  agrees with the network {agreement}")
