"""The settings: presets are what they say, and a config that cannot be is refused with one sentence."""

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
import torch

import normmatch
from normmatch import PRESETS, ModelConfig, NormMatch
from normmatch.errors import ConfigError, NormMatchError


def on_meta(name: str) -> NormMatch:
    """A preset without memory for its weights."""
    with torch.device("meta"):
        return NormMatch(replace(PRESETS[name], backbone_weights="random"))


def count(module: torch.nn.Module) -> float:
    """Parameters, in millions."""
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


# name: backbone, image size, parameters in millions, of which in the backbone, channels of the maps, strides
EXPECTED: dict[str, tuple[str, int, float, float, tuple[int, int], tuple[int, int]]] = {
    "small": ("vit_small_patch14_dinov2", 378, 39.7, 22.1, (384, 384), (14, 14)),
    "vgg16": ("vgg16", 256, 77.5, 14.7, (512, 512), (8, 16)),
    "paper": ("swinv2_base_window12to24_192to384", 384, 192.6, 86.9, (512, 1024), (16, 32)),
    "paper-large": ("swinv2_large_window12to24_192to384", 384, 314.7, 195.2, (768, 1536), (16, 32)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_presets_construct_and_are_as_large_as_they_say(name: str) -> None:
    backbone, size, parameters, of_backbone, channels, strides = EXPECTED[name]
    config = PRESETS[name]
    assert (config.backbone, config.image_size, config.backbone_weights) == (backbone, size, "hub")
    model = on_meta(name)
    assert count(model) == pytest.approx(parameters, abs=0.1)
    assert count(model.backbone) == pytest.approx(of_backbone, abs=0.1)
    assert model.backbone.channels == channels
    maps = model.backbone(torch.rand(1, 3, size, size, device="meta")).maps
    assert [(m.shape[1], size // m.shape[2]) for m in maps] == list(zip(channels, strides, strict=True))


def test_tiny_is_tiny_and_needs_no_download() -> None:
    assert PRESETS["tiny"].backbone_weights == "random"
    assert 0.2 < count(NormMatch(PRESETS["tiny"])) < 0.9


def test_the_designs_choices() -> None:
    assert set(PRESETS) == {"small", "vgg16", "paper", "paper-large", "tiny"}
    assert ModelConfig() == PRESETS["small"]
    for config in PRESETS.values():
        assert (config.sinkhorn_epsilon, config.sinkhorn_rounds, config.spline_kernel) == (0.035, 27, 5)
        assert config.transformer == "normalized"
    assert {name: PRESETS[name].dim for name in EXPECTED} == {
        "small": 320,
        "vgg16": 648,
        "paper": 648,
        "paper-large": 648,
    }
    assert PRESETS["small"].backbone_layers == (8, 11)  # blocks 9 and 12
    assert PRESETS["vgg16"].backbone_layers == (20, 25)  # relu4_2 and relu5_1


def test_separate_streams_have_weights_of_their_own() -> None:
    shared, separate = (
        NormMatch(replace(PRESETS["tiny"], shared_streams=value)).head.transformer for value in (True, False)
    )
    assert count(separate) == pytest.approx(2 * count(shared))


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_a_config_is_frozen_and_survives_json(config: ModelConfig) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.dim = 3  # type: ignore[misc]
    values = json.loads(json.dumps(dataclasses.asdict(config)))
    assert ModelConfig(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}) == config


CANNOT_BE: list[tuple[dict[str, Any], str]] = [
    ({"num_heads": 7}, "model.num_heads"),  # does not divide 320
    ({"dim": 101}, "model.num_heads"),
    *(
        ({name: value}, f"model.{name}")
        for name in ("image_size", "dim", "num_layers", "num_heads", "mlp_ratio", "sinkhorn_rounds", "spline_kernel")
        for value in (-4, 0, 2.5, "many", None)
    ),
    ({"spline_kernel": 1}, "model.spline_kernel"),
    ({"num_layers": True}, "model.num_layers"),
    ({"drop_path": -0.1}, "model.drop_path"),
    ({"drop_path": 1.0}, "model.drop_path"),
    ({"drop_path": float("nan")}, "model.drop_path"),
    ({"sinkhorn_epsilon": 0.0}, "model.sinkhorn_epsilon"),
    ({"sinkhorn_epsilon": -1.0}, "model.sinkhorn_epsilon"),
    ({"sinkhorn_epsilon": float("inf")}, "model.sinkhorn_epsilon"),
    ({"sinkhorn_epsilon": float("nan")}, "model.sinkhorn_epsilon"),
    ({"transformer": "huge"}, "model.transformer"),
    ({"backbone_layers": (11, 8)}, "model.backbone_layers"),
    ({"backbone_layers": (8, 8)}, "model.backbone_layers"),
    ({"backbone_layers": (8,)}, "model.backbone_layers"),
    ({"backbone_layers": (3, 8, 11)}, "model.backbone_layers"),
    ({"backbone_layers": (-2, -1)}, "model.backbone_layers"),
    ({"backbone_layers": (0.5, 1.5)}, "model.backbone_layers"),
]


@pytest.mark.parametrize(("change", "name"), CANNOT_BE, ids=lambda value: str(value))
def test_a_config_that_cannot_be(change: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelConfig(**change)
    message = str(caught.value)
    assert message.startswith(f"{name} is ")
    assert "expected" in message
    assert "\n" not in message


MODELS_THAT_CANNOT_BE: list[tuple[dict[str, Any], str]] = [
    ({"backbone": "vit_smal_patch14"}, "model.backbone"),
    ({"backbone": "densenet121"}, "model.backbone"),
    ({"image_size": 384}, "model.image_size"),  # no multiple of 14
    ({"backbone_layers": (8, 12)}, "model.backbone_layers"),
    ({"backbone_weights": "no/such/file.safetensors"}, "no/such/file.safetensors"),
]


@pytest.mark.parametrize(("change", "name"), MODELS_THAT_CANNOT_BE, ids=lambda value: str(value))
def test_a_model_that_cannot_be(change: dict[str, Any], name: str) -> None:
    with torch.device("meta"), pytest.raises(NormMatchError) as caught:
        NormMatch(ModelConfig(**{"backbone_weights": "random", **change}))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_public_names() -> None:
    assert all(hasattr(normmatch, name) for name in normmatch.__all__)
    assert {"NormMatch", "ModelConfig", "PRESETS"} <= set(normmatch.__all__)
