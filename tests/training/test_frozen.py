"""Views of a frozen backbone: they are what the network itself would see, are kept, and train the head."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from normmatch.config import PRESETS, AugmentConfig, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import ConfigError
from normmatch.model.network import NormMatch
from normmatch.model.sampling import node_features
from normmatch.training import frozen
from normmatch.training.batches import KeypointTable, TrainBatches
from normmatch.training.frozen import describe_by_size, make_views
from normmatch.training.loop import train

SIZE = 64
STILL = AugmentConfig(affine=0, photometric=0, mixup=0)  # a view is the image itself


@pytest.fixture(scope="module")
def split() -> PreparedSplit:
    return drawn.make(6, SIZE, seed=0, split="train")  # 24 objects: two parts


@pytest.fixture
def model() -> NormMatch:
    torch.manual_seed(0)
    return NormMatch(replace(PRESETS["tiny"], image_size=SIZE, dim=16)).eval()


def test_a_view_is_what_the_network_sees(tmp_path: Path, split: PreparedSplit, model: NormMatch) -> None:
    views = make_views(model.backbone, split, STILL, 2, tmp_path, progress=False)
    table = KeypointTable(split)
    batch = TrainBatches(views.split, 8, seed=0)[0]
    seen = views.read(batch["index0"], batch["name_ids0"])
    for b, i in enumerate((batch["index0"] % len(split.objects)).tolist()):
        features = model.encode(torch.from_numpy(np.array(split.images[i])).permute(2, 0, 1)[None] / 255)
        count = int(batch["mask0"][b].sum())
        columns = table.columns[batch["name_ids0"][b, :count]]
        keypoints = torch.from_numpy(table.keypoints[i, columns])
        torch.testing.assert_close(batch["keypoints0"][b, :count], keypoints)
        expected = node_features(features.maps, keypoints[None], features.size)[0]
        torch.testing.assert_close(seen.features[b, :count], expected, atol=0.02, rtol=0)  # seen in bf16
        torch.testing.assert_close(seen.pooled[b], features.pooled[0], atol=0.05, rtol=0.05)
        assert (seen.features[b, count:] == 0).all()


def test_mirrored_views_have_mirrored_names(tmp_path: Path, split: PreparedSplit, model: NormMatch) -> None:
    views = make_views(model.backbone, split, replace(STILL, flip=0.5), 2, tmp_path, progress=False)
    n, mirrored = len(split.objects), 0
    assert len(views.split.objects) == 2 * n
    for i, view in enumerate(views.split.objects):
        original = split.objects[i % n]
        there = dict(zip(original.names, original.keypoints.tolist(), strict=True))
        seen = dict(zip(view.names, view.keypoints.tolist(), strict=True))
        if all(seen.get(name) == pytest.approx(there[name], abs=0.2) for name in there):
            continue
        mirrored += 1
        for name, (x, y) in there.items():
            swapped = name.replace("left", "RIGHT").replace("right", "left").replace("RIGHT", "right")
            assert seen[swapped] == pytest.approx([SIZE - x, y], abs=0.2)
    assert 0.25 * 2 * n < mirrored < 0.75 * 2 * n


def test_pairs_of_few_points_apart_change_nothing(tmp_path: Path, split: PreparedSplit, model: NormMatch) -> None:
    views = make_views(model.backbone, split, STILL, 1, tmp_path, progress=False)
    batch = TrainBatches(views.split, 12, seed=0, points=24)[0]
    counts = batch["mask0"].sum(1)
    assert (counts <= 8).any()
    assert (counts > 8).any()
    nodes = [views.read(batch[f"index{i}"], batch[f"name_ids{i}"]) for i in "01"]
    expected = model.head.describe(*nodes, batch)
    found = describe_by_size(model.head, *nodes, batch)
    torch.testing.assert_close(found["similarity"], expected["similarity"], atol=1e-5, rtol=0)
    for i in "01":
        mask = batch[f"mask{i}"].unsqueeze(2)
        torch.testing.assert_close(found[f"layers{i}"] * mask, expected[f"layers{i}"] * mask, atol=1e-5, rtol=0)


def test_views_are_kept_and_finished(
    tmp_path: Path, split: PreparedSplit, model: NormMatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_views(model.backbone, split, AugmentConfig(), 2, tmp_path, progress=False)
    parts = sorted(tmp_path.glob("views-*/part-*.safetensors"))
    assert len(parts) == 2
    parts[1].unlink()  # as if the run had been killed
    seen = []
    inner = frozen._view
    monkeypatch.setattr(frozen, "_view", lambda *a: seen.append(a[3][0]) or inner(*a))
    again = make_views(model.backbone, split, AugmentConfig(), 2, tmp_path, progress=False)
    assert seen == [frozen.PART] * 2
    assert torch.equal(first.nodes, again.nodes)
    make_views(model.backbone, split, AugmentConfig(rotation=5), 2, tmp_path, progress=False)
    with torch.no_grad():
        next(model.backbone.parameters()).add_(1)
    make_views(model.backbone, split, AugmentConfig(), 2, tmp_path, progress=False)
    assert len(list(tmp_path.glob("views-*"))) == 3  # other augmentation, other backbone: other views


def test_the_head_learns_and_the_backbone_does_not(tmp_path: Path, split: PreparedSplit) -> None:
    config = TrainConfig(
        out=tmp_path / "run", model=replace(PRESETS["tiny"], image_size=SIZE, dim=16),
        data=DataConfig(name="synthetic", root=tmp_path, workers=0), steps=3, batch_size=4, warmup=1, backbone_lr=0.0,
        views=2, compile=False, accelerator="cpu", validation_pairs=3, tensorboard=False,
    )  # fmt: skip
    torch.manual_seed(config.seed)
    before = NormMatch(config.model)
    after = train(config, {"train": split, "val": drawn.make(4, SIZE, seed=0, split="val")})
    for (name, x), y in zip(before.state_dict().items(), after.state_dict().values(), strict=True):
        if name.startswith("backbone."):
            assert torch.equal(x, y), name
    assert not torch.equal(before.head.spline.skip.weight, after.head.spline.skip.weight)
    with pytest.raises(ConfigError, match="frozen backbone"):
        replace(config, backbone_lr=1e-5)
