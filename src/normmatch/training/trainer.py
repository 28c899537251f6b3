"""Training: setup, then one visible loop of steps, validations and checkpoints.

Everything random is a function of (seed, step): the batch is (see `TrainBatches`), and the generators are seeded anew
at every step. So a run that is stopped and resumed ends with the same weights as one that never stopped.
"""

import copy
import json
import math
import os
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from normmatch.config import LossConfig, TrainConfig
from normmatch.data.batches import ImageBank, KeypointTable, TrainBatches, batch_images
from normmatch.data.pair_lists import sample_pair_list
from normmatch.data.pairs import PreparedSplit
from normmatch.data.protocols import get_protocol
from normmatch.errors import ConfigError, DataError
from normmatch.evaluation.bank import FeatureBank
from normmatch.evaluation.predict import predict
from normmatch.io import whole_file
from normmatch.losses import MatchingLoss
from normmatch.metrics import mean_accuracy
from normmatch.model.backbone import Features, TimmBackbone
from normmatch.model.matcher import NormMatch
from normmatch.training import checkpoint
from normmatch.training.frozen import describe_by_size, make_views

CONFIG, LOG = "config.json", "log.jsonl"  # in the folder of a run
VALIDATION_SEED = 1000  # pairs of the validation list, the same for every run
MAY_CHANGE = {  # between a run and its resumption; anything else would end with other weights
    "out", "resume", "minutes", "keep", "save_every", "validate_every", "validation_pairs", "compile", "accelerator",
    "data.root", "data.workers",
}  # fmt: skip


class TrainStep(nn.Module):
    """A batch in, losses and accuracy out: the part that is compiled and distributed."""

    def __init__(self, model: NormMatch, loss: LossConfig, classes: Tensor | None = None) -> None:
        super().__init__()
        self.model = model
        self.loss = MatchingLoss(loss, classes, model.config.dim)

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        points = {key: value for key, value in batch.items() if not key.startswith(("image", "features"))}
        if "features0" in batch:  # a frozen backbone has seen the images before
            return self.judge(describe_by_size(self.model.head, batch["features0"], batch["features1"], points), points)
        return self.losses(*self.model.encode_pair(batch["image0"], batch["image1"]), points)

    def losses(self, features0: Features, features1: Features, points: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.judge(self.model.head.describe(features0, features1, points), points)

    def judge(self, output: dict[str, Tensor], points: dict[str, Tensor]) -> dict[str, Tensor]:
        losses = self.loss(output, points)
        with torch.no_grad():  # by plain arg-max: Sinkhorn is for evaluation
            similarity = output["similarity"].masked_fill(~points["mask1"].unsqueeze(1), -2.0)
            known = points["matches0"] >= 0
            right = known & (similarity.argmax(2) == points["matches0"])
            accuracy = right.sum() / known.sum().clamp_min(1)
        return {**losses, "accuracy": accuracy}

    def compile(self) -> None:  # type: ignore[override]
        """Compile the head with the losses as one graph, and a ViT's blocks as one that all of them share."""
        self.losses = torch.compile(self.losses, dynamic=False)  # type: ignore[method-assign]
        backbone = self.model.backbone
        for part in backbone.net.blocks if _is_vit(backbone) else [backbone]:
            part.compile(dynamic=False)


def _is_vit(backbone: nn.Module) -> bool:
    return isinstance(backbone, TimmBackbone) and backbone.patch > 1


class Trainer:
    """The state of a run: network, average, optimiser, position."""

    def __init__(self, config: TrainConfig, splits: dict[str, PreparedSplit]) -> None:
        self.config, self.splits = config, splits
        self.fabric = make_fabric(config)
        torch.manual_seed(config.seed)
        torch.set_float32_matmul_precision("high")
        self.batches = splits["train"]  # what batches are drawn from
        classes = torch.from_numpy(KeypointTable(splits["train"]).classes)
        module = TrainStep(NormMatch(config.model), config.loss, classes)
        self.optimizer = make_optimizer(module, config, fused=self.fabric.device.type == "cuda")
        self.head_parameters = [p for p in module.model.head.parameters() if p.requires_grad]
        self.model = module.model
        if config.compile:
            module.compile()
        self.module, self.optimizer = self.fabric.setup(module, self.optimizer)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(config.average))
        self.step = 0
        self.seconds = 0.0  # of training, over all resumptions
        most = max(len(item.names) for item in splits["train"].objects)
        self.points = -(-most // 8) * 8  # one shape for all batches, so that nothing is compiled twice
        self.bank = None if config.views else make_bank(splits["train"], self.fabric.device)
        self.views = None
        if config.views:
            folder = config.data.root / "prepared"
            self.views = make_views(self.model.backbone.eval(), splits["train"], config.augment, config.views, folder)
            self.batches = self.views.split
        self.fewest = get_protocol(config.data.protocol).fewest_shared
        self.validation = sample_pair_list(
            splits["val"], config.data.name, config.validation_pairs, VALIDATION_SEED, self.fewest, strict=False
        )
        self.validation_bank: FeatureBank | None = None  # what a frozen backbone sees of the validation images

    def fit(self) -> None:
        """Train up to the last step, or until the time is up."""
        config, started, before = self.config, time.monotonic(), self.seconds
        loader = self._loader()
        with _progress() as progress:
            bar = progress.add_task("training", total=config.steps, completed=self.step, note="")
            for batch in loader:
                logs = self._train_step(batch)
                self.step += 1
                self.seconds = before + time.monotonic() - started
                if self.step % 20 == 0 or self.step == config.steps:
                    note = self._log(logs)
                    progress.update(bar, completed=self.step, note=note)
                last = self.step == config.steps
                late = bool(config.minutes) and time.monotonic() - started > 60 * config.minutes
                if self.step % config.validate_every == 0 or last:
                    progress.console.print(self._validate())
                if self.step % config.save_every == 0 or last or late:
                    self.save()
                if late:
                    progress.console.print(f"time is up at step {self.step}; --resume continues")
                    break

    def _loader(self) -> DataLoader:
        batches = TrainBatches(
            self.batches,
            self.config.batch_size,
            self.config.seed,
            self.config.data.sampling,
            None if self.views else self.config.augment,
            min_shared=self.fewest,
            with_images=self.bank is None and self.views is None,
            points=self.points,
        )
        for reason, count in batches.skipped.items():
            warnings.warn(f"{reason} ({count:,} times)", stacklevel=2)
        workers = min(self.config.data.workers, os.cpu_count() or 1)
        return DataLoader(
            batches,
            batch_size=None,
            sampler=range(self.step, self.config.steps),
            num_workers=workers,
            pin_memory=self.fabric.device.type == "cuda",
            prefetch_factor=8 if workers else None,
        )

    def _train_step(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        torch.manual_seed(self.config.seed * 1_000_003 + self.step)
        self.module.train()
        if not self.config.backbone_lr:
            self.model.backbone.eval()  # a frozen batch norm keeps its statistics too
        batch = {key: value.to(self.fabric.device, non_blocking=True) for key, value in batch.items()}
        inputs = self._inputs(batch)
        kept = {k: v for k, v in batch.items() if not k.startswith(("plan_", "index", "image"))}
        factor = schedule(self.step, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        logs = self.module({**kept, **inputs})
        self.fabric.backward(logs["loss"])
        if self.config.clip:
            logs["gradient"] = nn.utils.clip_grad_norm_(self.head_parameters, self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.model.normalize_weights()
        self.average.update_parameters(self.model)
        return {key: value.detach() for key, value in logs.items()}

    def _inputs(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        """What the network sees of both images: their pixels, or what a frozen backbone saw in them."""
        if self.views:
            return {f"features{i}": self.views.read(batch[f"index{i}"], batch[f"names{i}"]) for i in "01"}
        image0, image1 = batch_images(batch, self.bank)
        return {"image0": image0, "image1": image1}

    def averaged(self) -> NormMatch:
        """A copy of the averaged network, its matrices back on the sphere; the running average stays as it is."""
        model = copy.deepcopy(cast(NormMatch, self.average.module))
        model.normalize_weights()
        return model.eval()

    def _log(self, logs: dict[str, Tensor]) -> str:
        """Write a line to the log, and say it in short. Reading the numbers waits for the device: not every step."""
        values = {key: float(value) for key, value in logs.items()}
        if not math.isfinite(values["loss"]):
            raise ConfigError(f"the loss is {values['loss']} at step {self.step}; try a smaller lr")
        rate = self.step * self.config.batch_size / self.seconds
        self._write({"step": self.step, "seconds": self.seconds, "pairs_per_second": rate, **values})
        return f"loss {values['loss']:.3f}  accuracy {100 * values['accuracy']:.1f}  {rate:.0f} pairs/s"

    def _validate(self) -> str:
        model, split, sampling = self.averaged(), self.splits["val"], self.config.data.sampling
        bank = self.validation_bank or FeatureBank(model, [(split, self.validation.pairs)], progress=False)
        if not self.config.backbone_lr:  # it will see the same next time
            self.validation_bank = bank
        by_class = predict(model, split, self.validation, sampling=sampling, progress=False, bank=bank).accuracy()
        mean = mean_accuracy(by_class)
        self._write({"step": self.step, "seconds": self.seconds, "val_accuracy": mean, "val_by_class": by_class})
        return f"step {self.step}: validation accuracy {100 * mean:.2f}"

    def _write(self, line: dict[str, Any]) -> None:
        with (self.config.out / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def save(self) -> None:
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "config": json.loads(to_json(self.config)),
            "module": self.module.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        checkpoint.save(self.config.out / f"step-{self.step:07d}.safetensors", state, self.config.keep)

    def restore(self, path: Path) -> None:
        state = checkpoint.load(path)
        saved, ours = (_flat(config) for config in (state["config"], json.loads(to_json(self.config))))
        for key in sorted(ours.keys() - MAY_CHANGE):
            if saved.get(key) != ours[key]:
                was = f"{key} {saved.get(key)}, not {ours[key]}"
                raise ConfigError(f"the run in {path.parent} was started with {was}; resume it as it was")
        self.step, self.seconds = state["step"], state["seconds"]
        self.module.load_state_dict(state["module"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])


def make_fabric(config: TrainConfig) -> Fabric:
    """The device and the arithmetic, by Lightning Fabric."""
    if config.accelerator == "cuda" and not torch.cuda.is_available():
        raise ConfigError("accelerator is cuda, but there is no such device here; expected auto or cpu")
    if config.accelerator == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("accelerator is mps, but there is no such device here; expected auto or cpu")
    cuda = torch.cuda.is_available() and config.accelerator in ("auto", "cuda")
    precision = ("bf16-mixed" if cuda else "32-true") if config.precision == "auto" else config.precision
    fabric = Fabric(accelerator=config.accelerator, devices=1, precision=precision)
    fabric.launch()
    return fabric


def make_bank(split: PreparedSplit, device: torch.device) -> ImageBank | None:
    """All training crops in a GPU's memory, where they take at most half of what is free; else batches carry them."""
    if device.type != "cuda" or math.prod(split.images.shape) > torch.cuda.mem_get_info(device)[0] / 2:
        return None
    return ImageBank(split.images, device)


def make_optimizer(module: TrainStep, config: TrainConfig, fused: bool) -> torch.optim.Optimizer:
    """AdamW with a rate for the backbone and one for the rest; each group knows its peak rate."""
    module.model.backbone.requires_grad_(config.backbone_lr > 0)
    backbone = list(module.model.backbone.parameters())
    rest = [*module.model.head.parameters(), *module.loss.parameters()]
    groups = [
        (rest, config.lr, 0.0),
        ([p for p in backbone if p.ndim > 1], config.backbone_lr, config.weight_decay),
        ([p for p in backbone if p.ndim <= 1], config.backbone_lr, 0.0),
    ]
    trained = [([p for p in params if p.requires_grad], peak, decay) for params, peak, decay in groups]
    return torch.optim.AdamW(
        [{"params": params, "peak": peak, "weight_decay": decay} for params, peak, decay in trained if params],
        lr=config.lr,
        betas=config.betas,
        fused=fused,
    )


def schedule(step: int, config: TrainConfig) -> float:
    """The share of the peak rate at a step: a linear rise, then half a cosine down to zero."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.5 * (1 + math.cos(math.pi * done))


def to_json(config: TrainConfig) -> str:
    return json.dumps(asdict(config), default=str, indent=2)


def train(config: TrainConfig, splits: dict[str, PreparedSplit]) -> NormMatch:
    """Train on splits["train"], validate on splits["val"], leave everything in `config.out`; returns the average."""
    try:
        return _train(config, splits)
    except OSError as error:
        raise DataError(f"the run in {config.out} cannot be written or read: {error.strerror or error}") from error


def _train(config: TrainConfig, splits: dict[str, PreparedSplit]) -> NormMatch:
    last = checkpoint.latest(config.out)
    if last and not config.resume:
        raise ConfigError(f"{config.out} holds another run; give --resume to continue it, or another --out")
    if config.resume and not last:
        raise ConfigError(f"{config.out} holds no checkpoint to resume from; start it without --resume")
    if not last and config.out.is_dir() and {path.name for path in config.out.iterdir()} - {CONFIG, LOG}:
        raise ConfigError(f"{config.out} holds something else; expected a new or empty folder for a run")
    config.out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(config, splits)
    if last:
        trainer.restore(last)
    else:
        (config.out / LOG).unlink(missing_ok=True)  # of a run that ended before its first checkpoint
        with whole_file(config.out / CONFIG) as file:
            file.write_text(to_json(config), encoding="utf-8")
    trainer.fit()
    model = trainer.averaged()
    if trainer.step == config.steps:
        model.save_pretrained(config.out)
    return model


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their names on the command line, such as model.dim."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
