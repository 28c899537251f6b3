"""What is trained and how fast: AdamW with a rate for the backbone and one for the rest, schedules, and
the running average of the weights.
"""

import copy
import math
from typing import Any

import torch
from timm.optim import param_groups_layer_decay
from torch import Tensor, nn

from normmatch.config import TrainConfig
from normmatch.errors import ConfigError
from normmatch.model.network import NormMatch

FALLS = (2 / 6, 5 / 6)  # of the run, after which the paper's rate falls: epochs 2 and 5 of its 6
FALL = 0.1


def make_optimizer(
    model: NormMatch, loss: nn.Module, config: TrainConfig, device: torch.device
) -> torch.optim.Optimizer:
    """AdamW over what is trained of a network and its losses; each group knows its peak rate."""
    model.backbone.requires_grad_(config.backbone_lr > 0)
    rest = [p for p in (*model.heads(), *loss.parameters()) if p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": rest, "peak": config.lr, "weight_decay": 0.0}]
    net = model.backbone.net
    shares = layer_shares(net, config)
    for matrices, decay in ((True, config.weight_decay), (False, 0.0)):
        for share in sorted(set(shares.values()), reverse=True):
            params = [p for p in net.parameters() if shares.get(p) == share and (p.ndim > 1) == matrices]
            if params:
                groups.append({"params": params, "peak": config.backbone_lr * share, "weight_decay": decay})
    cuda = device.type == "cuda"
    for group in groups if cuda else ():
        group["lr"] = torch.zeros((), device=device)  # a recorded step reads the rate from there
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=cuda, capturable=cuda)


def set_rates(optimizer: torch.optim.Optimizer, step: int, config: TrainConfig) -> None:
    """Give each group its learning rate at a step."""
    for group in optimizer.param_groups:
        now = group["peak"] * rate(step, config)
        group["lr"] = group["lr"].fill_(now) if isinstance(group["lr"], Tensor) else now


def layer_shares(net: nn.Module, config: TrainConfig) -> dict[nn.Parameter, float]:
    """The share of the backbone's rate that each trained parameter learns at, by its layer; timm knows the layers."""
    if config.layer_decay < 1 and not hasattr(net, "group_matcher"):
        raise ConfigError(
            f"layer_decay is {config.layer_decay}, but {config.model.backbone} has no known layers; expected 1"
        )
    groups = param_groups_layer_decay(net, layer_decay=config.layer_decay)
    return {parameter: group["lr_scale"] for group in groups for parameter in group["params"]}


def rate(step: int, config: TrainConfig) -> float:
    """The share of the peak rate at a step: a linear rise, then half a cosine down to zero, or the paper's steps."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.schedule == "steps":
        return FALL ** sum(step >= share * config.steps for share in FALLS)
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.5 * (1 + math.cos(math.pi * done))


@torch.no_grad()
def move_average(average: nn.Module, model: nn.Module, share: float) -> None:
    """Move the parameters of an average towards a model's by a share of the way; buffers are the model's."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), share)
    if buffers := list(average.buffers()):
        torch._foreach_copy_(buffers, list(model.buffers()))


def averaged(average: NormMatch) -> NormMatch:
    """A copy of the averaged network, its matrices back on the sphere; the running average stays as it is."""
    model = copy.deepcopy(average)
    model.normalize_weights()
    return model.eval()
