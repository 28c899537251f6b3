"""The keypoint graph: a Delaunay triangulation, and where each neighbour lies as seen from a point."""

import numpy as np
import torch
from torch import Tensor

from normmatch.geometry import delaunay


def delaunay_batch(keypoints: Tensor, mask: Tensor) -> Tensor:
    """Adjacency (B, N, N) of the valid points of each image; a padded point has no edge. Runs on the CPU."""
    points, valid = keypoints.detach().cpu().numpy(), mask.cpu().numpy()
    adjacency = np.zeros((*valid.shape, valid.shape[1]), dtype=bool)
    for graph, xy, keep in zip(adjacency, points, valid, strict=True):
        if keep.all():
            graph[:] = delaunay(xy)
        else:
            graph[np.ix_(keep, keep)] = delaunay(xy[keep])
    return torch.from_numpy(adjacency).to(keypoints.device)


def pseudo_coordinates(keypoints: Tensor, adjacency: Tensor) -> Tensor:
    """Pseudo-coordinates (B, N, N, 2) in [0, 1]: where point j lies as seen from point i, 0.5 being "here".

        u_ij = 0.5 + (p_j - p_i) / (2 m),    m = the largest |p_j - p_i| along an axis over the edges of the graph

    Dividing by the graph's own m makes the graph blind to the place and size of the object, and uses the whole kernel.
    """
    offset = keypoints.unsqueeze(1) - keypoints.unsqueeze(2)  # (B, N, N, 2): [b, i, j] = p_j - p_i
    offset = offset.masked_fill(~adjacency.unsqueeze(-1), 0.0)
    largest = offset.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-6)  # (B, 1, 1, 1)
    return 0.5 + offset / (2 * largest)
