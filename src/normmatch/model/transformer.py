"""The two-stream transformer: tokens of both images exchange information, and never leave the unit sphere.

A token sequence is [global; keypoints] of one image. The two images of a pair are stacked along the batch, the B first
images and then the B second ones, so that streams with shared weights run as one. The normalized layer follows nGPT
(Loshchilov et al., 2024), with the paper's cross-attention and global modulation.
"""

from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

ALPHA_INIT = 0.05  # how far a residual step goes at first


def norm(x: Tensor) -> Tensor:
    """Onto the unit sphere, in float32 at least: bf16 keeps three digits, too few for unit vectors that add up."""
    return F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)


def swap(x: Tensor) -> Tensor:
    """Exchange the first and the second images of a stack (2B, ...): each image sees its partner's."""
    first, second = x.unflatten(0, (2, x.shape[0] // 2))  # not `chunk`, which asks an exporter how many there are
    return torch.cat([second, first])


class Scale(nn.Module):
    """A learned vector that starts at `init` but is stored around 1/sqrt(D), so that Adam moves it at a fair pace."""

    def __init__(self, size: int, init: float, dim: int) -> None:
        super().__init__()
        self.factor = init * dim**0.5
        self.stored = nn.Parameter(torch.full((size,), dim**-0.5))

    def forward(self) -> Tensor:
        return self.stored * self.factor


class UnitLinear(nn.Linear):
    """A linear map without bias whose matrix has unit rows ("in": along the input) or unit columns ("out")."""

    def __init__(self, dim_in: int, dim_out: int, unit: str) -> None:
        super().__init__(dim_in, dim_out, bias=False)
        self.unit_dim = {"in": 1, "out": 0}[unit]
        nn.init.normal_(self.weight)
        self.normalize()

    @torch.no_grad()
    def normalize(self) -> None:
        self.weight.copy_(F.normalize(self.weight, dim=self.unit_dim))


class Attention(nn.Module):
    """Multi-head attention of queries x over a context; d is the width of a head.

    normalized:  softmax(sqrt(d) (s norm(q)) . (s norm(k))) v,  s (D,) learned, 1 at the start
    vanilla:     softmax(q . k / sqrt(d)) v
    """

    def __init__(self, dim: int, num_heads: int, normalized: bool) -> None:
        super().__init__()
        self.num_heads, self.normalized = num_heads, normalized
        if normalized:
            self.q, self.kv = UnitLinear(dim, dim, "in"), UnitLinear(dim, 2 * dim, "in")
            self.out = UnitLinear(dim, dim, "out")
            self.s_qk = Scale(dim, 1.0, dim)
        else:
            self.q, self.kv, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)  # type: ignore[assignment]

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """Attend from x (B, T, D) to the valid tokens, mask (B, S), of context (B, S, D)."""
        q = self.q(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, heads, T, d)
        k, v = self.kv(context).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # (B, heads, S, d) each
        scale = None  # 1 / sqrt(d)
        if self.normalized:
            s = (self.s_qk.stored * self.s_qk.factor).view(self.num_heads, 1, -1)  # (heads, 1, d), float32 at least
            q = (s * F.normalize(q.to(s.dtype), dim=-1)).to(v.dtype)
            k = (s * F.normalize(k.to(s.dtype), dim=-1)).to(v.dtype)
            scale = q.shape[-1] ** 0.5
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :], scale=scale)
        return self.out(y.transpose(1, 2).flatten(2))  # (B, T, D)


class SwiGLU(nn.Module):
    """The MLP: down(u * SiLU(v)) with u = up(x), v = gate(x); the normalized kind scales u by s_u, v by s_v sqrt(D)."""

    def __init__(self, dim: int, hidden: int, normalized: bool) -> None:
        super().__init__()
        self.normalized = normalized
        if normalized:
            self.up_gate = UnitLinear(dim, 2 * hidden, "in")
            self.down = UnitLinear(hidden, dim, "out")
            self.s_u, self.s_v = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.ones(hidden))
        else:
            self.up_gate, self.down = nn.Linear(dim, 2 * hidden), nn.Linear(hidden, dim)  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        u, v = self.up_gate(x).chunk(2, -1)  # (B, T, hidden) each
        if self.normalized:
            u, v = self.s_u * u, self.s_v * x.shape[-1] ** 0.5 * v
        return self.down(u * F.silu(v))  # (B, T, D)


class NormalizedLayer(nn.Module):
    """One stream of a two-stream layer on the sphere.

    x <- norm(x + alpha * (norm(y) - x)), for y in turn self-attention, cross-attention, the modulation
    x * x_global, and the MLP; each has an alpha of its own, positive, learned element by element.
    """

    def __init__(self, dim: int, num_heads: int, hidden: int, drop_path: float) -> None:
        super().__init__()
        self.self_attention = Attention(dim, num_heads, normalized=True)
        self.cross_attention = Attention(dim, num_heads, normalized=True)
        self.mlp = SwiGLU(dim, hidden, normalized=True)
        self.alpha_self, self.alpha_cross = Scale(dim, ALPHA_INIT, dim), Scale(dim, ALPHA_INIT, dim)
        self.alpha_global, self.alpha_mlp = Scale(dim, ALPHA_INIT, dim), Scale(dim, ALPHA_INIT, dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, other: Tensor, mask: Tensor, mask_other: Tensor) -> Tensor:
        """Tokens x (B, T, D) with mask (B, T); `other` is the partner image's as it was at the layer's start."""
        x = self.step(x, self.self_attention(x, x, mask), self.alpha_self())
        x = self.step(x, self.cross_attention(x, other, mask_other), self.alpha_cross())
        x = self.step(x, x * x[:, :1], self.alpha_global())
        return self.step(x, self.mlp(x), self.alpha_mlp())

    def step(self, x: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
        """From x (B, T, D), unit vectors in float32 at least, a share alpha (D,) of the way to y (B, T, D)."""
        towards = F.normalize(y.to(x.dtype), dim=-1) - x
        return F.normalize(x + self.drop_path(alpha.abs() * towards), dim=-1)


class VanillaLayer(nn.Module):
    """The ablation: a pre-norm layer of the same parts, whose features live anywhere."""

    def __init__(self, dim: int, num_heads: int, hidden: int, drop_path: float) -> None:
        super().__init__()
        self.self_attention = Attention(dim, num_heads, normalized=False)
        self.cross_attention = Attention(dim, num_heads, normalized=False)
        self.mlp = SwiGLU(dim, hidden, normalized=False)
        self.norm_self, self.norm_cross, self.norm_context = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.norm_global, self.norm_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, other: Tensor, mask: Tensor, mask_other: Tensor) -> Tensor:
        """Like NormalizedLayer.forward."""
        y = self.norm_self(x)
        x = x + self.drop_path(self.self_attention(y, y, mask))
        x = x + self.drop_path(self.cross_attention(self.norm_cross(x), self.norm_context(other), mask_other))
        y = self.norm_global(x)
        x = x + self.drop_path(y * y[:, :1])
        return x + self.drop_path(self.mlp(self.norm_mlp(x)))


class TwoStreamTransformer(nn.Module):
    """L layers over both images of each pair; one set of weights for both streams, or one each."""

    def __init__(
        self,
        dim: int,
        num_layers: int,
        num_heads: int,
        mlp_ratio: int = 4,
        *,
        normalized: bool = True,
        shared_streams: bool = True,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        layer = NormalizedLayer if normalized else VanillaLayer
        streams = 1 if shared_streams else 2
        self.normalized = normalized
        self.layers = nn.ModuleList(
            nn.ModuleList(layer(dim, num_heads, mlp_ratio * dim, drop_path) for _ in range(streams))
            for _ in range(num_layers)
        )

    def forward(self, x: Tensor, mask: Tensor) -> list[Tensor]:
        """Tokens (2B, T, D) after each layer, as unit vectors; x holds unit vectors and mask (2B, T) the valid ones.

        Both streams read the other image as it was at the layer's start, so neither comes first.
        """
        outputs, mask_other = [], swap(mask)
        streams: Any
        for streams in self.layers:
            other = swap(x)
            if len(streams) == 1:
                x = streams[0](x, other, mask, mask_other)
            else:
                halves = zip(*(t.unflatten(0, (2, t.shape[0] // 2)) for t in (x, other, mask, mask_other)), strict=True)
                x = torch.cat([stream(*half) for stream, half in zip(streams, halves, strict=True)])
            outputs.append(x if self.normalized else norm(x))  # the vanilla layers leave the sphere
        return outputs

    @torch.no_grad()
    def normalize_weights(self) -> None:
        """Put the matrices back on the sphere: to be called after every optimiser step.

        Unit rows are all D long, and so are unit columns: each kind is one large matrix, a few kernels for all layers.
        """
        linears = [module for module in self.modules() if isinstance(module, UnitLinear)]
        for dim in (0, 1):
            weights = [linear.weight for linear in linears if linear.unit_dim == dim]
            if weights:  # the vanilla layers have none
                unit = F.normalize(torch.cat(weights, 1 - dim), dim=dim)
                torch._foreach_copy_(weights, unit.split([weight.shape[1 - dim] for weight in weights], 1 - dim))
