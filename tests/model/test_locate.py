"""The locating head: its promises, its decoding, and weights files with and without it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from normmatch import PRESETS, NormMatch
from normmatch.errors import ConfigError
from normmatch.model.locate import REACH, calibrated, cell_centers, decode

CONFIG = replace(PRESETS["tiny"], image_size=64, num_layers=1, dim=16, locate_dim=8)


@pytest.fixture(scope="module")
def model() -> NormMatch:
    torch.manual_seed(0)
    return NormMatch(CONFIG).eval()


@torch.no_grad()
def test_descriptors_are_unit_vectors_at_twice_the_finest_map_for_any_size(model: NormMatch) -> None:
    for height, width in ((64, 64), (96, 64), (64, 128)):
        features = model.encode(torch.rand(2, 3, height, width))
        dense = model.locate_maps(features)
        h, w = features.maps[0].shape[-2:]
        assert dense.shape == (2, 8, 2 * h, 2 * w)
        torch.testing.assert_close(dense.norm(dim=1), torch.ones(2, 2 * h, 2 * w))


@torch.no_grad()
def test_a_pair_alone_is_the_pair_in_a_batch_and_order_means_nothing(model: NormMatch) -> None:
    image0, image1, keypoints0 = torch.rand(3, 3, 64, 64), torch.rand(3, 3, 96, 64), 64 * torch.rand(3, 5, 2)
    together = model.locate({"image0": image0, "image1": image1, "keypoints0": keypoints0})
    order = torch.tensor([3, 1, 4, 0, 2])
    alone = model.locate({"image0": image0[1:2], "image1": image1[1:2], "keypoints0": keypoints0[1:2, order]})
    for one, many in zip(alone, together, strict=True):
        torch.testing.assert_close(one[0], many[1, order], atol=1e-4, rtol=1e-4)
    assert (together.points <= torch.tensor([64.0, 96.0])).all()
    assert ((together.scores + together.absent) <= 1 + 1e-5).all()


def test_an_answer_is_the_mean_of_the_cells_around_the_best_one() -> None:
    h, w = 6, 24  # cells of 1 / 24 in x: two on either side are within REACH
    centers = cell_centers(h, w, torch.device("cpu"))
    p = torch.full((1, 2, h * w + 1), 1e-9)
    row, column = 2, 10
    p[0, 0, row * w + column] = 0.5
    p[0, 0, row * w + column + 1] = 0.25
    p[0, 0, row * w + column + 12] = 0.15  # far away: not averaged
    p[0, 1, -1] = 0.9
    p[0, 1, 0] = 0.1
    found = decode(p.log(), (h, w), (60, 240))
    expected = (2 * centers[row * w + column] + centers[row * w + column + 1]) / 3 * torch.tensor([240.0, 60.0])
    torch.testing.assert_close(found.points[0, 0], expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(found.scores[0], torch.tensor([0.75, 0.1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.absent[0], torch.tensor([0.0, 0.9]), atol=1e-5, rtol=0)
    assert 12 / w > REACH


@torch.no_grad()
def test_weights_carry_the_head_and_files_without_it_load_as_before(model: NormMatch, tmp_path: Path) -> None:
    file = model.save_pretrained(tmp_path / "with")
    again = NormMatch.from_pretrained(file)
    image, keypoints = torch.rand(1, 3, 64, 64), torch.tensor([[[20.0, 30.0]]])
    data = {"image0": image, "image1": image.flip(3), "keypoints0": keypoints}
    for a, b in zip(model.locate(data), again.locate(data), strict=True):
        torch.testing.assert_close(a, b)
    without = NormMatch(replace(CONFIG, locate_dim=0))
    assert not any("locating" in key for key in without.state_dict())
    loaded = NormMatch.from_pretrained(without.save_pretrained(tmp_path / "without"))
    with pytest.raises(ConfigError, match="cannot locate"):
        loaded.locate(data)


def test_scores_of_places_are_interpolated_between_probabilities() -> None:
    scores = torch.tensor([[0.0, 0.25, 0.5, 0.75, 1.0]])
    torch.testing.assert_close(
        calibrated(scores, (0.0, 0.5, 1.0, 0.0, 0.6, 0.8)), torch.tensor([[0.0, 0.3, 0.6, 0.7, 0.8]])
    )
    assert calibrated(scores, ()) is scores
    with pytest.raises(ConfigError, match="expected rising scores, then their probabilities"):
        replace(CONFIG, locate_calibration=(0.0, 1.0, 0.6, 0.5))


def test_the_head_can_be_exported_for_any_size(model: NormMatch) -> None:
    assert model.locating is not None
    first, second = (torch.rand(2, channels, 4, 5) for channels in model.backbone.channels)
    rows, columns = torch.export.Dim("rows", min=2), torch.export.Dim("columns", min=2)
    shape = {0: torch.export.Dim("batch"), 2: rows, 3: columns}
    with torch.no_grad():
        program = torch.export.export(
            model.locating, ([first, second],), dynamic_shapes=([shape, shape],), strict=False
        )
        larger = [torch.rand(3, channels, 6, 9) for channels in model.backbone.channels]
        torch.testing.assert_close(program.module()(larger), model.locating(larger), atol=1e-5, rtol=1e-5)
