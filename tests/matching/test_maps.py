"""The maps of asked-for blocks, from the network to locating."""

import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from normmatch import PRESETS, NormMatch
from normmatch.errors import ConfigError, InputError
from normmatch.evaluation.config import EvalConfig
from normmatch.evaluation.located import score
from normmatch.evaluation.locating import open_data, predict
from normmatch.matching.backends.torch import TorchBackend


@pytest.fixture(scope="module")
def backend() -> TorchBackend:
    torch.manual_seed(0)
    config = replace(PRESETS["tiny"], backbone="test_vit", backbone_layers=(3, 5), image_size=64)
    return TorchBackend(NormMatch(config), "cpu", "float32", False)


def test_maps_of_any_blocks_at_any_multiple_of_the_patch(backend: TorchBackend) -> None:
    network = backend.eager
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 5 * network.patch, 7 * network.patch), dtype=np.uint8)
    blocks = [0, *network.layers]
    maps = backend.maps(images, blocks)
    assert maps.shape == (2, network.channels[0] * len(blocks), 5, 7)
    with torch.inference_mode():
        features = network(torch.from_numpy(images).float() / 255)
    np.testing.assert_allclose(maps[:, -network.channels[1] :], features.maps[1].numpy(), atol=1e-4)


@pytest.mark.parametrize("blocks", [[], [99], [-1]])
def test_blocks_that_there_are_not(backend: TorchBackend, blocks: list[int]) -> None:
    with pytest.raises(ConfigError, match="blocks to be read"):
        backend.maps(np.zeros((1, 3, 64, 64), np.uint8), blocks)


def test_a_network_that_is_no_vit() -> None:
    with pytest.raises(ConfigError, match="blocks of a ViT"):
        TorchBackend(NormMatch(PRESETS["tiny"]), "cpu", "float32", False).maps(np.zeros((1, 3, 96, 96), np.uint8), [0])


def test_a_size_that_is_no_multiple(backend: TorchBackend) -> None:
    with pytest.raises(InputError, match="multiples"):
        backend.maps(np.zeros((1, 3, 65, 64), np.uint8), [0])


def test_heads_of_trilobites(shared_datasets: Path, tmp_path: Path) -> None:
    """Real ones, which no training has shown: four found from four, in a look, better than by their mean shape."""
    with tarfile.open(shared_datasets / "TriloMorph.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    config = EvalConfig(task="locate", references=(4,), draws=1, queries=4, looks=1, boxes=True)
    split = open_data(str(tmp_path / "TriloMorph" / "landmarks.json"), config)
    (found,) = score(list(predict(split, TorchBackend("small", "cpu", "auto", False), config)))
    assert found["pck 0.1"] > 0.5
