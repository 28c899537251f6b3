"""The Delaunay graph of keypoints, in numpy: it stays outside of exported networks, and runs where torch is not.

Valid range: any number of points, anywhere. Fewer than three points, collinear points and coinciding points have no
triangulation: they give the complete graph.
"""

from collections.abc import Sequence

import numpy as np
from scipy.spatial import Delaunay, QhullError


def delaunay(keypoints: np.ndarray) -> np.ndarray:
    """Adjacency (N, N) of the Delaunay triangulation of keypoints (N, 2): symmetric, no self-loops."""
    n = len(keypoints)
    complete = ~np.eye(n, dtype=bool)
    if n < 4:  # a triangle is complete, and so is everything smaller
        return complete
    order = np.lexsort(keypoints.T)  # on a grid Qhull picks the diagonals by the order of the points, so fix the order
    try:
        triangulation = Delaunay(keypoints[order])
    except QhullError:  # collinear
        return complete
    if len(triangulation.coplanar):  # a point that Qhull left out: it coincides with another
        return complete
    corners = order[triangulation.simplices]  # (T, 3)
    adjacency = np.zeros((n, n), dtype=bool)
    for a, b in ((0, 1), (1, 2), (2, 0)):
        adjacency[corners[:, a], corners[:, b]] = True
        adjacency[corners[:, b], corners[:, a]] = True
    return adjacency


def pad_points(points: Sequence[np.ndarray], n: int) -> dict[str, np.ndarray]:
    """The keypoints (K, 2) of B images filled up to n points with zeros, which points are real, and their graphs.

    Returns keypoints (B, n, 2) float32, mask (B, n) and adjacency (B, n, n) bool.
    """
    keypoints = np.zeros((len(points), n, 2), np.float32)
    mask = np.zeros((len(points), n), bool)
    adjacency = np.zeros((len(points), n, n), bool)
    for b, xy in enumerate(points):
        k = len(xy)
        keypoints[b, :k], mask[b, :k], adjacency[b, :k, :k] = xy, True, delaunay(xy)
    return {"keypoints": keypoints, "mask": mask, "adjacency": adjacency}
