"""The ablation table: each row changes one thing, none is trained twice, and the paper's drops stand beside ours."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from normmatch.commands import main
from normmatch.commands.ablate import RowName
from normmatch.config import PRESETS, AugmentConfig, DataConfig, TrainConfig
from normmatch.datasets import drawn
from normmatch.errors import ConfigError, InputError, WeightsError
from normmatch.experiments import ablations
from normmatch.experiments.ablations import ROWS, ablate, make_rows, make_table, row_config
from normmatch.training.checkpoint import as_json

BASE = TrainConfig(out=Path("runs"), augment=AugmentConfig(flip=0.5), layer_decay=0.8)


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    drawn.write(tmp_path / "data", 4, 64, seed=0)
    return TrainConfig(
        out=tmp_path / "ablation", model=replace(PRESETS["tiny"], image_size=64, dim=16),
        data=DataConfig(names=("synthetic",), root=tmp_path / "data", workers=0), steps=2, batch_size=2, warmup=0,
        precision="32-true", compile=False, accelerator="cpu", validation_pairs=2, tensorboard=False,
    )  # fmt: skip


def changed(name: str) -> set[str]:
    """The settings in which a row differs from the full one."""
    ours, full = (as_json(replace(c, out=Path())) for c in (row_config(BASE, name, "vgg.safetensors"), BASE))
    parts = ("model", "augment", "loss")
    flat = {f"{part}.{key}" for part in parts for key in full[part] if ours[part][key] != full[part][key]}
    return flat | {key for key in full if key not in parts and ours[key] != full[key]}


def test_every_row_changes_what_it_says() -> None:
    assert get_args(RowName) == tuple(ROWS)
    assert changed("full") == set()
    assert changed("augmentation") == {"augment.affine", "augment.photometric", "augment.flip", "augment.mixup"}
    assert changed("layer-loss") == {"loss.layer_loss"}
    assert changed("vanilla") == {"model.transformer"}
    assert changed("cross-entropy") == {"loss.contrastive"}
    backbone = {f"model.{key}" for key in ("backbone", "backbone_layers", "backbone_weights", "image_size")}
    assert changed("vgg16") == {*backbone, "layer_decay"}
    assert changed("name-loss") == {"loss.names"}
    assert changed("layer-match") == {"loss.layer_match"}
    assert changed("paper-losses") == {"loss.names", "loss.layer_match"}
    mixed = replace(
        BASE, model=replace(BASE.model, locate_dim=8), augment=replace(BASE.augment, self_pairs=0.2),
        data=DataConfig(names=("pascal-voc", "spair-71k"), shares=(1.0, 2.0)),
    )  # fmt: skip
    locating = row_config(mixed, "locating", "vgg.safetensors")
    assert (locating.model.locate_dim, locating.augment.self_pairs) == (0, 0)
    alone = row_config(mixed, "spair-71k", "vgg.safetensors").data
    assert alone == DataConfig(names=("pascal-voc",), shares=(1.0,), exclude=("spair-71k",))
    with pytest.raises(ConfigError, match="'locating' would be the full one again"):
        ablations.check(BASE, ["full", "locating"], "random")


def test_the_papers_drops() -> None:
    drops = [row.paper for row in ROWS.values()]
    assert drops == [0.0, 1.2, 0.8, 2.6, 15.1, 4.9, *[None] * 6]
    about = {"dataset": "pascal-voc", "split": "test", "protocol": "nmt", "pairs": 20_000, "train": as_json(BASE)}
    done = {name: {"mean": mean, **about} for name, mean in (("full", 0.9), ("vanilla", 0.88), ("name-loss", 0.905))}
    assert make_table(done).rows == [
        ("full", "90.00", "", "(88.7)"),
        ("vanilla transformer", "88.00", "2.00", "2.6"),
        ("without name loss (ours)", "90.50", "-0.50", ""),
    ]
    assert [row["drop"] for row in make_rows({"vanilla": done["vanilla"]})] == [None]  # of what?


def test_rows_go_on_where_they_were(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ("full", "vanilla", "cross-entropy")
    trained: list[tuple[str, bool]] = []
    inner = ablations.train
    monkeypatch.setattr(ablations, "train", lambda c, s: trained.append((c.out.name, c.resume)) or inner(c, s))
    assert ablate(replace(config, minutes=1e-9), rows, "random", "val", 3) == []  # stopped after a step of the first
    done = ablate(config, rows, "random", "val", 3)
    assert trained == [("full", False), ("full", True), ("vanilla", False), ("cross-entropy", False)]
    assert [row["row"] for row in done] == list(rows)
    assert done[1]["drop"] == pytest.approx(done[0]["accuracy"] - done[1]["accuracy"])
    assert ablate(config, rows, "random", "val", 3) == done
    assert len(trained) == 4
    report = json.loads((config.out / "ablation.json").read_text())
    assert report["rows"] == done
    assert set(report["results"]["full"]["classes"]) == set(drawn.LABELS)
    table = (config.out / "ablation.md").read_text()
    assert "| vanilla transformer |" in table
    assert "paper's drop" not in table  # which is PascalVOC's
    assert len(ablate(config, rows, "random", "val", 4)) == 3  # other pairs
    assert len(trained) == 4
    assert [row["row"] for row in ablate(config, ("vanilla",), "random", "val", 5)] == ["vanilla"]  # other pairs
    with pytest.raises(ConfigError, match=r"full was started with lr 0\.0007, not 0\.1"):
        ablate(replace(config, lr=0.1), rows, "random", "val", 3)


def test_nothing_held_out(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[tuple[str, ...]] = []
    inner = ablations.load_training

    def noted(data: DataConfig, size: int, also: tuple[str, ...] = ()) -> object:
        needed.append((*data.needed_splits, *also))
        return inner(data, size, also)

    monkeypatch.setattr(ablations, "load_training", noted)
    ablate(replace(config, data=replace(config.data, validation_split=False)), ["full"], "random", "train", 3)
    assert set(needed) == {("train", "train"), ("train",)}


def test_what_cannot_be_is_found_at_once(
    config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="no row 'nonsense'"):
        ablate(config, ["nonsense"], "random", "val", 3)
    with pytest.raises(ConfigError, match="on one device"):
        ablate(replace(config, devices=2), ["full"], "random", "val", 3)
    with pytest.raises(ConfigError, match="leave out --init"):
        ablate(replace(config, init="small"), ["full"], "random", "val", 3)
    with pytest.raises(WeightsError, match="no.safetensors does not exist"):
        ablate(config, ["full", "vgg16"], "no.safetensors", "val", 3)
    with pytest.raises(SystemExit):
        main(["ablate", "--out", str(config.out), "--data.root", str(tmp_path / "nothing"), "--rows", "full"])
    assert capsys.readouterr().err.count("\n") == 1
    assert not config.out.exists()


def test_a_report_of_the_user_is_left_alone(config: TrainConfig) -> None:
    config.out.mkdir()
    (config.out / "ablation.json").write_text("mine")
    with pytest.raises(InputError, match="was not written by NormMatch"):
        ablate(config, ("full",), "random", "val", 2)
    assert (config.out / "ablation.json").read_text() == "mine"
