"""Train both heads of one network on SPair-71k and PascalVOC, and measure it.

    python train.py --data DIR --backbone-weights vit_small_patch14_dinov2.safetensors --name NAME [--any-setting VALUE]

Writes OUT/NAME/{row.json, log.jsonl, network.safetensors, checkpoint.pt}. Every hypothesis is a setting (settings.py);
`--resume` goes on where a checkpoint stands, on the same schedule.
"""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import tuning
from data import Batches, Objects, chosen, read_objects, read_pictures, render
from losses import locating_loss
from measure import measure, print_row
from network import OneNetwork, pick
from normmatch.config import LossConfig
from normmatch.training.losses import MatchingLoss
from settings import Settings

LOG_EVERY = 50


class Training:
    """Network, optimiser and running average; `step` does one step."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.settings, self.device = settings, device
        torch.manual_seed(settings.seed)
        self.network = OneNetwork(settings, settings.backbone_weights).to(device)
        self.matching_loss = MatchingLoss(LossConfig(layer_loss=False)).to(device)
        self.colours = torch.Generator(device).manual_seed(settings.seed)
        self.head_parameters = [p for p in [*self.network.heads(), *self.matching_loss.parameters()] if p.requires_grad]
        groups = [{"params": self.head_parameters, "peak": settings.lr}]
        groups += tuning.groups(
            self.network.backbone.net, settings.backbone_lr, settings.layer_decay, settings.added_lr
        )
        self.optimizer = torch.optim.AdamW(
            groups, lr=settings.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=device.type == "cuda"
        )
        self.trained = [p for p in self.network.parameters() if p.requires_grad]
        self.averages = [p.detach().clone() for p in self.trained]
        self.steps, self.seconds = 0, 0.0
        if settings.compile:
            self.network.compile()

    @property
    def progress(self) -> float:
        """The share of the training that is done."""
        s = self.settings
        return max(self.steps / s.steps, self.seconds / (60 * s.minutes) if s.minutes else 0.0)

    def sigma(self) -> float:
        """The target's deviation now: it narrows over the first two thirds."""
        first, last = self.settings.sigmas
        return first + (last - first) * min(1.0, self.progress * 1.5)

    def step(self, batch: dict[str, Tensor], pictures: Tensor) -> dict[str, Tensor]:
        s = self.settings
        rate = min(1.0, (self.steps + 1) / s.warmup) * 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress)))
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * rate
        image = render(pictures[batch["images"]], batch["theta"], s.size, self.colours)
        losses = self.losses(image, batch)
        loss = s.match * losses["match"] + s.dense * losses["dense"]
        loss.backward()
        nn.utils.clip_grad_norm_(self.head_parameters, s.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.network.matching.normalize_weights()
        self.steps += 1
        with torch.no_grad():
            torch._foreach_lerp_(self.averages, self.trained, 1 - min(s.average, 1 - 1 / (self.steps + 9)))
        return {key: value.detach() for key, value in losses.items()}

    def losses(self, image: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        s, network = self.settings, self.network
        points = {key: batch[key] for key in batch if key[:-1] in ("keypoints", "mask", "adjacency", "gt_matches")}
        points |= {key: points[key] * s.size for key in ("keypoints0", "keypoints1")}
        with torch.autocast(self.device.type, torch.bfloat16):
            encoding = network(image)
            one, two = (pick(encoding.features, batch["pairs"][:, side]) for side in (0, 1))
            described = network.matching.head.describe(one, two, points)
            queries = network.locating.at(encoding.trunk, encoding.dense, batch["xy"])
        match = self.matching_loss(described, points)["loss"]
        dense = locating_loss(network, queries.float(), encoding.dense, batch, self.sigma())
        return {"match": match, "dense": dense}

    @torch.no_grad()
    def averaged(self) -> OneNetwork:
        """The network with the averaged weights in place; the training is over then."""
        for parameter, average in zip(self.trained, self.averages, strict=True):
            parameter.copy_(average)
        self.network.matching.normalize_weights()
        return self.network.eval()

    def state(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(), "loss": self.matching_loss.state_dict(), "averages": self.averages,
            "optimizer": self.optimizer.state_dict()["state"], "steps": self.steps, "seconds": self.seconds,
        }  # fmt: skip

    def load_state(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.matching_loss.load_state_dict(state["loss"])
        self.averages = [average.to(self.device) for average in state["averages"]]
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state["optimizer"]})
        self.steps, self.seconds = state["steps"], state["seconds"]


def save_checkpoint(training: Training, path: Path) -> None:
    """Whole or not at all."""
    partial = path.with_suffix(".partial")
    torch.save(training.state(), partial)
    partial.replace(path)


def run(training: Training, batches: Iterator[dict[str, Tensor]], pictures: Tensor, folder: Path) -> None:
    """Steps until the training's end, a line of the log now and then, checkpoints."""
    settings, device = training.settings, training.device
    cuda = device.type == "cuda"
    before, begun, saved = training.seconds, time.time(), time.time()
    sums: dict[str, Tensor] = {}
    count = 0
    with (folder / "log.jsonl").open("a") as log:
        for batch in batches:
            if training.progress >= 1:
                break
            moved = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
            for key, value in training.step(moved, pictures).items():
                sums[key] = sums.get(key, 0) + value
            count += 1
            training.seconds = before + time.time() - begun
            if training.steps % LOG_EVERY == 0 or training.steps == 10:
                line = {"step": training.steps, "seconds": round(training.seconds, 1)}
                line |= {key: round(value.item() / count, 3) for key, value in sums.items()}
                line |= {"memory": round(torch.cuda.max_memory_allocated() / 1e9, 1)} if cuda else {}
                print(json.dumps(line), file=log, flush=True)
                print(settings.name, json.dumps(line), flush=True)
                sums, count = {}, 0
            if settings.save_minutes and time.time() - saved > 60 * settings.save_minutes:
                save_checkpoint(training, folder / "checkpoint.pt")
                saved = time.time()


def draw(objects: Objects, settings: Settings, seed: int, pinned: bool) -> DataLoader:
    """Batches, drawn by processes of their own."""
    ahead = 3 if settings.workers else None
    batches = Batches(objects, settings, seed)
    return DataLoader(batches, batch_size=None, num_workers=settings.workers, pin_memory=pinned, prefetch_factor=ahead)


def finish(training: Training, roles: dict[str, Objects], items: list[dict], folder: Path) -> None:
    """Keep the averaged network, and write its row."""
    settings, network = training.settings, training.averaged()
    network.save(folder / "network.safetensors")
    row: dict[str, Any] = {"name": settings.name, "steps": training.steps, "seconds": round(training.seconds)}
    if settings.measure:
        row |= measure(network, roles, items, Path(settings.data), training.device, settings.size)
        print_row(row)
    row |= {"changed": settings.changed(), "settings": asdict(settings)}
    (folder / "row.json").write_text(json.dumps(row, indent=1))


def main() -> None:
    settings = Settings.from_command_line(__doc__)
    begun, data = time.time(), Path(settings.data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    folder = Path(settings.out) / settings.name
    folder.mkdir(parents=True, exist_ok=True)

    roles, items = read_objects(data)
    objects = chosen(roles["train"], settings)
    wanted = objects.images.copy()
    objects.images[:] = range(len(objects))  # as they lie on the device
    checkpoint = folder / "checkpoint.pt"
    resumed = settings.resume and checkpoint.is_file()
    state = torch.load(checkpoint, map_location="cpu", weights_only=True) if resumed else {"steps": 0}
    seed = settings.seed + 1000 * state["steps"]  # a resumed training sees other batches
    batches = iter(draw(objects, settings, seed, device.type == "cuda"))  # its processes start before the GPU is used
    pictures = read_pictures(data, items, wanted, max(1, settings.workers)).to(device)
    training = Training(settings, device)
    if resumed:
        training.load_state(state)
    training.network.train()
    print(f"{settings.name}: {len(objects)} objects, {time.time() - begun:.0f} s to start", flush=True)

    run(training, batches, pictures, folder)
    del batches, pictures
    if settings.save_minutes:
        save_checkpoint(training, checkpoint)
    finish(training, roles, items, folder)
    print(f"{settings.name}: {time.time() - begun:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
