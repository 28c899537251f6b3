"""Train both heads of the package's network on the mixture, in the project's own loop, from the shards of prepare.py.

    python train.py --shards DIR --start vit_small_patch14_dinov2.safetensors --out DIR --steps 4000 --sizes 378 378 518

`--budget` lets the rate fall with the clock where that is ahead of the steps; `--resume` goes on.
"""

import argparse
import io
import json
import os
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from normmatch.annotations import Annotation
from normmatch.config import PRESETS, AugmentConfig, DataConfig, LossConfig, ModelConfig, TrainConfig
from normmatch.datasets.types import PreparedSplit
from normmatch.model.network import NormMatch
from normmatch.training import checkpoint, loop
from normmatch.training.run import train

STORED = 420  # pixels a side; the shards have as much
NAMES = {"voc": "pascal-voc", "spair": "spair-71k"}


def read_split(
    folder: Path, roles: set[str], left_out: Collection[str] = (), most: int = 0, stored: int = STORED
) -> PreparedSplit:
    """The objects of some roles, as the project's prepared cache would hold them."""
    items = [i for i in json.loads((folder / "objects.json").read_text()) if i["role"] in roles]
    items = [i for i in items if i["kind"] not in left_out]
    if most:
        items = [items[k] for k in np.sort(np.random.default_rng(0).permutation(len(items))[:most])]
    shards = {shard: (folder / f"shard{shard}.bin").read_bytes() for shard in {i["shard"] for i in items}}

    def decode(item: dict) -> np.ndarray:
        data = shards[item["shard"]][item["start"] : item["start"] + item["bytes"]]
        with Image.open(io.BytesIO(data)) as file:
            return np.asarray(file.convert("RGB").resize((stored, stored), Image.Resampling.BICUBIC))

    images = np.empty((len(items), stored, stored, 3), np.uint8)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for k, image in enumerate(pool.map(decode, items)):
            images[k] = image
    objects = []
    for item in items:
        points = {n: xy for n, xy in item["points"].items() if min(xy) >= 0 and max(xy) <= 1}
        xy = np.array(list(points.values()), np.float32).reshape(-1, 2) * stored
        label = f"{NAMES.get(item['dataset'], item['dataset'])}/{item['kind']}"
        objects.append(Annotation(item["photograph"], tuple(points), xy, label=label))
    sizes = np.array([np.round(i["size"]) for i in items], np.int64)
    return PreparedSplit(images, tuple(objects), None, sizes)


def settings(args: argparse.Namespace) -> TrainConfig:
    """What the log of recipes/one_network found best."""
    model = replace(
        PRESETS["small"], backbone_weights=str(args.start), drop_path=0.1, locate_dim=128, image_size=args.sizes[0]
    )
    augment = AugmentConfig(
        rotation=17.0,
        scale=(0.6, 1.5),
        shift=0.15,
        gain=0.3,
        mixup=args.mixup,
        flip=args.flip,
        mirror=0.5,
        self_pairs=args.self_pairs,
        strays=args.strays,
        noise=args.noise,
        sizes=tuple(args.sizes),
    )
    return TrainConfig(
        out=args.out,
        model=model,
        augment=augment,
        data=DataConfig(
            names=("pascal-voc", "spair-71k"),
            shares=(args.voc, 1 - args.voc),
            workers=args.workers,
            validation_split=not args.all,
        ),
        loss=LossConfig(layer_loss=False, names=args.names),
        steps=args.steps,
        batch_size=args.pairs,
        lr=1e-3,
        backbone_lr=8e-5,
        layer_decay=0.8,
        warmup=150,
        clip=5.0,
        average=0.997,
        seed=args.seed,
        compile=args.compile,
        tensorboard=False,
        validate_every=10**6,
        validation_pairs=20,
        save_every=10**6,
        keep=1,
        minutes=args.minutes,
        resume=args.resume,
        log_every=50,
        precision=args.precision,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--start", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument(
        "--pairs", type=int, default=60, help="a step; with a fifth of self-pairs, 48 are of two objects"
    )
    parser.add_argument("--self-pairs", type=float, default=0.2)
    parser.add_argument("--voc", type=float, default=0.5, help="share of PascalVOC among the pairs of two objects")
    parser.add_argument("--sizes", type=int, nargs="+", default=[378])
    parser.add_argument("--strays", type=float, default=0.2)
    parser.add_argument("--noise", type=float, default=2.0)
    parser.add_argument("--mixup", type=float, default=0.0)
    parser.add_argument("--names", type=float, default=1.0)
    parser.add_argument("--flip", type=float, default=0.5)
    parser.add_argument("--leave-out", nargs="*", default=[], help="kinds that are not trained on")
    parser.add_argument("--all", action="store_true", help="train on the held-out objects too")
    parser.add_argument("--most", type=int, default=0, help="objects, for a trial")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument(
        "--budget", type=float, default=0.0, help="seconds of all of the training, by which the rate falls"
    )
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    args = parser.parse_args()
    begun = time.time()
    if args.budget:
        schedule_by_time(args)
    out = set(args.leave_out)
    splits = {
        "train": read_split(args.shards, {"train"}, out, args.most),
        "val": read_split(args.shards, {"held"}, out),
    }
    print(f"{len(splits['train'].objects)} objects, read in {time.time() - begun:.0f} s", flush=True)
    config = settings(args)
    try:
        train(config, splits)
    finally:
        print(f"{time.time() - begun:.0f} s in all", flush=True)
        finish(args.out)


def schedule_by_time(args: argparse.Namespace) -> None:
    """Let the rate fall with the clock, where that is ahead of the steps: it is down when the budget is spent."""
    newest = checkpoint.find_newest(args.out) if args.resume else None
    before = checkpoint.read_values(newest)["seconds"] if newest else 0.0
    begun: list[float] = []
    plain = loop.set_rates

    def set_rates(optimizer, step, config) -> None:
        begun or begun.append(time.time())
        done = (before + time.time() - begun[0]) / args.budget
        plain(optimizer, step if step < config.warmup else max(step, min(1.0, done) * config.steps), config)

    loop.set_rates = set_rates
    args.minutes = min(args.minutes or 1e9, max(1e-9, (args.budget - before) / 60))


def finish(run: Path) -> None:
    """Write the averaged weights in 8 bits, of a run at whatever step it stands."""
    newest = checkpoint.find_newest(run)
    if newest is None:
        return
    saved = checkpoint.load(newest)
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in saved["config"]["model"].items()}
    model = NormMatch(ModelConfig(**{**values, "backbone_weights": "random"}))
    model.load_state_dict(saved["average"])
    model.normalize_weights()
    file = model.save_pretrained(run / "small.safetensors", bits=8, held_out=True)
    print(f"step {saved['step']}: {file}", flush=True)


if __name__ == "__main__":
    main()
