"""SplineCNN (Fey et al., 2018): convolution on a graph in the plane, with a kernel interpolated by B-splines.

    x'_i = W_root x_i + b + max_{j in N(i)}  sum_k  B_k(u_ij) W_k x_j

B_k are the tensor products of linear (degree 1), open B-splines over K x K knots that span [0, 1]^2; u_ij are the
pseudo-coordinates. A node without neighbours gets the root term alone. All graphs of a batch go through together as
dense matrices: a few dozen points are neighbours of half of each other. Of a thousand points each has six neighbours,
so their graphs go through as lists of edges; other large ones in blocks of rows, so that memory stays bounded.
"""

import numpy as np
import torch
from torch import Tensor, nn

BLOCK_ELEMENTS = 1 << 28  # messages held at once: 1 GiB in float32
EDGES = 6  # a point: a triangulation has fewer, counted in both directions
MANY_POINTS = 128  # from here on lists of edges are faster than dense matrices


def pseudo_coordinates(keypoints: Tensor, adjacency: Tensor) -> Tensor:
    """Pseudo-coordinates (B, N, N, 2) in [0, 1]: where point j lies as seen from point i, 0.5 being "here".

        u_ij = 0.5 + (p_j - p_i) / (2 m),    m = the largest |p_j - p_i| along an axis over the edges of the graph

    Dividing by the graph's own m makes the graph blind to the place and size of the object, and uses the whole kernel.
    """
    offset = keypoints.unsqueeze(1) - keypoints.unsqueeze(2)  # (B, N, N, 2): [b, i, j] = p_j - p_i
    offset = offset.masked_fill(~adjacency.unsqueeze(-1), 0.0)
    largest = offset.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-6)  # (B, 1, 1, 1)
    return 0.5 + offset / (2 * largest)


def spline_basis(pseudo: Tensor, kernel: int) -> Tensor:
    """Weights B_k (..., K*K) of the knots at pseudo-coordinates (..., 2) in [0, 1]; they are >= 0 and sum to one.

    A linear B-spline is a hat over its knot, so the weight of a knot falls linearly to zero at the next one.
    """
    knots = torch.arange(kernel, device=pseudo.device, dtype=pseudo.dtype)
    hats = (1 - (pseudo.unsqueeze(-1) * (kernel - 1) - knots).abs()).clamp_min(0)  # (..., 2, K)
    return (hats[..., 1, :, None] * hats[..., 0, None, :]).flatten(-2)  # (..., K*K): row y, column x


def nearest_knots(pseudo: Tensor, kernel: int) -> tuple[Tensor, Tensor]:
    """The four knots (..., 4) around pseudo-coordinates (..., 2) and their weights B_k (..., 4); the others have 0."""
    place = pseudo * (kernel - 1)
    corner = place.floor().clamp(0, kernel - 2)
    x, y = (place - corner).unbind(-1)
    column, row = corner.long().unbind(-1)
    first = row * kernel + column  # (...)
    knots = torch.stack([first, first + 1, first + kernel, first + kernel + 1], -1)
    return knots, torch.stack([(1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y], -1)


def edge_list(adjacency: Tensor) -> Tensor | None:
    """Edges (B, 6 N, 2) of adjacency (B, N, N): point, neighbour; None where a graph has more, which no Delaunay has.

    A graph with fewer repeats its first edge, which no maximum notices: one shape for all graphs of N points. It is
    made on the CPU, by numpy: torch's threads would take longer to start than numpy takes for all of it.
    """
    graphs = adjacency.cpu().numpy()
    batch, n, _ = graphs.shape
    edges = np.zeros((batch, EDGES * n, 2), np.int64)
    for listed, graph in zip(edges, graphs, strict=True):
        found = np.flatnonzero(graph)  # (E,): point * n + neighbour
        if len(found) > len(listed):
            return None
        filled = np.full(len(listed), found[0] if len(found) else 0)
        filled[: len(found)] = found
        listed[:, 0], listed[:, 1] = np.divmod(filled, n)
    return torch.from_numpy(edges).to(adjacency.device)


class SplineConv(nn.Module):
    """One B-spline convolution with max aggregation, root weight and bias."""

    def __init__(self, dim_in: int, dim_out: int, kernel: int = 5) -> None:
        super().__init__()
        self.kernel = kernel
        self.in_blocks = True  # the export switches it off: a graph has as many operations for any size
        self.weight = nn.Parameter(torch.empty(dim_in, kernel * kernel * dim_out))
        self.root = nn.Linear(dim_in, dim_out)
        bound = (kernel * kernel * dim_in) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, basis: Tensor, adjacency: Tensor) -> Tensor:
        """Convolve nodes (B, N, C) with basis (B, N, N, K*K) over adjacency (B, N, N), both indexed [b, i, j]."""
        batch, n, _ = x.shape
        candidates = (x @ self.weight).view(batch, n, self.kernel**2, -1)  # (B, N, K*K, D): W_k x_j
        basis = basis.transpose(1, 2).to(candidates.dtype)  # (B, N, N, K*K), indexed [b, j, i]
        basis_blocks, edge_blocks = (basis,), (adjacency.mT,)
        if self.in_blocks:
            rows = max(1, BLOCK_ELEMENTS // (batch * n * candidates.shape[-1]))
            basis_blocks, edge_blocks = basis.split(rows, 2), adjacency.mT.split(rows, 2)
        blocks = []
        for block, edges in zip(basis_blocks, edge_blocks, strict=True):
            messages = (block @ candidates).masked_fill(~edges.unsqueeze(-1), -torch.inf)  # (B, j, rows, D)
            blocks.append(messages.amax(1).masked_fill(~edges.any(1).unsqueeze(-1), 0.0))  # (B, rows, D): 0 if alone
        return self.root(x) + (blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1))  # (B, N, D)

    def along_edges(self, x: Tensor, edges: Tensor, knots: Tensor, shares: Tensor) -> Tensor:
        """The strongest message (B, N, D) along edges (B, E, 2), with knots and shares (B, E, 4) of `nearest_knots`."""
        candidates = (x @ self.weight).unflatten(-1, (self.kernel**2, -1))  # (B, N, K*K, D)
        graph = torch.arange(len(x), device=x.device).view(-1, 1, 1)
        messages = candidates[graph, edges[..., 1:], knots] * shares.unsqueeze(-1).to(x.dtype)  # (B, E, 4, D)
        messages = messages.sum(2)  # (B, E, D)
        nothing = messages.new_zeros(*x.shape[:2], messages.shape[-1])  # (B, N, D)
        return nothing.scatter_reduce(1, edges[..., :1].expand_as(messages), messages, "amax", include_self=False)


class SplineCNN(nn.Module):
    """Two spline convolutions with ReLU, and a linear skip: (B, N, C) -> (B, N, D)."""

    def __init__(self, dim_in: int, dim_out: int, kernel: int = 5) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv1 = SplineConv(dim_in, dim_out, kernel)
        self.conv2 = SplineConv(dim_out, dim_out, kernel)
        self.skip = nn.Linear(dim_in, dim_out)

    def forward(self, x: Tensor, pseudo: Tensor, adjacency: Tensor, edges: Tensor | None = None) -> Tensor:
        """Refine node features (B, N, C) with pseudo-coordinates (B, N, N, 2) over adjacency (B, N, N).

        `edges` (B, E, 2), where they are known, are the `edge_list` of the adjacency.
        """
        if edges is None and not torch.compiler.is_compiling() and x.shape[1] >= MANY_POINTS:  # never asked in a trace
            edges = edge_list(adjacency)
        if edges is not None:
            return self._along_edges(x, pseudo, adjacency, edges)
        basis = spline_basis(pseudo, self.kernel)  # (B, N, N, K*K)
        hidden = self.conv1(x, basis, adjacency).relu()  # (B, N, D)
        hidden = self.conv2(hidden, basis, adjacency).relu()  # (B, N, D)
        return hidden + self.skip(x)

    def _along_edges(self, x: Tensor, pseudo: Tensor, adjacency: Tensor, edges: Tensor) -> Tensor:
        graph = torch.arange(len(x), device=x.device).unsqueeze(1)
        knots, shares = nearest_knots(pseudo[graph, edges[..., 0], edges[..., 1]], self.kernel)  # (B, E, 4) each
        alone = ~adjacency.any(2).unsqueeze(2)  # (B, N, 1): what fills up the list may name them
        hidden = x
        for conv in (self.conv1, self.conv2):
            strongest = conv.along_edges(hidden, edges, knots, shares).masked_fill(alone, 0.0)
            hidden = (conv.root(hidden) + strongest).relu()  # (B, N, D)
        return hidden + self.skip(x)
