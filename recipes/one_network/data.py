"""Objects from shards, and the batches that trainings see.

All pictures lie on the GPU as squares; a batch names them by number and says how each is to be warped, so that the
processes which draw batches handle points alone.
"""

import io
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset

from normmatch.geometry import delaunay
from settings import FOLDS, Settings

STORED = 420  # pixels a side of a picture in memory
MOST_NAMES = 30  # of a kind; columns of the tables of points
MOST_SHOWN = 24  # points of an image that the matching head sees
FEWEST_SHARED = 2
TRIES = 50

Batch = dict[str, np.ndarray]


@dataclass(frozen=True)
class Objects:
    """A list of objects with their points: those of one kind of one dataset share their columns."""

    images: np.ndarray  # (n,) numbers in the store of pictures
    labels: list[str]  # (n,) dataset/kind
    xy: np.ndarray  # (n, MOST_NAMES, 2) float32, shares of the picture
    known: np.ndarray  # (n, MOST_NAMES) bool
    size: np.ndarray  # (n, 2) float32: width and height of the picture before it became a square
    longer: np.ndarray  # (n,) float32: the longer side of the object's box, in the same pixels
    photographs: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, keep: Sequence[int] | np.ndarray) -> "Objects":
        index = np.asarray(keep, int)
        return Objects(
            self.images[index], [self.labels[i] for i in index], self.xy[index], self.known[index],
            self.size[index], self.longer[index], [self.photographs[i] for i in index],
        )  # fmt: skip

    def by_label(self) -> dict[str, np.ndarray]:
        groups = defaultdict(list)
        for i, label in enumerate(self.labels):
            groups[label].append(i)
        return {label: np.array(group) for label, group in sorted(groups.items())}


def read_objects(folder: Path) -> tuple[dict[str, Objects], list[dict]]:
    """Objects by role, and the list as it was written; `images` count in that list."""
    items = json.loads((folder / "objects.json").read_text())
    names = defaultdict(set)
    for item in items:
        names[item["dataset"], item["kind"]].update(item["points"])
    columns = {key: {name: i for i, name in enumerate(sorted(group))} for key, group in names.items()}
    xy = np.zeros((len(items), MOST_NAMES, 2), np.float32)
    known = np.zeros((len(items), MOST_NAMES), bool)
    for i, item in enumerate(items):
        column = columns[item["dataset"], item["kind"]]
        for name, place in item["points"].items():
            xy[i, column[name]] = place
        known[i] = False
        known[i, [column[name] for name, (x, y) in item["points"].items() if 0 <= x <= 1 and 0 <= y <= 1]] = True
    everything = Objects(
        np.arange(len(items)),
        [f"{item['dataset']}/{item['kind']}" for item in items],
        xy,
        known,
        np.array([item["size"] for item in items], np.float32),
        np.array([item["longer"] for item in items], np.float32),
        [item["photograph"] for item in items],
    )
    roles = defaultdict(list)
    for i, item in enumerate(items):
        roles[item["role"]].append(i)
    found = {role: everything.only(index) for role, index in roles.items()}
    shared = set(found["train"].photographs) & set(found["held"].photographs)
    if shared:
        raise ValueError(f"photograph {min(shared)} is trained on and measured on")
    return found, items


def read_pictures(folder: Path, items: Sequence[dict], wanted: np.ndarray, threads: int) -> Tensor:
    """Pictures (n, 3, STORED, STORED) uint8 of the wanted numbers, in their order."""
    shards: dict[int, bytes] = {}
    for shard in {items[i]["shard"] for i in wanted}:
        shards[shard] = (folder / f"shard{shard}.bin").read_bytes()

    def decode(i: int) -> np.ndarray:
        item = items[i]
        jpeg = shards[item["shard"]][item["start"] : item["start"] + item["bytes"]]
        with Image.open(io.BytesIO(jpeg)) as file:
            return np.asarray(file.convert("RGB").resize((STORED, STORED), Image.Resampling.BICUBIC))

    with ThreadPoolExecutor(threads) as pool:
        pictures = np.stack(list(pool.map(decode, wanted)))
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()


def chosen(objects: Objects, settings: Settings) -> Objects:
    """The objects of the kinds that a training may see."""
    kinds = sorted({label.split("/")[1] for label in objects.labels} - set(FOLDS[settings.leave_out]))
    if settings.kinds:
        order = np.random.default_rng(0).permutation(len(kinds))  # more kinds always include the fewer
        kinds = [kinds[i] for i in order[: settings.kinds]]
    found = objects.only([i for i, label in enumerate(objects.labels) if label.split("/")[1] in kinds])
    if not settings.objects:
        return found
    return found.only(np.sort(np.random.default_rng(0).permutation(len(found))[: settings.objects]))


def affine(random: np.random.Generator, rotation: float, flip: bool) -> tuple[np.ndarray, np.ndarray]:
    """A random map p -> R p + t of places in [-1, 1]."""
    angle = random.uniform(-rotation, rotation)
    scale = np.exp(random.uniform(-0.3, 0.3, 2) + random.uniform(-0.3, 0.2))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) * scale[:, None]
    if flip:
        turn = turn @ np.diag([-1.0, 1.0])
    return turn, random.uniform(-0.15, 0.15, 2)


def warp_points(xy: np.ndarray, known: np.ndarray, turn: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, ...]:
    """Points (K, 2) after a map, which of them are still in the picture, and theta (2, 3), its inverse for pixels."""
    moved = ((xy * 2 - 1) @ turn.T + shift + 1) / 2
    inside = known & (moved >= 0).all(1) & (moved <= 1).all(1)
    inverse = np.linalg.inv(turn)
    theta = np.concatenate([inverse, -(inverse @ shift)[:, None]], 1)
    return moved.astype(np.float32), inside, theta.astype(np.float32)


def shown_points(
    xy: np.ndarray, known: np.ndarray, pairs: np.ndarray, same: np.ndarray, strays: float, random: np.random.Generator
) -> Batch:
    """What the matching head sees of pairs (P, 2): shared points, perhaps some others, in an order of their own each.

    Returns keypoints (P, N, 2) as shares of the image, masks (P, N), graphs (P, N, N), and gt_matches0 (P, N).
    """
    count, n = len(pairs), MOST_SHOWN
    result: Batch = {"gt_matches0": np.full((count, n), -1)}
    for side in "01":
        result[f"keypoints{side}"] = np.zeros((count, n, 2), np.float32)
        result[f"mask{side}"] = np.zeros((count, n), bool)
        result[f"adjacency{side}"] = np.zeros((count, n, n), bool)
    for p, pair in enumerate(pairs):
        shared = known[pair[0]] & known[pair[1]] & same[p]
        place = np.full((2, xy.shape[1]), -1)  # of each column's point among those shown
        for side, image in enumerate(pair):
            stray = known[image] & ~shared & (random.random(xy.shape[1]) < strays)
            columns = random.permutation(np.flatnonzero(shared | stray))[:n]
            k = len(columns)
            points = xy[image, columns]
            place[side, columns] = np.arange(k)
            result[f"keypoints{side}"][p, :k], result[f"mask{side}"][p, :k] = points, True
            if k > 1:
                result[f"adjacency{side}"][p, :k, :k] = delaunay(points)
        both = (place >= 0).all(0) & shared
        result["gt_matches0"][p, place[0, both]] = place[1, both]
    return result


class Batches(IterableDataset):
    """Endless batches: groups of images of one kind, warped, with their points and all their pairs."""

    def __init__(self, objects: Objects, settings: Settings, seed: int) -> None:
        self.objects, self.settings, self.seed = objects, settings, seed
        groups = {label: group for label, group in objects.by_label().items() if len(group) >= settings.group}
        self.pools = {
            dataset: [group for label, group in groups.items() if label.startswith(dataset)]
            for dataset in ("spair", "voc")
        }

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        worker = torch.utils.data.get_worker_info()
        torch.set_num_threads(1)
        random = np.random.default_rng((self.seed, worker.id if worker else 0))
        while True:
            yield {key: torch.from_numpy(value) for key, value in self.draw(random).items()}

    def draw(self, random: np.random.Generator) -> Batch:
        s = self.settings
        groups = [self.draw_group(random) for _ in range(s.images // s.group)]
        batch = {key: np.concatenate([group[key] for group in groups]) for key in groups[0]}
        one, two = np.triu_indices(s.group, 1)
        start = np.arange(0, s.images, s.group)[:, None]
        pairs = np.stack([start + one, start + two], -1).reshape(-1, 2)  # (P, 2)
        same = np.repeat(batch.pop("same"), len(one))  # (P,): else all points of the one are absent in the other
        shown = shown_points(batch["xy"], batch["known"], pairs, same, s.strays, random)
        return {**batch, "pairs": pairs, "same": same, **shown}

    def draw_group(self, random: np.random.Generator) -> Batch:
        """Images of one kind that share enough points, or copies of one photograph, or images of different kinds."""
        s, kind = self.settings, random.random()
        for _ in range(TRIES):
            if kind < s.self_pairs:
                group = self._warp(
                    np.repeat(random.integers(len(self.objects)), s.group), random, points_of_its_own=True
                )
            else:
                others = kind < s.self_pairs + s.others
                group = self._warp(self._members(random, others), random)
                group["same"][:] = not others
            shared = (group["known"][:-1] & group["known"][1:]).sum(1)
            if not group["same"][0] or (shared >= FEWEST_SHARED).all():
                return group
        return group

    def _members(self, random: np.random.Generator, others: bool) -> np.ndarray:
        """Numbers of the objects of a group."""
        pool = self.pools["voc" if random.random() < self.settings.voc else "spair"]
        size = self.settings.group
        if others:
            kinds = random.choice(len(pool), size, replace=len(pool) < size)
            return np.array([random.choice(pool[kind]) for kind in kinds])
        return random.choice(pool[random.integers(len(pool))], size, replace=False)

    def _warp(self, members: np.ndarray, random: np.random.Generator, points_of_its_own: bool = False) -> Batch:
        flip = random.random() < self.settings.flip
        xy, known = self.objects.xy[members], self.objects.known[members]
        if points_of_its_own:
            xy = np.repeat(random.uniform(0.02, 0.98, (1, MOST_NAMES, 2)), len(members), 0)
            known = np.repeat(np.arange(MOST_NAMES)[None] < 20, len(members), 0)
        warped = [
            warp_points(points, real, *affine(random, self.settings.rotation, flip))
            for points, real in zip(xy, known, strict=True)
        ]
        moved, inside, theta = (np.stack(part) for part in zip(*warped, strict=True))
        return {
            "images": self.objects.images[members], "xy": moved, "known": inside, "theta": theta,
            "same": np.ones(1, bool),
        }  # fmt: skip


def render(pictures: Tensor, theta: Tensor, size: int, generator: torch.Generator | None = None) -> Tensor:
    """Pictures (B, 3, STORED, STORED) uint8, warped, recoloured, and made size x size: (B, 3, size, size) in [0, 1]."""
    grid = F.affine_grid(theta, [len(pictures), 3, size, size], align_corners=False)
    image = F.grid_sample(pictures.float() / 255, grid, padding_mode="zeros", align_corners=False)
    if generator is None:
        return image
    gain = torch.rand(len(image), 3, 1, 1, device=image.device, generator=generator) * 0.6 + 0.7
    lift = torch.rand(len(image), 1, 1, 1, device=image.device, generator=generator) * 0.24 - 0.12
    return (image * gain + lift).clamp(0, 1)


def plain(pictures: Tensor, size: int) -> Tensor:
    """Pictures as they are, made size x size."""
    image = pictures.float() / 255
    return F.interpolate(image, (size, size), mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
