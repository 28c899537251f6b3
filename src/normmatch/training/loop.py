"""Training: setup, then one visible loop of steps, checkpoints and validations.

Everything random is a function of (seed, step): the batch is (see `TrainBatches`), and the generators are seeded anew
at every step. So a run that is stopped, even killed, and resumed ends with the same weights as one that never stopped.
"""

import math
import time
from contextlib import closing
from typing import Any, cast

import torch
from rich.console import Console
from rich.progress import Progress
from timm.layers import convert_sync_batchnorm
from torch import Tensor

from normmatch.config import TrainConfig
from normmatch.datasets.pairs import sample_pair_list
from normmatch.datasets.protocols import get_protocol
from normmatch.datasets.types import PreparedSplit, join
from normmatch.errors import ConfigError, DataError, DeviceError, first_line
from normmatch.evaluation.features import FeatureCache
from normmatch.evaluation.metrics import mean_accuracy
from normmatch.evaluation.predict import predict
from normmatch.model.network import NormMatch
from normmatch.training import checkpoint
from normmatch.training.batches import KeypointTable, TrainBatches, batch_images
from normmatch.training.distributed import Processes, make_fabric, without_compiler
from normmatch.training.frozen import Views, make_views
from normmatch.training.loader import Shares, keep_batch, make_bank, make_loader, prefetch, vanished
from normmatch.training.log import Journal
from normmatch.training.optimizer import rate
from normmatch.training.run import as_json, begin, claimed, find_start, make_model, warn_about, warn_about_validation
from normmatch.training.step import TrainStep
from normmatch.training.stop import LATE, REASONS, Stop
from normmatch.training.update import Update

VALIDATION_SEED = 1000  # pairs of the validation list, the same for every run


class Trainer:
    """A run: network, average, optimiser, data, position. `state` is what a checkpoint holds."""

    def __init__(self, config: TrainConfig, splits: dict[str, PreparedSplit], state: dict[str, Any] | None = None):
        self.config, self.splits = config, splits
        self.fabric = make_fabric(config)
        self.processes, self.device = Processes(self.fabric), self.fabric.device
        self.step, self.seconds = 0, 0.0  # seconds of training, over all resumptions
        self.lap, self.lap_step = time.monotonic(), 0
        self._setup_network(state)
        self._setup_data()
        self.recent: list[Tensor] = []  # losses since the last line of the log, on the device

    def _setup_network(self, state: dict[str, Any] | None) -> None:
        config = self.config
        torch.manual_seed(config.seed)
        classes = torch.from_numpy(KeypointTable(self.splits["train"]).classes)
        step = TrainStep(make_model(config, state), config.loss, classes)
        if self.processes.several and self.device.type == "cuda":
            step = cast(TrainStep, convert_sync_batchnorm(step))  # statistics of the whole batch
        self.model = step.model
        self.update = Update(self.fabric, step, config, self._inputs)
        if state:
            self.step, self.seconds = state["step"], state["seconds"]
            self.update.load_state(state)

    def _setup_data(self) -> None:
        config, train = self.config, self.splits["train"]
        fewest = get_protocol(config.data.protocol).fewest_shared
        if config.data.hold_out:
            self.validation = sample_pair_list(
                self.splits["val"], config.data.name, config.validation_pairs, VALIDATION_SEED, fewest, strict=False
            )
        self.validation_bank: FeatureCache | None = None  # what a frozen backbone sees of the validation images
        self.views = self._see_views() if config.views else None
        self.bank = None if self.views else make_bank(train, self.device)
        most = max(len(item.names) for item in train.objects)
        self.batches = TrainBatches(
            self.views.split if self.views else train,
            config.batch_size,
            config.seed,
            config.data.sampling,
            None if self.views else config.augment,
            min_shared=fewest,
            points=-(-most // 8) * 8,  # one shape for all batches, so that nothing is compiled twice
        )

    def _see_views(self) -> Views:
        """What the frozen backbone sees; the first process looks, the others read what it has kept."""
        arguments = (self.model.backbone.eval(), self.splits["train"], self.config.augment, self.config.views)
        folder = self.config.data.root / "prepared"
        if self.processes.several:
            self.processes.first(lambda: make_views(*arguments, folder))
        return make_views(*arguments, folder, progress=self.fabric.is_global_zero)

    def fit(self) -> int:
        """Train up to the last step, or until there is a reason to stop; returns that reason, or 0 at the end."""
        config, reason = self.config, 0
        pixels = self.splits["train"] if self.bank is None and self.views is None else None
        shares = Shares(self.batches, self.fabric.global_rank, self.fabric.world_size, pixels)
        loader = make_loader(shares, config, self.step, pinned=self.device.type == "cuda")
        self.journal = Journal(config.out, self.step, self.fabric.is_global_zero, config.tensorboard)
        with closing(self.journal), Stop(config.minutes) as stop, self.journal.bar(config.steps, self.step) as bar:
            self._validate_when_due(bar)  # if it was killed in the validation
            self.lap, self.lap_step = time.monotonic(), self.step
            with closing(prefetch(loader, self.device)) as batches:
                for batch in batches:
                    logs = self._train_step(batch)
                    self.step += 1
                    last = self.step == config.steps
                    bar.update(bar.task_ids[0], completed=self.step)
                    if self.step % config.log_every == 0 or last:
                        bar.update(bar.task_ids[0], note=self._log(logs))
                    reason = self._reason(stop)
                    if self.step % config.save_every == 0 or last or reason:
                        self.save()
                    if reason:
                        bar.console.print(f"{REASONS[reason]} at step {self.step}; --resume continues")
                        break
                    self._validate_when_due(bar)
        return reason

    def _reason(self, stop: Stop) -> int:
        """Why to stop now. Processes agree about it, for which they wait for their GPUs: not every step."""
        if self.processes.several and self.device.type == "cuda" and self.step % self.config.log_every:
            return 0
        return self.processes.largest(stop.reason())

    def _train_step(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        torch.manual_seed(self.config.seed * 1_000_003 + self.step + 7_919 * self.fabric.global_rank)
        logs = self.update(batch, rate(self.step, self.config))
        self.recent.append(logs["loss"].clone())
        return logs

    def _inputs(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        """What the network sees of a batch: of its images the pixels, or what a frozen backbone saw in them."""
        kept = {key: value for key, value in batch.items() if not key.startswith(("plan_", "index", "image"))}
        if self.views:
            return kept | {f"features{i}": self.views.read(batch[f"index{i}"], batch[f"names{i}"]) for i in "01"}
        pairs = len(batch["mask0"])  # behind them may be images that only lend pixels
        image0, image1 = batch_images(batch, self.bank)
        return kept | {"image0": image0[:pairs], "image1": image1[:pairs]}

    def _log(self, logs: dict[str, Tensor]) -> str:
        """Write a line to the log, and say it in short. Reading the numbers waits for the device: not every step."""
        self._check_finite()
        values = dict(zip(logs, self.processes.mean(torch.stack(list(logs.values()))).tolist(), strict=True))
        now = time.monotonic()
        seconds, steps = now - self.lap, self.step - self.lap_step
        self.seconds, self.lap, self.lap_step = self.seconds + seconds, now, self.step
        speed = steps * self.config.batch_size / seconds
        self.journal.write({"step": self.step, "seconds": self.seconds, "pairs_per_second": speed, **values})
        return f"loss {values['loss']:.3f}  accuracy {100 * values['accuracy']:.1f}  {speed:.0f} pairs/s"

    def _check_finite(self) -> None:
        """Stop at a loss that is not finite, before a checkpoint has it, and keep its batch to look at."""
        losses = self.processes.mean(torch.stack(self.recent)).tolist() if self.recent else []
        first = self.step - len(losses)
        self.recent = []
        bad = [(first + i, loss) for i, loss in enumerate(losses) if not math.isfinite(loss)]
        if bad:
            step, loss = bad[0]
            file = self.config.out / f"bad-batch-{step:07d}.safetensors"
            pixels = None if self.views else self.splits["train"]
            self.processes.first(lambda: keep_batch(Shares(self.batches, 0, 1, pixels)[step], file))
            raise ConfigError(f"the loss is {loss} at step {step}; its batch is in {file}; try a smaller lr")

    def _validate_when_due(self, bar: Progress) -> None:
        due = self.step == self.config.steps or self.step % self.config.validate_every == 0
        if self.config.data.hold_out and self.step and due:
            self.processes.first(lambda: None if self.journal.validated(self.step) else self._validate(bar.console))
            self.lap = time.monotonic()

    def _validate(self, console: Console) -> None:
        model, split, sampling = self.update.averaged(), self.splits["val"], self.config.data.sampling
        try:
            bank = self.validation_bank or FeatureCache(model, [(split, self.validation.pairs)], progress=False)
        except OSError as error:
            raise DataError(vanished(error)) from error
        if not self.config.backbone_lr:  # it will see the same next time
            self.validation_bank = bank
        said = predict(model, split, self.validation, sampling=sampling, progress=False, cache=bank)
        by_class = said.accuracy()
        mean = mean_accuracy(by_class)
        line = {"step": self.step, "seconds": self.seconds, "val_accuracy": mean, "val_by_class": by_class}
        self.journal.write(line)
        self.journal.show_pairs(split, said, self.step)
        console.print(f"step {self.step}: validation accuracy {100 * mean:.2f}")

    def save(self) -> None:
        """Write a checkpoint: all that the rest of the run depends on."""
        self._check_finite()
        state = {
            "step": self.step,
            "seconds": self.seconds + time.monotonic() - self.lap,
            "min_score": self.model.config.min_score,
            "config": as_json(self.config),
            **self.update.state(),
        }
        path = self.config.out / f"step-{self.step:07d}.safetensors"
        self.processes.first(lambda: checkpoint.save(path, state, self.config.keep))


def train(config: TrainConfig, splits: dict[str, PreparedSplit]) -> NormMatch:
    """Train on splits["train"], validate on splits["val"], leave everything in `config.out`; returns the average.

    Where nothing is held out, both are trained on. SIGTERM or Ctrl-C saves a checkpoint and exits with 143 or 130.
    """
    config = without_compiler(config)
    if not config.data.hold_out:
        splits = {"train": join(splits["train"], splits["val"]) if "val" in splits else splits["train"]}
    state = find_start(config)
    try:
        with claimed(config.out):
            trainer = Trainer(config, splits, state)
            warn_about(trainer.batches, config.batch_size)
            if config.data.hold_out:
                warn_about_validation(splits["val"], trainer.validation.pairs)
            trainer.processes.first(lambda: begin(config, resumed=state is not None))
            reason = trainer.fit()
            if reason > LATE:
                raise SystemExit(128 + reason)
            model = trainer.update.averaged()
            if not reason:
                trainer.processes.first(lambda: model.save_pretrained(config.out))
            return model
    except OSError as error:
        raise DataError(f"the run in {config.out} cannot be written or read: {error.strerror or error}") from error
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"the device has too little memory for {config.batch_size} pairs a step; expected a smaller --batch-size"
        ) from error
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DataError(
            f"a process that prepares batches has died: {first_line(error)} "
            "Memory may be short, or the dataset's cache may have vanished"
        ) from error
