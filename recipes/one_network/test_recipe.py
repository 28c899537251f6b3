"""What the figures rest on: places agree everywhere, order means nothing, roles share no photograph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch

from data import Batches, Objects, affine, chosen, plain, render, shown_points, warp_points
from losses import gaussian_targets
from measure import Encoded, locate, match_accuracy
from network import OffsetDecoder, OneNetwork, cell_centers
from settings import Settings
from train import Training, save_checkpoint


def some_objects(n: int = 12, seed: int = 0) -> Objects:
    random = np.random.default_rng(seed)
    return Objects(
        np.arange(n), [("spair/cat", "spair/dog", "voc/cat", "voc/dog")[i % 4] for i in range(n)],
        random.random((n, 30, 2)).astype(np.float32), random.random((n, 30)) < 0.5,
        np.full((n, 2), 400, np.float32), np.full(n, 300, np.float32), [f"p{i}" for i in range(n)],
    )  # fmt: skip


def test_the_offset_decoder_is_the_same_function_on_the_grid_and_at_single_places() -> None:
    torch.manual_seed(0)
    decoder, trunk = OffsetDecoder(16, 8), torch.randn(2, 16, 5, 6)
    torch.nn.init.normal_(decoder.film[2].weight)
    for finer in (1, 2, 3):
        places = cell_centers(5 * finer, 6 * finer, "cpu").expand(2, -1, -1)
        grid = decoder.everywhere(trunk, finer).flatten(2).mT
        torch.testing.assert_close(decoder.at(trunk, places), grid, rtol=1e-4, atol=1e-5)


def test_warped_points_lie_where_the_warped_picture_has_them() -> None:
    random = np.random.default_rng(1)
    picture = torch.zeros(1, 3, 420, 420, dtype=torch.uint8)
    picture[:, :, 200:206, 260:266] = 255
    xy = np.array([[263 / 420, 203 / 420]])
    for flip in (False, True):
        moved, _, theta = warp_points(xy, np.ones(1, bool), *affine(random, 0.3, flip))
        image = render(picture, torch.from_numpy(theta)[None], 378)[0, 0]
        weights = image / image.sum()
        found = (weights.flatten()[:, None] * cell_centers(378, 378, "cpu")).sum(0)
        np.testing.assert_allclose(found, moved[0], atol=1e-3)


def test_the_target_is_centred_on_the_point() -> None:
    goal = gaussian_targets(torch.tensor([[[0.31, 0.62]]]), 54, 54, 1.0)[0, 0]
    torch.testing.assert_close(goal @ cell_centers(54, 54, "cpu"), torch.tensor([0.31, 0.62]), atol=1e-4, rtol=0)


def test_shown_points_keep_their_partners_in_any_order() -> None:
    objects = some_objects()
    pairs = np.array([[0, 4], [0, 1]])
    shown = shown_points(objects.xy, objects.known, pairs, np.array([True, False]), 0.5, np.random.default_rng(0))
    shared = (objects.known[0] & objects.known[4]).sum()
    assert (shown["gt_matches0"][0] >= 0).sum() == shared
    assert (shown["gt_matches0"][1] >= 0).sum() == 0
    for i, j in enumerate(shown["gt_matches0"][0]):
        if j >= 0:
            column = np.flatnonzero((objects.xy[0] == shown["keypoints0"][0, i]).all(1))[0]
            np.testing.assert_array_equal(objects.xy[4, column], shown["keypoints1"][0, j])


def test_batches_have_one_shape_whatever_is_mixed_in() -> None:
    for group in (2, 4):
        settings = Settings(images=8, group=group, self_pairs=0.4, others=0.3, strays=0.3)
        batches = Batches(some_objects(40), settings, 0)
        random = np.random.default_rng(0)
        shapes = {
            tuple((key, value.shape, value.dtype) for key, value in batches.draw(random).items()) for _ in range(20)
        }
        assert len(shapes) == 1


def test_fewer_kinds_and_fewer_objects_are_parts_of_more() -> None:
    objects = some_objects(40)
    assert len(chosen(objects, Settings(leave_out="B"))) == 20  # no dogs
    one = chosen(objects, Settings(leave_out="", kinds=1))
    assert len({label.split("/")[1] for label in one.labels}) == 1
    few, more = (chosen(objects, Settings(leave_out="", objects=n)).photographs for n in (5, 9))
    assert len(few) == 5
    assert set(few) < set(more)


def test_each_way_of_tuning_starts_as_the_backbone_that_it_tunes() -> None:
    image, maps, trained = torch.rand(1, 3, 56, 56), {}, {}
    for tune in ("all", "last4", "lora", "adapters", "none"):
        torch.manual_seed(0)
        network = OneNetwork(Settings(tune=tune, size=56)).eval()
        state = network.backbone.net.state_dict()
        if tune == "all":
            start = state
        else:
            own = {key.replace(".linear.", ".").replace(".mlp.mlp.", ".mlp."): key for key in state}
            own = {key.replace(".mlp.layer_scale.", ".ls2."): value for key, value in own.items()}
            network.backbone.net.load_state_dict({own[key]: start[key] for key in start}, strict=False)
        with torch.no_grad():
            maps[tune] = network.maps(image, [11])[11]
        trained[tune] = sum(p.numel() for p in network.backbone.parameters() if p.requires_grad)
        torch.testing.assert_close(maps[tune], maps["all"])
    assert trained["none"] == 0 < trained["lora"] < trained["last4"] < trained["all"]


@torch.no_grad()
def test_the_measure_finds_a_photograph_in_itself() -> None:
    torch.manual_seed(0)
    network, objects = OneNetwork(Settings(size=112, dim=32)).eval(), some_objects(4)
    encoded = Encoded(network, objects, torch.rand(4, 3, 112, 112))
    pairs = np.array([[0, 0], [2, 2]])
    right, total = match_accuracy(encoded, pairs)
    np.testing.assert_array_equal(total, objects.known[[0, 2]].sum(1))
    assert (right == total).all()
    found = locate(encoded, pairs)
    assert found["places"].shape == (2, 30, 2)
    assert (found["mass"] <= 1).all()


def test_plain_pictures_keep_their_range() -> None:
    assert plain(torch.full((1, 3, 420, 420), 255, dtype=torch.uint8), 56).amax() == 1


SWITCHES = (
    {"tune": "lora", "read": "5,8,11,12", "self_pairs": 0.4, "sigma": "3.5,1", "evenly": True},
    {"tune": "adapters", "decoder": "offset", "finer": 2, "group": 4},
    {"tune": "last4", "read_start": True, "others": 0.4, "strays": 0.4},
    {"tune": "none", "light": True, "together": 2, "subsets": True},
)


@pytest.mark.parametrize("switches", SWITCHES)
def test_every_switch_takes_steps_and_goes_on_after_a_stop(switches: dict, tmp_path: Path) -> None:
    settings = Settings(backbone_weights="random", images=8, size=56, warmup=1, drop_path=0.0, **switches)
    pictures = torch.randint(0, 255, (40, 3, 420, 420), dtype=torch.uint8)
    batches = iter(Batches(some_objects(40), settings, 0))
    shown = [next(batches) for _ in range(3)]
    training = Training(settings, torch.device("cpu"))
    training.network.train()
    start = [p.clone() for p in training.trained]
    training.step(shown[0], pictures)
    moved = sum(not torch.equal(*pair) for pair in zip(start, training.trained, strict=True))
    assert moved > 0.5 * len(start)
    save_checkpoint(training, tmp_path / "checkpoint.pt")
    resumed = Training(settings, torch.device("cpu"))
    resumed.network.train()
    resumed.load_state(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    losses = [run.step(shown[1], pictures) for run in (training, resumed)]
    assert all(torch.isfinite(value) for value in losses[0].values())
    resumed.network.save(tmp_path / "network.safetensors")
    OneNetwork.load(tmp_path / "network.safetensors")


def test_the_backbone_may_come_from_the_hub_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the hub: what it gives is what the network starts from."""
    plain, asked = timm.create_model, []

    def stand_in(name: str, pretrained: bool = False, **options: Any) -> torch.nn.Module:
        net = plain(name, **options)
        if pretrained:
            asked.append(name)
            torch.nn.init.constant_(net.norm.bias, 7.0)
        return net

    monkeypatch.setattr(timm, "create_model", stand_in)
    settings = Settings.from_command_line(None, ["--backbone-weights", "hub", "--size", "56"])
    network = OneNetwork(settings, settings.backbone_weights)
    assert asked == ["vit_small_patch14_dinov2"]
    assert (network.backbone.net.norm.bias == 7).all()
