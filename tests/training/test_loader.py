"""Shares of a batch add up to it, blended images included; a vanished dataset is one sentence."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from normmatch.config import AugmentConfig, DataConfig, LossConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.datasets.image_file import ImageFile
from normmatch.datasets.types import PreparedSplit
from normmatch.errors import DataError
from normmatch.training.batches import TrainBatches, batch_images
from normmatch.training.loader import Shares, make_loader, prefetch, take_share
from normmatch.training.losses import MatchingLoss
from normmatch.training.run import one_sentence

SIZE = 32
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def split() -> PreparedSplit:
    return drawn.make(4, SIZE, seed=0, split="train")


@pytest.fixture(scope="module")
def batches(split: PreparedSplit) -> TrainBatches:
    augment = AugmentConfig(flip=0.5, mixup=0.5, cutmix=0.5, erase=0.5)
    return TrainBatches(split, 5, seed=0, sampling="all", augment=augment, points=24)


def test_shares_show_what_the_whole_batch_shows(batches: TrainBatches, split: PreparedSplit) -> None:
    whole = Shares(batches, 0, 1, split)[3]
    expected = batch_images(whole)
    for side in (0, 1):
        parts = []
        for rank in range(3):
            share = Shares(batches, rank, 3, split)[3]
            parts.append(batch_images(share)[side][: len(share["mask0"])])
        assert [len(part) for part in parts] == [2, 2, 1]
        torch.testing.assert_close(torch.cat(parts), expected[side])
    for key in ("keypoints0", "mask1", "adjacency0", "gt_matches0", "name_ids1"):
        shares = [take_share(batches[3], rank, 3)[key] for rank in range(3)]
        assert torch.equal(torch.cat(shares), whole[key])


@pytest.mark.parametrize("contrastive", [True, False])
def test_the_mean_of_the_shares_losses_is_the_batchs(batches: TrainBatches, contrastive: bool) -> None:
    torch.manual_seed(0)
    batch = batches[0]
    classes = torch.from_numpy(batches.table.classes)
    loss = MatchingLoss(LossConfig(contrastive=contrastive), classes, dim=8)
    layers = [torch.nn.functional.normalize(torch.randn(2, 5, 24, 8), dim=-1) for _ in range(2)]  # (L, B, N, D)

    def losses(rows: torch.Tensor, points: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        layers0, layers1 = layers[0][:, rows], layers[1][:, rows]
        return loss({"layers0": layers0, "layers1": layers1, "similarity": layers0[-1] @ layers1[-1].mT}, points)

    whole = losses(torch.arange(5), batch)
    rows = torch.arange(5).tensor_split(3)
    parts = [losses(rows[rank], take_share(batch, rank, 3)) for rank in range(3)]
    for key, value in whole.items():
        torch.testing.assert_close(torch.stack([part[key] for part in parts]).mean(), value)


def test_batches_come_in_order_and_once(batches: TrainBatches) -> None:
    config = TrainConfig(out=Path(), steps=6, data=DataConfig(workers=0))
    loader = make_loader(Shares(batches, 0, 1, None), config, start=2, device=CPU)
    seen = list(prefetch(loader, CPU))
    assert len(seen) == 4
    for step, batch in enumerate(seen, start=2):
        assert torch.equal(batch["keypoints0"], batches[step]["keypoints0"])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_that_vanishes(workers: int, tmp_path: Path, split: PreparedSplit, batches: TrainBatches) -> None:
    file = tmp_path / "images.npy"
    np.save(file, np.asarray(split.images))
    there = replace(split, images=ImageFile(file, np.arange(len(split.objects))))
    file.unlink()
    config = TrainConfig(out=Path(), steps=2, data=DataConfig(workers=workers))
    loader = make_loader(Shares(batches, 0, 1, there), config, start=0, device=CPU)
    message = r"cannot be read or written: .*No such file or directory.*images\.npy"
    with pytest.raises(DataError, match=message) as found, one_sentence(config):
        list(prefetch(loader, CPU))
    assert "\n" not in str(found.value)
