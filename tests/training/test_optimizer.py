"""What is trained, and how fast."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from normmatch.config import PRESETS, LossConfig, ModelConfig, TrainConfig
from normmatch.errors import ConfigError
from normmatch.model.network import NormMatch
from normmatch.training.loop import NetworkWithLosses
from normmatch.training.losses import MatchingLoss
from normmatch.training.optimizer import make_optimizer, move_average, rate

VIT = replace(PRESETS["tiny"], backbone="test_vit", backbone_layers=(2, 5), image_size=64, dim=16)


def optimized(model: ModelConfig, **changes: object) -> tuple[NetworkWithLosses, torch.optim.Optimizer]:
    config = TrainConfig(out=Path(), model=model, **changes)  # type: ignore[arg-type]
    module = NetworkWithLosses(NormMatch(model), MatchingLoss(config.loss))
    return module, make_optimizer(module.model, module.loss, config, torch.device("cpu"))


def test_an_average_moves_by_a_share_of_the_way_and_takes_the_buffers() -> None:
    average, model = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    nn.init.constant_(average.weight, 1.0)
    nn.init.constant_(model.weight, 5.0)
    model.running_mean = torch.tensor([3.0, 4.0])
    move_average(average, model, 0.25)
    assert average.weight.tolist() == [2.0, 2.0]
    assert average.running_mean is not None
    assert average.running_mean.tolist() == [3.0, 4.0]
    move_average(average, model, 1.0)
    assert torch.equal(average.weight, model.weight)


def test_cosine_rises_and_falls() -> None:
    run = TrainConfig(out=Path(), steps=100, warmup=10)
    rates = [rate(step, run) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == rates[10] == 1.0
    assert rates == sorted(rates[:10]) + sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.001


def test_steps_are_the_papers() -> None:
    """A tenth after epoch 2 and again after epoch 5 of 6, of 2,000 steps each."""
    run = TrainConfig(out=Path(), steps=12_000, warmup=0, schedule="steps")
    epochs = [{round(rate(step, run), 6) for step in range(2000 * e, 2000 * e + 2000, 1)} for e in range(6)]
    assert epochs == [{1.0}, {1.0}, {0.1}, {0.1}, {0.1}, {0.01}]
    assert rate(0, replace(run, warmup=10)) == pytest.approx(0.1)


def test_a_frozen_backbone_has_no_group() -> None:
    module, optimizer = optimized(PRESETS["tiny"], backbone_lr=0.0)
    assert [group["peak"] for group in optimizer.param_groups] == [7e-4]
    assert not any(p.requires_grad for p in module.model.backbone.parameters())


@pytest.mark.parametrize("model", [VIT, PRESETS["tiny"]], ids=["vit", "resnet"])
def test_rates_fall_from_layer_to_layer(model: ModelConfig) -> None:
    module, optimizer = optimized(model, lr=1.0, backbone_lr=0.1, layer_decay=0.5, weight_decay=0.3)
    net = module.model.backbone.net
    peaks = {id(p): group["peak"] for group in optimizer.param_groups for p in group["params"]}
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    rates = {name: peaks[id(p)] for name, p in net.named_parameters()}
    assert max(rates.values()) == pytest.approx(0.1)
    if model is VIT:
        blocks = [{rate for name, rate in rates.items() if name.startswith(f"blocks.{i}.")} for i in range(6)]
        assert [len(block) for block in blocks] == [1] * 6
        falls = [min(late) / min(early) for early, late in pairwise(blocks)]
        assert falls == pytest.approx([2.0] * 5)
        assert rates["patch_embed.proj.weight"] < min(blocks[0])
    assert len(set(rates.values())) > 3
    for p in net.parameters():
        assert decays[id(p)] == (0.3 if p.ndim > 1 else 0.0)
    assert {peaks[id(p)] for p in module.model.head.parameters()} == {1.0}


@pytest.mark.parametrize("model", [VIT, PRESETS["tiny"], PRESETS["vgg16"]], ids=["vit", "resnet", "vgg16"])
def test_the_order_of_parameters_stays(model: ModelConfig) -> None:
    """A checkpoint knows the optimiser's state by numbers: the head, the backbone's matrices, and the rest of it."""
    module, optimizer = optimized(replace(model, backbone_weights="random"), backbone_lr=0.1)
    backbone = list(module.model.backbone.parameters())
    expected = [
        [*module.model.head.parameters(), *module.loss.parameters()],
        [p for p in backbone if p.ndim > 1],
        [p for p in backbone if p.ndim <= 1],
    ]
    found = [group["params"] for group in optimizer.param_groups]
    assert [[id(p) for p in group] for group in found] == [[id(p) for p in group] for group in expected]


def test_layers_that_are_not_known() -> None:
    with pytest.raises(ConfigError, match=r"layer_decay is 0\.8, but vgg16 has no known layers; expected 1"):
        optimized(replace(PRESETS["vgg16"], backbone_weights="random"), layer_decay=0.8)


@pytest.mark.parametrize("loss", [LossConfig(), LossConfig(contrastive=False), LossConfig(learn_temperature=False)])
@pytest.mark.parametrize("model", [VIT, PRESETS["tiny"]], ids=["vit", "resnet"])
def test_everything_that_is_trained_gets_a_gradient(model: ModelConfig, loss: LossConfig) -> None:
    """Or several processes would wait for it."""
    model = replace(model, image_size=64, dim=16, shared_streams=False)
    module, _ = optimized(model, loss=loss)
    points = {f"keypoints{i}": 64 * torch.rand(2, 5, 2) for i in "01"}
    points |= {f"mask{i}": torch.ones(2, 5, dtype=torch.bool) for i in "01"}
    points |= {f"adjacency{i}": torch.ones(2, 5, 5, dtype=torch.bool) for i in "01"}
    images = {f"image{i}": torch.rand(2, 3, 64, 64) for i in "01"}
    module({**points, **images, "gt_matches0": torch.arange(5).repeat(2, 1)})["loss"].backward()
    missing = [name for name, p in module.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []
