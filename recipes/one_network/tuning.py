"""Four ways of training a ViT further: all of it, its last blocks, LoRA, or bottleneck adapters.

LoRA (Hu et al., 2021) adds a product of two thin matrices to a linear map; adapters (AdaptFormer, Chen et al., 2022)
run beside a block's MLP. Both start as nothing, in the MLPs of the upper half of the blocks, and everything else stays
as it was; the lower half then needs no backward pass.
"""

import torch.nn.functional as F
from torch import Tensor, nn

UPPER = 6  # the first block, counted from 0, that LoRA and adapters change
LAST = 8  # the first block of "last4"
ADAPTER_SCALE = 0.1


class Lora(nn.Module):
    """y = W x + b + up(down(x)), where up starts at zero."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.up(self.down(x))


class AdaptedMlp(nn.Module):
    """y = ls(mlp(x)) + s up(relu(down(x))), where up starts at zero; ls is the block's own layer scale."""

    def __init__(self, mlp: nn.Module, layer_scale: nn.Module, dim: int) -> None:
        super().__init__()
        self.mlp, self.layer_scale = mlp, layer_scale
        self.down, self.up = nn.Linear(dim, dim // 2), nn.Linear(dim // 2, dim)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer_scale(self.mlp(x)) + ADAPTER_SCALE * self.up(F.relu(self.down(x)))


def prepare(net: nn.Module, tune: str, rank: int) -> None:
    """Mark what is trained in a timm ViT, and add what is to be added."""
    net.requires_grad_(tune == "all")
    blocks: nn.ModuleList = net.blocks  # type: ignore[assignment]
    if tune == "last4":
        for part in [*blocks[LAST:], net.norm]:
            part.requires_grad_(True)  # type: ignore[operator]
    for block in blocks[UPPER:]:
        if tune == "lora":
            block.mlp.fc1, block.mlp.fc2 = Lora(block.mlp.fc1, rank), Lora(block.mlp.fc2, rank)  # type: ignore
        if tune == "adapters":
            block.mlp = AdaptedMlp(block.mlp, block.ls2, net.embed_dim)  # type: ignore
            block.ls2 = nn.Identity()


def groups(net: nn.Module, backbone_lr: float, decay: float, added_lr: float) -> list[dict]:
    """Parameter groups with their peak rates: own weights by their depth, what was added at one rate."""
    by_rate: dict[float, list[nn.Parameter]] = {}
    depth = len(net.blocks)  # type: ignore[arg-type]
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            by_rate.setdefault(_rate(name, depth, backbone_lr, decay, added_lr), []).append(parameter)
    return [{"params": parameters, "peak": rate} for rate, parameters in by_rate.items()]


def _rate(name: str, depth: int, backbone_lr: float, decay: float, added_lr: float) -> float:
    if ".down." in name or ".up." in name:
        return added_lr
    if name.startswith("norm."):
        return backbone_lr
    level = int(name.split(".")[1]) + 1 if name.startswith("blocks.") else 0
    return backbone_lr * decay ** (depth - level)
