"""Backbones: two maps and a pooled vector of every kind, at the layers asked for, with weights from wherever."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

from normmatch import ModelConfig, NormMatch
from normmatch.errors import ConfigError, InputError, WeightsError
from normmatch.model.backbone import PatchProduct, TimmBackbone, make_backbone

# name: layers, image size, channels of the two maps, their strides
KINDS: dict[str, tuple[tuple[int, int], int, tuple[int, int], tuple[int, int]]] = {
    "test_vit": ((3, 5), 64, (64, 64), (16, 16)),
    "deit_tiny_patch16_224": ((8, 11), 64, (192, 192), (16, 16)),
    "swin_tiny_patch4_window7_224": ((2, 3), 64, (384, 768), (16, 32)),
    "swinv2_tiny_window8_256": ((2, 3), 64, (384, 768), (16, 32)),
    "test_convnext": ((1, 3), 64, (32, 64), (8, 32)),
    "test_resnet": ((2, 4), 64, (48, 96), (8, 32)),
    "test_efficientnet": ((1, 4), 64, (24, 64), (4, 32)),
}


@pytest.mark.parametrize(("name", "size"), [("test_vit", (64, 96)), ("swinv2_tiny_window8_256", (64, 64))])
def test_patches_are_multiplied_as_timm_convolves_them(name: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    first = make_backbone(name, KINDS[name][0], 64, "random").net.patch_embed.proj
    assert type(first) is PatchProduct
    image = torch.rand(2, 3, *size)
    torch.testing.assert_close(first(image), nn.Conv2d.forward(first, image), atol=1e-5, rtol=1e-5)
    assert type(make_backbone(name, KINDS[name][0], 64, "random", fused=False).net.patch_embed.proj) is nn.Conv2d


@pytest.fixture(scope="module")
def vgg16() -> Any:
    torch.manual_seed(0)
    return make_backbone("vgg16", (20, 25), 256, "random").eval()


def make(name: str, seed: int = 0) -> TimmBackbone:
    layers, size, _, _ = KINDS[name]
    torch.manual_seed(seed)
    backbone = make_backbone(name, layers, size, "random").eval()
    assert isinstance(backbone, TimmBackbone)
    return backbone


def output_of(module: nn.Module, backbone: nn.Module, image: Tensor) -> Tensor:
    """What a part of the backbone returns while the backbone reads an image."""
    seen: list[Tensor] = []
    hook = module.register_forward_hook(lambda *args: seen.append(args[2]))
    backbone(image)
    hook.remove()
    return seen[0]


# ------------------------------------------------------------------------------------------------------ maps and layers


@pytest.mark.parametrize("name", KINDS)
def test_two_maps_and_a_pooled_vector(name: str) -> None:
    _, size, channels, strides = KINDS[name]
    backbone = make(name)
    image = torch.rand(2, 3, size, size)
    features = backbone(image)
    assert backbone.channels == channels
    for feature_map, c, stride in zip(features.maps, channels, strides, strict=True):
        assert feature_map.shape == (2, c, size // stride, size // stride)
        assert feature_map.isfinite().all()
    assert features.pooled.shape == (2, backbone.global_channels)
    torch.testing.assert_close(features.pooled, features.maps[1].mean((2, 3)))
    assert features.size == (size, size)
    torch.testing.assert_close(backbone(image[1:]).pooled, features.pooled[1:], atol=1e-5, rtol=1e-4)
    assert (features.pooled[0] - features.pooled[1]).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("test_convnext", "stages.1", "stages.3"),
        ("test_resnet", "layer2", "layer4"),  # 0 is the stem
        ("swin_tiny_patch4_window7_224", "layers.2", "layers.3"),
        ("swinv2_tiny_window8_256", "layers.2", "layers.3"),
    ],
)
def test_stages_are_those_asked_for(name: str, first: str, second: str) -> None:
    backbone, image = make(name), torch.rand(1, 3, 64, 64)
    maps = [output_of(backbone.net.get_submodule(part), backbone, image) for part in (first, second)]
    if name.startswith("swin"):
        maps = [maps[0], backbone.net.norm(maps[1])]  # the model's last norm belongs to its last stage
        maps = [m.permute(0, 3, 1, 2) for m in maps]  # (B, h, w, C) -> (B, C, h, w)
    for found, expected in zip(backbone(image).maps, maps, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256", "test_convnext"])
def test_stages_before_the_last_do_without_its_norm(name: str) -> None:
    backbone, image = make_backbone(name, (0, 2), 64, "random").eval(), torch.rand(1, 3, 64, 64)
    stages = backbone.net.stages if name == "test_convnext" else backbone.net.layers
    assert len(stages) == 3  # the last one is never run
    for found, i, stride in zip(backbone(image).maps, (0, 2), (4, 16), strict=True):
        expected = output_of(stages[i], backbone, image)
        expected = expected if name == "test_convnext" else expected.permute(0, 3, 1, 2)
        assert found.shape[2:] == (64 // stride, 64 // stride)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("layers", [(3, 5), (0, 1), (2, 4)])
def test_blocks_of_a_vit_are_those_asked_for(layers: tuple[int, int]) -> None:
    backbone = make_backbone("test_vit", layers, 64, "random").eval()
    image = torch.rand(1, 3, 64, 48)
    for found, layer in zip(backbone(image).maps, layers, strict=True):
        tokens = backbone.net.norm(output_of(backbone.net.blocks[layer], backbone, image))  # (1, 1 + 4 * 3, 64)
        torch.testing.assert_close(found, tokens[:, 1:].mT.unflatten(2, (4, 3)))


def test_layers_change_the_channels_of_the_head() -> None:
    for layers, channels in (((0, 1), 24 + 32), ((2, 3), 48 + 64)):
        config = ModelConfig(
            backbone="test_convnext", backbone_weights="random", backbone_layers=layers, dim=16, num_heads=2
        )
        assert NormMatch(config).head.spline.skip.in_features == channels


def test_the_mean_and_deviation_of_the_backbone() -> None:
    backbone, image = make("test_vit"), torch.rand(1, 3, 64, 64)
    cfg = backbone.net.pretrained_cfg
    mean, std = (torch.tensor(cfg[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    expected = backbone.net.patch_embed.proj((image - mean) / std)
    torch.testing.assert_close(output_of(backbone.net.patch_embed.proj, backbone, image), expected)


# ---------------------------------------------------------------------------------------------------------- image sizes


@pytest.mark.parametrize("size", [(16, 16), (32, 48), (160, 160), (208, 64)])
def test_a_vit_at_any_multiple_of_its_patch(size: tuple[int, int]) -> None:
    backbone = make("test_vit")
    torch.nn.init.normal_(backbone.net.pos_embed)  # so that it matters
    image = torch.rand(1, 3, *size)
    features = backbone(image)
    grid = (size[0] // 16, size[1] // 16)
    assert features.size == size
    assert features.maps[0].shape[2:] == grid
    reference = timm.create_model("test_vit", img_size=size, num_classes=0).eval()  # made for this size
    state = backbone.net.state_dict()
    state["pos_embed"] = resample_abs_pos_embed(state["pos_embed"], list(grid), num_prefix_tokens=1)
    reference.load_state_dict(state)
    maps = reference.forward_intermediates(
        backbone.standardize(image), indices=[3, 5], norm=True, intermediates_only=True
    )
    for found, expected in zip(features.maps, maps, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", [(100, 96), (96, 100), (8, 16)])
def test_a_vit_at_another_size_says_so(size: tuple[int, int]) -> None:
    with pytest.raises(
        InputError, match=rf"image is {size[1]} x {size[0]}, expected multiples of test_vit's patch, 16"
    ):
        make("test_vit")(torch.rand(1, 3, *size))


def test_a_swin_at_another_size_says_so() -> None:
    with pytest.raises(InputError, match="image is 96 x 64, expected the 64 x 64"):
        make("swin_tiny_patch4_window7_224")(torch.rand(1, 3, 64, 96))


@pytest.mark.parametrize("name", ["test_convnext", "test_resnet"])
def test_convolutions_at_any_size(name: str) -> None:
    backbone = make(name)
    assert backbone(torch.rand(1, 3, 70, 45)).size == (70, 45)
    with pytest.raises(InputError, match="image is 20 x 64, expected at least 32"):
        backbone(torch.rand(1, 3, 64, 20))


@pytest.mark.parametrize(
    ("name", "layers", "size"),
    [("test_vit", (3, 5), 100), ("test_convnext", (2, 3), 16)],
)
def test_an_image_size_that_cannot_be_is_found_at_once(name: str, layers: tuple[int, int], size: int) -> None:
    with pytest.raises(ConfigError, match=f"model.image_size {size}") as caught:
        make_backbone(name, layers, size, "random")
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------------------------------------- VGG16


def test_vgg16_gives_relu4_2_and_relu5_1(vgg16: Any) -> None:
    features = torchvision.models.vgg16().features
    names, block, conv = [], 1, 0  # names of the layers as the literature has them
    for layer in features:
        conv += isinstance(layer, nn.Conv2d)
        names.append(f"{type(layer).__name__.lower()}{block}_{conv}")
        if isinstance(layer, nn.MaxPool2d):
            block, conv = block + 1, 0
    features.load_state_dict(vgg16.net.state_dict())
    image = torch.rand(2, 3, 64, 48)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (image - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    expected = {}
    with torch.no_grad():
        for name, layer in zip(names, features, strict=True):
            x = layer(x)
            expected[name] = x.clone()
        found = vgg16(image)
    torch.testing.assert_close(found.maps[0], expected["relu4_2"])
    torch.testing.assert_close(found.maps[1], expected["relu5_1"])
    torch.testing.assert_close(found.pooled, expected["relu5_3"].mean((2, 3)))
    assert [tuple(m.shape) for m in found.maps] == [(2, 512, 8, 6), (2, 512, 4, 3)]
    assert (vgg16.channels, vgg16.global_channels) == ((512, 512), 512)
    vgg16.layers = (19, 24)  # the convolutions: their ReLU must not reach back into them
    with torch.no_grad():
        maps = vgg16(image).maps
    vgg16.layers = (20, 25)
    torch.testing.assert_close(maps[0], expected["conv2d4_2"])
    torch.testing.assert_close(maps[1], expected["conv2d5_1"])


def test_vgg16_is_the_presets_choice_of_layers() -> None:
    with torch.device("meta"):
        early = make_backbone("vgg16", (3, 13), 64, "random")
    assert early.channels == (64, 256)
    maps = early(torch.rand(1, 3, 32, 32, device="meta")).maps
    assert [m.shape[1] for m in maps] == [64, 256]


def test_vgg16_of_a_tiny_image(vgg16: Any) -> None:
    with pytest.raises(InputError, match="image is 20 x 8, expected at least 16"):
        vgg16(torch.rand(1, 3, 8, 20))


# ------------------------------------------------------------------------------------------------- weights from the hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A hub that has the files put into it, by repository, and no pickles: only timm's download is replaced."""
    files: dict[str, Path] = {}

    def download(repo_id: str, filename: str, **_: Any) -> str:
        if repo_id not in files or filename != "model.safetensors":
            raise LocalEntryNotFoundError("the hub cannot be reached\nand here are many more lines about it")
        return str(files[repo_id])

    def unsafe(*args: Any, **_: Any) -> None:
        raise AssertionError("something was unpickled")

    monkeypatch.setattr(timm.models._hub, "hf_hub_download", download)
    monkeypatch.setattr(torch, "load", unsafe)
    monkeypatch.setattr(torch.hub, "download_url_to_file", unsafe)
    return files


def test_weights_from_the_hub(hub: dict[str, Path], tmp_path: Path) -> None:
    published = timm.create_model("test_vit")  # with its classifier, as timm publishes it
    hub["timm/test_vit.r160_in1k"] = tmp_path / "model.safetensors"
    save_file(published.state_dict(), hub["timm/test_vit.r160_in1k"])
    backbone = make_backbone("test_vit", (3, 5), 64, "hub")
    state = published.state_dict()
    for key, value in backbone.net.state_dict().items():
        assert torch.equal(value, state[key]), key


def test_weights_of_vgg16_from_the_hub(hub: dict[str, Path], tmp_path: Path, vgg16: Any) -> None:
    state = {f"features.{key}": value for key, value in vgg16.net.state_dict().items()}
    hub["timm/vgg16.tv_in1k"] = tmp_path / "model.safetensors"
    save_file({key: value.half() for key, value in state.items()}, hub["timm/vgg16.tv_in1k"])
    backbone = make_backbone("vgg16", (20, 25), 64, "hub")
    for key, value in backbone.net.state_dict().items():
        assert torch.equal(value, state[f"features.{key}"].half().float()), key


@pytest.mark.parametrize(("name", "layers"), [("test_vit", (3, 5)), ("vgg16", (20, 25))])
def test_a_hub_that_fails_gets_one_sentence(hub: dict[str, Path], name: str, layers: tuple[int, int]) -> None:
    with pytest.raises(WeightsError, match=f"backbone {name} could not be had from the hub") as caught:
        make_backbone(name, layers, 64, "hub")
    assert "\n" not in str(caught.value)
    assert "model.backbone_weights" in str(caught.value)


def test_a_tag_chooses_among_a_models_weights(hub: dict[str, Path]) -> None:
    make_backbone("test_vit.r160_in1k", (3, 5), 64, "random")
    with pytest.raises(ConfigError, match="nonsense"):
        make_backbone("test_vit.nonsense", (3, 5), 64, "hub")


def test_random_weights_ask_no_hub(hub: dict[str, Path]) -> None:
    make_backbone("test_vit", (3, 5), 64, "random")


# -------------------------------------------------------------------------------------------------- weights from a file


@pytest.mark.parametrize("precision", ["full", "half"])
def test_weights_from_a_file(precision: str, tmp_path: Path) -> None:
    state = make("test_vit", seed=1).net.state_dict()
    if precision == "half":
        state = {key: value.half() for key, value in state.items()}
    save_file(state, tmp_path / "b.safetensors")
    net = make_backbone("test_vit", (3, 5), 64, str(tmp_path / "b.safetensors")).net
    for key, value in net.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, state[key].float()), key


def wrong_files(folder: Path) -> dict[str, str]:
    """Files that do not fit test_vit, and what the sentence about them should say."""
    state = make("test_vit").net.state_dict()
    save_file(make("test_convnext").net.state_dict(), folder / "other-model.safetensors")
    save_file({k: v for k, v in state.items() if k != "norm.bias"}, folder / "lacking.safetensors")
    save_file({**state, "head.weight": torch.rand(3, 3)}, folder / "more.safetensors")
    save_file({**state, "norm.bias": torch.rand(3)}, folder / "shape.safetensors")
    (folder / "text.safetensors").write_text("no weights at all")
    (folder / "empty.safetensors").write_bytes(b"")
    torch.save(state, folder / "pickle.pt")
    (folder / "folder.safetensors").mkdir()
    return {
        "other-model.safetensors": "does not fit", "lacking.safetensors": "lacks norm.bias",
        "more.safetensors": "head.weight", "shape.safetensors": "another shape for norm.bias",
        "text.safetensors": "not a readable safetensors file", "empty.safetensors": "not a readable safetensors file",
        "pickle.pt": "not a readable safetensors file", "missing.safetensors": "does not exist",
        "folder.safetensors": "does not exist",
    }  # fmt: skip


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    for name, words in wrong_files(tmp_path).items():
        with pytest.raises(WeightsError) as caught:
            make_backbone("test_vit", (3, 5), 64, str(tmp_path / name))
        message = str(caught.value)
        assert name in message
        assert words in message
        assert "\n" not in message


# -------------------------------------------------------------------------------------------- what cannot be a backbone


@pytest.mark.parametrize("name", ["vit_smal_patch14", "resnet5000", "", "vgg", "hf-hub:timm/test_vit", "no/such.model"])
def test_unknown_backbones(name: str) -> None:
    with pytest.raises(ConfigError, match="model.backbone is"):
        make_backbone(name, (0, 1), 64, "random")


class Flat(nn.Module):
    """A model of timm's whose intermediate results are no maps."""

    feature_info = ({}, {})

    def forward_intermediates(self, image: Tensor, **_: Any) -> list[Tensor]:
        return [image.flatten(1), image.flatten(1)]


@pytest.mark.parametrize(("net", "lacks"), [(nn.Linear(1, 1), "forward_intermediates"), (Flat(), "maps")])
def test_models_without_feature_maps(monkeypatch: pytest.MonkeyPatch, net: nn.Module, lacks: str) -> None:
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: net)
    with pytest.raises(ConfigError, match=f"model.backbone test_resnet gives no feature maps.*{lacks}"):
        make_backbone("test_resnet", (0, 1), 64, "random")


@pytest.mark.parametrize(
    ("name", "layers"), [("test_vit", (5, 6)), ("test_vit", (-2, 1)), ("test_convnext", (3, 4)), ("vgg16", (20, 30))]
)
def test_layers_that_there_are_not(name: str, layers: tuple[int, int]) -> None:
    with torch.device("meta"), pytest.raises(ConfigError, match=r"model.backbone_layers .* expected numbers from 0 to"):
        make_backbone(name, layers, 64, "random")
