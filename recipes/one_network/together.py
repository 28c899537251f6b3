"""Landmarks found together: the points of the source tell each other where they believe they lie in the target.

After a first answer for each point alone, a few layers follow. In each, a point is a token that knows its descriptor,
where it lies among the source's other points, and where it was found so far; tokens attend to each other and to the
target's map, and answer again:

    logit(x) = s q . d(x) - l |x - m|^2 / 2,    q, l and m read off the token

where the second term says where the other points expect it. Every answer is trained.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from network import DenseHead, cell_centers

FREQUENCIES = 6
SPAN = 0.1  # of the image: the unit of the expected place's deviation


def waves(xy: Tensor) -> Tensor:
    """Sines and cosines (..., 4 FREQUENCIES) of places (..., 2)."""
    turns = torch.pi * 2.0 ** torch.arange(FREQUENCIES, device=xy.device, dtype=xy.dtype)
    phases = (xy.unsqueeze(-1) * turns).flatten(-2)
    return torch.cat([phases.sin(), phases.cos()], -1)


def among_the_others(xy: Tensor, known: Tensor) -> Tensor:
    """Places (P, K, 2) relative to the middle of the known points, in units of their spread."""
    weight = known.unsqueeze(2).to(xy.dtype)
    count = weight.sum(1, keepdim=True).clamp_min(1)
    offset = (xy - (xy * weight).sum(1, keepdim=True) / count) * weight
    spread = (offset.square().sum((1, 2), keepdim=True) / count).sqrt().clamp_min(0.02)
    return offset / spread / 4


class Layer(nn.Module):
    """Tokens attend to each other, then to the target; pre-norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = nn.Linear(width, 3 * width)
        self.query, self.context = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, target: Tensor, seen: Tensor) -> Tensor:
        """Tokens x (P, K, W), the target's places (P, S, W), and which tokens see which (P, 1, K, K)."""
        q, k, v = self._heads(self.own(self.norms[0](x)), 3)
        x = x + self.outs[0](F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2))
        (q,), (k, v) = self._heads(self.query(self.norms[1](x)), 1), self._heads(self.context(target), 2)
        x = x + self.outs[1](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[2](x))

    def _heads(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return tuple(part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in x.chunk(parts, 2))


class Together(nn.Module):
    """Answers of all points of a source at once."""

    def __init__(self, dim: int, layers: int, width: int = 192, heads: int = 6) -> None:
        super().__init__()
        self.enter, self.target = nn.Linear(dim, width), nn.Linear(dim + 4 * FREQUENCIES, width)
        self.source_place = nn.Linear(4 * FREQUENCIES, width)
        self.found_place = nn.ModuleList(nn.Linear(4 * FREQUENCIES + 1, width) for _ in range(layers))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.leave = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, dim + 3)) for _ in range(layers))
        for part in self.leave:
            nn.init.zeros_(part[1].weight)  # type: ignore[arg-type]
            nn.init.zeros_(part[1].bias)  # type: ignore[arg-type]

    def forward(self, head: DenseHead, queries: Tensor, xy: Tensor, known: Tensor, dense: Tensor) -> list[Tensor]:
        """Logits (P, K, h w + 1) of the answer alone and after each layer.

        Args:
            queries, xy, known: (P, K, D), (P, K, 2), (P, K): the source's points.
            dense: (P, D, h, w): the target's descriptors.
        """
        answers = [head.logits(queries, dense)]
        centers = cell_centers(*dense.shape[-2:], dense.device)
        coarse = F.adaptive_avg_pool2d(dense, (27, 27))
        places = waves(cell_centers(27, 27, dense.device)).expand(len(dense), -1, -1)
        target = self.target(torch.cat([coarse.flatten(2).mT, places], 2))  # (P, 729, W)
        x = self.enter(queries) + self.source_place(waves(among_the_others(xy, known)))
        itself = torch.eye(known.shape[1], dtype=torch.bool, device=known.device)
        seen = (known.unsqueeze(1) | itself).unsqueeze(1)  # (P, 1, K, K)
        for found_place, layer, leave in zip(self.found_place, self.layers, self.leave, strict=True):
            p = answers[-1].detach().float().softmax(-1)
            found = (p[..., :-1] @ centers) / p[..., :-1].sum(-1, keepdim=True).clamp_min(1e-6)
            x = x + found_place(torch.cat([waves(found), p[..., -1:]], -1))
            x = layer(x, target, seen)
            change, move, sharpness = leave(x).float().split([queries.shape[2], 2, 1], -1)
            logits = head.logits(F.normalize(queries + change, dim=-1), dense)
            expected = found + 0.5 * move.tanh()
            distance = ((expected.unsqueeze(2) - centers) / SPAN).square().sum(-1)  # (P, K, h w)
            prior = -0.5 * (sharpness - 3).exp() * distance
            answers.append(torch.cat([logits[..., :-1] + prior, logits[..., -1:]], -1))
        return answers
