"""The paper's presets train and evaluate from one end to the other, here with thin stand-ins for their SwinV2."""

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from normmatch.commands import main
from normmatch.commands.train import default_config
from normmatch.config import PRESETS
from normmatch.datasets import drawn
from normmatch.model.network import NormMatch

THIN = {"embed_dim": 8, "depths": (1, 1, 2, 1), "num_heads": (1, 1, 2, 2)}

OPTIONS = (
    "--model.image-size 96 --model.dim 24 --model.num-layers 2 --steps 2 --batch-size 2 --data.names synthetic "
    "--data.root data --data.workers 0 --validation-pairs 2 --no-compile --accelerator cpu --no-tensorboard"
)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A hub that has the files put into it, by repository; and SwinV2s as thin as that they take no time."""
    files: dict[str, Path] = {}
    monkeypatch.setattr("normmatch.export.files.export", lambda *_: {})  # it takes a while
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **options: create(name, **options, **THIN))
    monkeypatch.setattr(timm.models._hub, "hf_hub_download", lambda repo_id, filename, **_: str(files[repo_id]))
    return files


@pytest.mark.parametrize("preset", ["paper", "paper-large"])
def test_from_the_hub_to_a_table(
    preset: str, hub: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(3)
    backbone: Any = timm.create_model(PRESETS[preset].backbone, img_size=96)  # with its classifier
    hub[f"timm/{backbone.pretrained_cfg['architecture']}.{backbone.pretrained_cfg['tag']}"] = Path("swin.safetensors")
    save_file(backbone.state_dict(), "swin.safetensors")
    drawn.write(Path("data"), 4, 96, seed=0)
    main(["train", preset, "--out", "run", "--backbone-lr", "0", *OPTIONS.split()])
    model = NormMatch.from_pretrained("run")
    key = "layers.2.blocks.0.mlp.fc1.weight"
    assert torch.equal(model.backbone.net.state_dict()[key], backbone.state_dict()[key])  # what the hub has
    assert not model.config.shared_streams
    main(["eval", "run", "synthetic", "--root", "data", "--split", "val", "--pairs", "3", "--json", "table.json"])
    (result,) = json.loads(Path("table.json").read_text())["results"]
    assert set(result["classes"]) == set(drawn.LABELS)


def test_random_weights_ask_no_hub(hub: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawn.write(Path("data"), 4, 96, seed=0)
    main(["train", "paper", "--out", "run", "--model.backbone-weights", "random", *OPTIONS.split()])
    assert NormMatch.from_pretrained("run").config.backbone == PRESETS["paper"].backbone


def test_the_papers_recipe() -> None:
    config = default_config("paper-large")
    assert (config.steps, config.batch_size, config.lr, config.schedule) == (12_000, 8, 5e-4, "steps")
    assert config.backbone_lr == pytest.approx(0.03 * config.lr)
    assert (config.loss.names, config.loss.layer_match) == (0, 0)
    assert config.model == PRESETS["paper-large"]
    assert default_config("small").schedule == "cosine"
