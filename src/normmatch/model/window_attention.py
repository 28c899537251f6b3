"""SwinV2's window attention through fused attention kernels: timm multiplies 576 x 576 matrices out, one by one.

    softmax(s norm(q) . norm(k) + bias + mask) v,    bias = 16 sigmoid(MLP(relative place)),  s learned, a number a head

The answer is timm's; the bias, the same for every image, can be kept once the weights do not change any more.
"""

import math
from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from timm.models.swin_transformer_v2 import WindowAttention
from torch import Tensor, nn

LARGEST_SCALE = math.log(100.0)  # of timm, and of the paper

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # `attend`, or the same done faster


def attend(qkv: Tensor, scale: Tensor, logits: Tensor, dropout: float = 0.0) -> Tensor:
    """softmax(scale norm(q) . norm(k) + logits) v of windows qkv (B * windows, N, 3 C), as (B * windows, N, C).

    scale (heads, 1, 1), logits (windows or 1, heads, N, N). Windows join the heads, so that one set of logits serves
    the whole batch.
    """
    windows, heads, _, _ = logits.shape
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)  # (B * windows, heads, N, d) each
    q, k = (F.normalize(q, dim=-1) * scale).to(v.dtype), F.normalize(k, dim=-1).to(v.dtype)
    shape = q.shape
    q, k, v = (t.unflatten(0, (-1, windows)).flatten(1, 2) for t in (q, k, v))  # (B, windows * heads, N, d)
    logits = logits.to(v.dtype).flatten(0, 1).unsqueeze(0)  # (1, windows * heads, N, N)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=logits, dropout_p=dropout, scale=1.0)
    return y.reshape(shape).transpose(1, 2).flatten(2)


class FusedWindowAttention(WindowAttention):
    """timm's WindowAttention with another `forward`; parameters and their names are its own."""

    kept_bias: Tensor | None = None  # (heads, N, N)
    attend: Attend = staticmethod(attend)
    relative_coords_table: Tensor
    relative_position_index: Tensor

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend within windows x (B * windows, N, C); mask (windows, N, N) is added to the logits."""
        bias = None if self.q_bias is None else torch.cat([self.q_bias, self.k_bias, self.v_bias])  # type: ignore[list-item]
        qkv = F.linear(x, self.qkv.weight, bias)  # (B * windows, N, 3 C)
        scale = self.logit_scale.clamp(max=LARGEST_SCALE).exp()  # (heads, 1, 1)
        logits = (self.position_bias() if self.kept_bias is None else self.kept_bias).unsqueeze(0)
        if mask is not None:
            logits = logits + mask.unsqueeze(1)  # (windows or 1, heads, N, N)
        y = self.attend(qkv, scale, logits, self.attn_drop.p if self.training else 0.0)
        return self.proj_drop(self.proj(y))  # (B * windows, N, C)

    def position_bias(self) -> Tensor:
        """What the relative places of two tokens of a window add to their logit: (heads, N, N)."""
        table: Tensor = self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)
        n = self.window_size[0] * self.window_size[1]
        bias = table[self.relative_position_index.view(-1)].view(n, n, -1).permute(2, 0, 1)
        return 16 * bias.contiguous().sigmoid()  # fused kernels want rows whose numbers lie side by side

    def train(self, mode: bool = True) -> Self:
        if mode:
            self.kept_bias = None  # it would go stale
            self.attend = attend  # the kernel has no gradients
        return super().train(mode)


def use_fused_attention(net: nn.Module) -> None:
    """Let every window attention of a SwinV2 run fused; other networks stay as they are."""
    for module in net.modules():
        if type(module) is WindowAttention:
            module.__class__ = FusedWindowAttention  # what it holds stays what it was, so weights load as before


@torch.no_grad()
def keep_biases(net: nn.Module) -> None:
    """Compute the position biases once, for a network whose weights and device do not change until it is trained."""
    for module in net.modules():
        if isinstance(module, FusedWindowAttention):
            module.kept_bias = module.position_bias()
