"""SwinV2 as a test wants it."""

import torch
from timm.models.swin_transformer_v2 import WindowAttention


def wake(backbone: torch.nn.Module) -> None:
    """timm starts the norms that end SwinV2's blocks at 0, as if there were none, and position biases all alike."""
    for module in backbone.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.ones_(module.weight)
        if isinstance(module, WindowAttention):
            torch.nn.init.normal_(module.q_bias)
            torch.nn.init.normal_(module.logit_scale, 3.0, 0.3)
            torch.nn.init.normal_(module.cpb_mlp[2].weight)
