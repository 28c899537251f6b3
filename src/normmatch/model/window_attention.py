"""SwinV2's window attention through fused attention kernels: timm multiplies 576 x 576 matrices out, one by one.

    softmax(s norm(q) . norm(k) + bias + mask) v,    bias = 16 sigmoid(MLP(relative place)),  s learned, a number a head

The answer is timm's; the bias, the same for every image, can be kept once the weights do not change any more.
"""

import math
from typing import Self

import torch
import torch.nn.functional as F
from timm.models.swin_transformer_v2 import WindowAttention
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

LARGEST_SCALE = math.log(100.0)  # of timm, and of the paper
FLEX_TOKENS = 128  # the fewest in a window for which FlexAttention has its fast kernel


class FusedWindowAttention(WindowAttention):
    """timm's WindowAttention with another `forward`; parameters and their names are its own."""

    kept_bias: Tensor | None = None  # (heads, N, N)
    flex = False  # attend by FlexAttention
    relative_coords_table: Tensor
    relative_position_index: Tensor

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend within windows x (B * windows, N, C); mask (windows, N, N) is added to the logits."""
        bias = None if self.q_bias is None else torch.cat([self.q_bias, self.k_bias, self.v_bias])  # type: ignore[list-item]
        qkv = F.linear(x, self.qkv.weight, bias)  # (B * windows, N, 3 C)
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # (B * windows, heads, N, d) each
        scale = self.logit_scale.clamp(max=LARGEST_SCALE).exp()  # (heads, 1, 1)
        q, k = (F.normalize(q, dim=-1) * scale).to(v.dtype), F.normalize(k, dim=-1).to(v.dtype)
        logits = (self.position_bias() if self.kept_bias is None else self.kept_bias).to(v.dtype).unsqueeze(0)
        if mask is not None:
            logits = logits + mask.to(v.dtype).unsqueeze(1)  # (windows or 1, heads, N, N)
        y = _by_flex(q, k, v, logits) if self.flex else _by_sdpa(q, k, v, logits, self.attn_drop.p * self.training)
        return self.proj_drop(self.proj(y.transpose(1, 2).flatten(2)))  # (B * windows, N, C)

    def position_bias(self) -> Tensor:
        """What the relative places of two tokens of a window add to their logit: (heads, N, N)."""
        table: Tensor = self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)
        n = self.window_size[0] * self.window_size[1]
        bias = table[self.relative_position_index.view(-1)].view(n, n, -1).permute(2, 0, 1)
        return 16 * bias.contiguous().sigmoid()  # fused kernels want rows whose numbers lie side by side

    def train(self, mode: bool = True) -> Self:
        if mode:
            self.kept_bias = None  # it would go stale
        return super().train(mode)


def use_fused_attention(net: nn.Module) -> None:
    """Let every window attention of a SwinV2 run fused; other networks stay as they are."""
    for module in net.modules():
        if type(module) is WindowAttention:
            module.__class__ = FusedWindowAttention  # what it holds stays what it was, so weights load as before


def use_flex_attention(net: nn.Module) -> None:
    """Let large windows attend by FlexAttention: for a network that is compiled for a GPU, and not trained."""
    for module in net.modules():
        if isinstance(module, FusedWindowAttention):
            module.flex = module.window_size[0] * module.window_size[1] >= FLEX_TOKENS


@torch.no_grad()
def keep_biases(net: nn.Module) -> None:
    """Compute the position biases once, for a network whose weights and device do not change until it is trained."""
    for module in net.modules():
        if isinstance(module, FusedWindowAttention):
            module.kept_bias = module.position_bias()


def _by_sdpa(q: Tensor, k: Tensor, v: Tensor, logits: Tensor, dropout: float) -> Tensor:
    """softmax(q . k + logits) v, of q, k, v (B * windows, heads, N, d) and logits (windows or 1, heads, N, N).

    Windows join the heads, so that one set of logits serves the whole batch.
    """
    shape, windows = q.shape, len(logits)
    q, k, v = (t.unflatten(0, (-1, windows)).flatten(1, 2) for t in (q, k, v))  # (B, windows * heads, N, d)
    logits = logits.flatten(0, 1).unsqueeze(0)  # (1, windows * heads, N, N)
    return F.scaled_dot_product_attention(q, k, v, logits, dropout, scale=1.0).reshape(shape)


def _by_flex(q: Tensor, k: Tensor, v: Tensor, logits: Tensor) -> Tensor:
    """`_by_sdpa` without dropout, in a kernel that the compiler writes; those that GPUs have for logits are slower."""
    windows = len(logits)

    def add(score: Tensor, window: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + logits[window % windows, head, i, j]

    return flex_attention(q, k, v, score_mod=add, scale=1.0)
