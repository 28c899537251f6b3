"""Frozen features: they are what the network itself would see, are kept, and train the head."""

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
from normmatch.training.distributed import make_fabric
from normmatch.training.frozen import FrozenFeatures, describe_by_size, make_frozen_features
from normmatch.training.run import set_up, train

SIZE = 64
STILL = AugmentConfig(affine=0, photometric=0, mixup=0)  # a copy is the image itself


@pytest.fixture(scope="module")
def split() -> PreparedSplit:
    return drawn.make(12, SIZE, seed=0, split="train")  # 24 objects: two parts


@pytest.fixture
def model() -> NormMatch:
    torch.manual_seed(0)
    return NormMatch(replace(PRESETS["tiny"], image_size=SIZE, dim=16)).eval()


def config(root: Path, augment: AugmentConfig = STILL, copies: int = 2, **changes: object) -> TrainConfig:
    base = TrainConfig(
        out=root / "run", model=replace(PRESETS["tiny"], image_size=SIZE, dim=16), augment=augment,
        data=DataConfig(names=("synthetic",), root=root, workers=0), steps=3, batch_size=4, warmup=1, backbone_lr=0.0,
        frozen_copies=copies, compile=False, accelerator="cpu", validation_pairs=3, tensorboard=False,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def encode(model: NormMatch, split: PreparedSplit, settings: TrainConfig) -> FrozenFeatures:
    return make_frozen_features(model.backbone, split, settings, progress=False)


@pytest.mark.parametrize("precision", ["auto", "32-true"])
def test_a_copy_is_what_the_network_sees(
    precision: str, tmp_path: Path, split: PreparedSplit, model: NormMatch
) -> None:
    features = encode(model, split, config(tmp_path, precision=precision))
    table = KeypointTable(split)
    batch = TrainBatches(features.split, 8, seed=0, table=features.table)[0]
    seen = features.read(batch["index0"], batch["name_ids0"])
    worst = 0.0
    for b, i in enumerate((batch["index0"] % len(split.objects)).tolist()):
        maps = model.encode(torch.from_numpy(np.array(split.images[i])).permute(2, 0, 1)[None] / 255)
        count = int(batch["mask0"][b].sum())
        columns = table.columns[batch["name_ids0"][b, :count]]
        keypoints = torch.from_numpy(table.keypoints[i, columns])
        torch.testing.assert_close(batch["keypoints0"][b, :count], keypoints)
        expected = node_features(maps.maps, keypoints[None], maps.size)[0]
        torch.testing.assert_close(seen.features[b, :count], expected, atol=0.02, rtol=0)
        torch.testing.assert_close(seen.pooled[b], maps.pooled[0], atol=0.05, rtol=0.05)
        worst = max(worst, (seen.features[b, :count] - expected).abs().max().item())
        assert (seen.features[b, count:] == 0).all()
    assert (worst < 1e-4) == (precision == "32-true")  # or it was seen in bfloat16


def test_mirrored_copies_have_mirrored_names(tmp_path: Path, split: PreparedSplit, model: NormMatch) -> None:
    features = encode(model, split, config(tmp_path, replace(STILL, flip=0.5)))
    n, mirrored = len(split.objects), 0
    assert len(features.split.objects) == 2 * n
    for i, copy in enumerate(features.split.objects):
        original = split.objects[i % n]
        there = dict(zip(original.names, original.keypoints.tolist(), strict=True))
        seen = dict(zip(copy.names, copy.keypoints.tolist(), strict=True))
        if all(seen.get(name) == pytest.approx(there[name], abs=0.2) for name in there):
            continue
        mirrored += 1
        for name, (x, y) in there.items():
            swapped = name.replace("left", "RIGHT").replace("right", "left").replace("RIGHT", "right")
            assert seen[swapped] == pytest.approx([SIZE - x, y], abs=0.2)
    assert 0.25 * 2 * n < mirrored < 0.75 * 2 * n


def test_a_name_that_is_covered_in_every_copy_keeps_its_number(tmp_path: Path, split: PreparedSplit) -> None:
    """The name loss has a vector and a class for each name of the originals; the batches' numbers mean the same."""
    few = PreparedSplit(split.images[:6], split.objects[:6])
    settings = config(tmp_path, replace(STILL, erase=1.0, cover_area=(0.3, 0.5)), copies=1)
    state, data, _ = set_up(settings, make_fabric(settings), {"train": few, "val": split}, None)
    shown = {(item.label, name) for item in data.batches.split.objects for name in item.names}
    every = list(KeypointTable(few).numbers)
    assert set(every) > shown  # something is covered
    assert list(data.batches.table.numbers) == every
    assert len(state.module.loss.names.classes) == len(every)
    for number in range(5):
        batch = data.batches[number]
        for b, (i, ids) in enumerate(zip(batch["index0"].tolist(), batch["name_ids0"], strict=True)):
            item = data.batches.split.objects[i]
            there = dict(zip(item.names, item.keypoints.tolist(), strict=True))
            for point, number in zip(batch["keypoints0"][b], ids.tolist(), strict=True):
                assert number < 0 or there[every[number][1]] == point.tolist()


def test_noise_is_on_the_points_and_in_what_is_read(tmp_path: Path, split: PreparedSplit, model: NormMatch) -> None:
    exact, noisy = (encode(model, split, config(tmp_path, replace(STILL, noise=noise))) for noise in (0.0, 4.0))
    moved = torch.from_numpy(noisy.table.keypoints - exact.table.keypoints)[torch.from_numpy(exact.table.present)]
    assert moved.std().item() == pytest.approx(4 / 3**0.5, rel=0.3)  # deviations are uniform from 0 to 4
    i, name_ids = 3, torch.tensor([[exact.table.numbers[split.objects[3].label, split.objects[3].names[0]]]])
    image = torch.from_numpy(np.array(split.images[i])).permute(2, 0, 1)[None] / 255
    maps = model.encode(image)
    expected = node_features(maps.maps, torch.from_numpy(noisy.split.objects[i].keypoints[:1])[None], maps.size)
    found = noisy.read(torch.tensor([i]), name_ids).features
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)
    assert not torch.equal(found, exact.read(torch.tensor([i]), name_ids).features)


def test_a_splits_own_pairs_are_those_of_its_copies(tmp_path: Path, split: PreparedSplit, model: NormMatch) -> None:
    labels = [item.label for item in split.objects]
    a, b, c = (i for i, label in enumerate(labels) if label == labels[0] and i < 3)
    paired = replace(split, pairs=np.array([[a, b], [c, a]]))
    features = encode(model, paired, config(tmp_path))
    n = len(split.objects)
    expected = {(i + u, j + v) for i, j in ((a, b), (c, a)) for u in (0, n) for v in (0, n)}
    assert {tuple(pair) for pair in np.asarray(features.split.pairs).tolist()} == expected
    batch = TrainBatches(features.split, 64, seed=0, table=features.table)[0]
    drawn_pairs = zip(batch["index0"].tolist(), batch["index1"].tolist(), strict=True)
    assert {tuple(sorted(pair)) for pair in drawn_pairs} == {tuple(sorted(pair)) for pair in expected}


def test_pairs_of_few_points_apart_change_nothing(tmp_path: Path, split: PreparedSplit, model: NormMatch) -> None:
    features = encode(model, split, config(tmp_path, copies=1))
    batch = TrainBatches(features.split, 12, seed=0, points=24, table=features.table)[0]
    counts = batch["mask0"].sum(1)
    assert (counts <= 8).any()
    assert (counts > 8).any()
    nodes = [features.read(batch[f"index{i}"], batch[f"name_ids{i}"]) for i in "01"]
    expected = model.head.describe(*nodes, batch)
    found = describe_by_size(model.head, *nodes, batch)
    torch.testing.assert_close(found["similarity"], expected["similarity"], atol=1e-5, rtol=0)
    for i in "01":
        mask = batch[f"mask{i}"].unsqueeze(2)
        torch.testing.assert_close(found[f"layers{i}"] * mask, expected[f"layers{i}"] * mask, atol=1e-5, rtol=0)


def test_copies_are_kept_and_finished(
    tmp_path: Path, split: PreparedSplit, model: NormMatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = config(tmp_path, AugmentConfig())
    first = encode(model, split, usual)
    parts = sorted(tmp_path.glob("prepared/frozen-*/part-*.safetensors"))
    assert len(parts) == 2
    parts[1].unlink()  # as if the run had been killed
    seen = []
    inner = frozen._encode_copy
    monkeypatch.setattr(frozen, "_encode_copy", lambda *a: seen.append(a[3][0]) or inner(*a))
    again = encode(model, split, usual)
    assert seen == [frozen.PART] * 2
    assert torch.equal(first.nodes, again.nodes)
    encode(model, split, config(tmp_path, AugmentConfig(rotation=5)))
    encode(model, split, replace(usual, precision="32-true"))
    with torch.no_grad():
        next(model.backbone.parameters()).add_(1)
    encode(model, split, usual)
    # other augmentation, other precision, other backbone: other copies
    assert len(list(tmp_path.glob("prepared/frozen-*"))) == 4


def test_the_head_learns_and_the_backbone_does_not(tmp_path: Path, split: PreparedSplit) -> None:
    settings = config(tmp_path, AugmentConfig())
    torch.manual_seed(settings.seed)
    before = NormMatch(settings.model)
    after = train(settings, {"train": split, "val": drawn.make(4, SIZE, seed=0, split="val")})
    for (name, x), y in zip(before.state_dict().items(), after.state_dict().values(), strict=True):
        if name.startswith("backbone."):
            assert torch.equal(x, y), name
    assert not torch.equal(before.head.spline.skip.weight, after.head.spline.skip.weight)
    with pytest.raises(ConfigError, match="frozen backbone"):
        replace(settings, backbone_lr=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_frozen_features_on_a_gpu(tmp_path: Path, split: PreparedSplit) -> None:
    settings = config(tmp_path, AugmentConfig(), accelerator="auto")
    train(settings, {"train": split, "val": drawn.make(4, SIZE, seed=0, split="val")})
    assert (settings.out / "model.safetensors").is_file()
