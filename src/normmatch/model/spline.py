"""SplineCNN (Fey et al., 2018): convolution on a graph in the plane, with a kernel interpolated by B-splines.

    x'_i = W_root x_i + b + max_{j in N(i)}  sum_k  B_k(u_ij) W_k x_j

B_k are the tensor products of linear (degree 1), open B-splines over K x K knots that span [0, 1]^2; u_ij are the
pseudo-coordinates. A node without neighbours gets the root term alone. All graphs of a batch go through together as
dense matrices; large ones in blocks of rows, so that memory stays bounded.
"""

import torch
from torch import Tensor, nn

BLOCK_ELEMENTS = 1 << 28  # messages held at once: 1 GiB in float32


def spline_basis(pseudo: Tensor, kernel: int) -> Tensor:
    """Weights B_k (..., K*K) of the knots at pseudo-coordinates (..., 2) in [0, 1]; they are >= 0 and sum to one.

    A linear B-spline is a hat over its knot, so the weight of a knot falls linearly to zero at the next one.
    """
    knots = torch.arange(kernel, device=pseudo.device, dtype=pseudo.dtype)
    hats = (1 - (pseudo.unsqueeze(-1) * (kernel - 1) - knots).abs()).clamp_min(0)  # (..., 2, K)
    return (hats[..., 1, :, None] * hats[..., 0, None, :]).flatten(-2)  # (..., K*K): row y, column x


class SplineConv(nn.Module):
    """One B-spline convolution with max aggregation, root weight and bias."""

    def __init__(self, dim_in: int, dim_out: int, kernel: int = 5) -> None:
        super().__init__()
        self.kernel = kernel
        self.in_blocks = True  # export.py switches it off: an exported graph has as many operations for any size
        self.weight = nn.Parameter(torch.empty(dim_in, kernel * kernel * dim_out))
        self.root = nn.Linear(dim_in, dim_out)
        bound = (kernel * kernel * dim_in) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, basis: Tensor, adjacency: Tensor) -> Tensor:
        """Convolve nodes (B, N, C) with basis (B, N, N, K*K) over adjacency (B, N, N), both indexed [b, i, j]."""
        batch, n, _ = x.shape
        candidates = (x @ self.weight).view(batch, n, self.kernel**2, -1)  # (B, N, K*K, D): W_k x_j
        basis = basis.transpose(1, 2).to(candidates.dtype)  # (B, N, N, K*K), indexed [b, j, i]
        if not self.in_blocks:
            return self.root(x) + _strongest(basis @ candidates, adjacency.mT)  # (B, N, D)
        rows = max(1, BLOCK_ELEMENTS // (batch * n * candidates.shape[-1]))
        blocks = [
            _strongest(block @ candidates, edges)  # (B, j, rows, D) -> (B, rows, D)
            for block, edges in zip(basis.split(rows, 2), adjacency.mT.split(rows, 2), strict=True)
        ]
        return self.root(x) + (blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1))  # (B, N, D)


def _strongest(messages: Tensor, edges: Tensor) -> Tensor:
    """The largest message (B, I, D) of those (B, J, I, D) that come along edges (B, J, I), or 0 where none does."""
    messages = messages.masked_fill(~edges.unsqueeze(-1), -torch.inf)
    return messages.amax(1).masked_fill(~edges.any(1).unsqueeze(-1), 0.0)


class SplineCNN(nn.Module):
    """Two spline convolutions with ReLU, and a linear skip: (B, N, C) -> (B, N, D)."""

    def __init__(self, dim_in: int, dim_out: int, kernel: int = 5) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv1 = SplineConv(dim_in, dim_out, kernel)
        self.conv2 = SplineConv(dim_out, dim_out, kernel)
        self.skip = nn.Linear(dim_in, dim_out)

    def forward(self, x: Tensor, pseudo: Tensor, adjacency: Tensor) -> Tensor:
        """Refine node features (B, N, C) with pseudo-coordinates (B, N, N, 2) over adjacency (B, N, N)."""
        basis = spline_basis(pseudo, self.kernel)  # (B, N, N, K*K)
        hidden = self.conv1(x, basis, adjacency).relu()  # (B, N, D)
        hidden = self.conv2(hidden, basis, adjacency).relu()  # (B, N, D)
        return hidden + self.skip(x)
