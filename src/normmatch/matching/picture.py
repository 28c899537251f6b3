"""A picture of a matched pair: both images side by side, with lines coloured by score."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from normmatch.annotations import Annotation
from normmatch.matching.decoding import Result

PICTURE_SIDE = 1600  # pixels of an image in a picture: a photograph of 100 megapixels is no better there


def draw_matches(path: Path, images: Sequence[np.ndarray], points: Sequence[Annotation], result: Result) -> None:
    """Write a picture of two images (H, W, 3) uint8 with their points and matches."""
    from normmatch import viz

    (small0, points0), (small1, points1) = (
        shrink(image, item.keypoints) for image, item in zip(images, points, strict=True)
    )
    figure = viz.plot_images([small0, small1])
    scores, (names0, names1) = result["matching_scores0"], (item.names for item in points)
    viz.plot_matches(figure, points0, points1, result["matches0"], scores, names=names0, names1=names1)
    viz.save_plot(figure, path)


def shrink(image: np.ndarray, keypoints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An image and its keypoints, made small enough for a picture."""
    scale = min(1.0, PICTURE_SIDE / max(image.shape[:2]))
    if scale == 1:
        return image, keypoints
    height, width = (max(1, round(side * scale)) for side in image.shape[:2])
    small = Image.fromarray(image).resize((width, height), Image.Resampling.BOX, reducing_gap=2.0)
    return np.asarray(small), keypoints * (width / image.shape[1], height / image.shape[0])
