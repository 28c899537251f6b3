"""`normmatch quickstart`: a first training in a minute or two."""

from pathlib import Path


def quickstart(out: Path = Path("quickstart"), steps: int = 550, overwrite: bool = False) -> None:
    """Train a tiny network on drawn figures for a minute or two, and show what it has learned.

    Args:
        out: the folder for the trained network and the picture
        steps: length of the training
        overwrite: replace a picture that NormMatch did not write, too
    """
    from normmatch.experiments.quickstart import quickstart as run

    run(out, steps, overwrite)
