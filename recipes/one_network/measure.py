"""The measure: one row of figures for a network, on photographs that no training sees.

    python measure.py --data DIR --weights runs/NAME/network.safetensors     a network of train.py
    python measure.py --data DIR --backbone FILE [--read 5,8,11]             a backbone's nearest neighbours
    python measure.py --data DIR --normmatch small [--read 5,8,11]           NormMatch's own matching, the same

| column | what |
|---|---|
| rest, A, B | PCK@0.1 / 0.05 / 0.01 by image, mean of dataset and kind: kinds of neither fold, of fold A, of fold B |
| trilobite | one reference, 300 pairs of heads, PCK@0.1 / 0.05 / 0.02 of the landmarks' box |
| moved | the same pairs, each head in a random warp of its own, so that its box gives nothing away |
| five | five references in closed form (blocks 5, 8, 11): nearest, ridge, ridge and shape, PCK@0.05 / 0.1 |
| warped | random points of a photograph in a warped copy of it: within 3 and 1 px of 378 |
| match | accuracy among given points, Sinkhorn and row arg-max: rest, A, B |
| visible, right, ece | AUC of "the other image has it"; AUC and calibration error of "within 0.1" |
| cost | time of encoding against the plain backbone's |

Which of the folds a network has not seen is in its settings. PCK's unit is the longer side of the target's box.
"""

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from closed_form import read_with_references, unit_maps
from data import MOST_NAMES, Objects, affine, plain, read_objects, read_pictures, render, shown_points, warp_points
from network import MATCHED, Encoding, OneNetwork, cell_centers, pick, read
from normmatch.model.backbone import Features
from normmatch.model.network import NormMatch
from normmatch.model.sampling import node_features
from settings import FOLDS, Settings

PAIRS = 60  # a dataset and kind
HEADS = 300  # pairs of trilobites
DRAWS = 4  # of five references
REFERENCES = 5
CLOSED_FORM = (4, 7, 10)  # blocks, counted from 0
NEAR = 4.5 / 54  # of the image: half the window around the best place that the answer is averaged over
WARPED = 150  # photographs
CHUNK = 32


class NearestNeighbour(nn.Module):
    """Reads a backbone's own maps where a trained network has its dense head."""

    def __init__(self, blocks: Sequence[int], scale: float = 25.0, none: float = 0.6) -> None:
        super().__init__()
        self.blocks, self.scale, self.none = blocks, scale, none

    def forward(self, maps: dict[int, Tensor]) -> Tensor:
        return F.normalize(unit_maps(maps, self.blocks), dim=1)

    def at(self, trunk: Tensor, dense: Tensor, xy: Tensor) -> Tensor:
        return F.normalize(read(dense, xy), dim=-1)

    def logits(self, queries: Tensor, dense: Tensor) -> Tensor:
        """As `DenseHead.logits`."""
        cosine = queries @ dense.flatten(-2)
        return self.scale * F.pad(cosine, (0, 1), value=self.none)


class Position(NearestNeighbour):
    """Answers with the source's own place: what boxes and upright photographs give away."""

    def at(self, trunk: Tensor, dense: Tensor, xy: Tensor) -> Tensor:
        return xy

    def logits(self, queries: Tensor, dense: Tensor) -> Tensor:
        height, width = dense.shape[-2:]
        centers = cell_centers(height, width, dense.device)
        distance = (queries.unsqueeze(-2) - centers).square().sum(-1)
        return F.pad(-distance * 2000, (0, 1), value=-9.0)


class Plain(nn.Module):
    """A NormMatch network, or a backbone alone, behind the interface of `OneNetwork`."""

    def __init__(self, matching: NormMatch, locating: NearestNeighbour, trained: bool) -> None:
        super().__init__()
        self.matching, self.backbone, self.locating, self.trained = matching, matching.backbone, locating, trained

    def forward(self, image: Tensor, also: Sequence[int] = ()) -> Encoding:
        maps = OneNetwork.maps(self, image, [*MATCHED, *self.locating.blocks, *also])  # type: ignore[arg-type]
        first, last = maps[MATCHED[0]], maps[MATCHED[1]]
        dense = self.locating(maps)
        features = Features((first, last), last.mean((2, 3)), (image.shape[-2], image.shape[-1]))
        return Encoding(maps, features, dense, dense)

    def locate(self, queries: Tensor, xy: Tensor, known: Tensor, dense: Tensor) -> list[Tensor]:
        """As `OneNetwork.locate`."""
        return [self.locating.logits(queries, dense)]


class Encoded:
    """Pictures seen by a network, with their objects; everything stays on the device."""

    def __init__(self, network: Any, objects: Objects, images: Tensor, blocks: Sequence[int] = ()) -> None:
        device = images.device
        self.objects, self.network = objects, network
        self.xy = torch.from_numpy(objects.xy).to(device)
        self.known = torch.from_numpy(objects.known).to(device)
        self.size = torch.from_numpy(objects.size).to(device)
        parts = []
        for i in range(0, len(images), CHUNK):
            with torch.autocast(device.type, torch.bfloat16):
                e = network(images[i : i + CHUNK], also=blocks)
                queries = network.locating.at(e.trunk, e.dense, self.xy[i : i + CHUNK])
            parts.append((e.features, e.dense, queries.float(), {block: e.maps[block] for block in blocks}))
        features, dense, queries, maps = zip(*parts, strict=True)
        self.dense, self.queries = torch.cat(dense), torch.cat(queries)
        self.features = features[0]._replace(
            maps=tuple(torch.cat([f.maps[k] for f in features]) for k in (0, 1)),
            pooled=torch.cat([f.pooled for f in features]),
        )
        self.maps = {block: torch.cat([m[block] for m in maps]) for block in blocks}


def pairs_of(objects: Objects, most: int, seed: int = 0) -> np.ndarray:
    """Seeded ordered pairs (P, 2) of objects of one label that share at least two points."""
    random, found = np.random.default_rng(seed), []
    for group in objects.by_label().values():
        pairs = np.array([(i, j) for i in group for j in group if i != j])
        enough = [(objects.known[i] & objects.known[j]).sum() >= 2 for i, j in pairs]
        pairs = pairs[np.array(enough, bool)]
        found.append(pairs[random.permutation(len(pairs))[:most]])
    return np.concatenate(found)


def locate(encoded: Encoded, pairs: np.ndarray) -> dict[str, np.ndarray]:
    """Places (P, K, 2) of the sources' points in the targets, the mass around them, and that of all places."""
    height, width = encoded.dense.shape[-2:]
    centers = cell_centers(height, width, encoded.dense.device)
    near = (centers[:, None] - centers).abs().amax(-1) <= NEAR  # (cells, cells)
    results = []
    for chunk in torch.from_numpy(pairs).to(centers.device).split(CHUNK):
        one, two = chunk.unbind(1)
        asked = encoded.queries[one], encoded.xy[one], encoded.known[one]
        logits = encoded.network.locate(*asked, encoded.dense[two])[-1].float()
        p = logits.softmax(-1)
        window = p[..., :-1] * near[logits[..., :-1].argmax(-1)]
        mass = window.sum(-1)
        places = (window @ centers) / mass.clamp_min(1e-12).unsqueeze(-1)
        results.append((places, mass, 1 - p[..., -1]))
    keys = ("places", "mass", "there")
    return {key: torch.cat(part).cpu().numpy() for key, part in zip(keys, zip(*results, strict=True), strict=True)}


def errors_of(objects: Objects, pairs: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Distances (P, K) from the truth in units of the target's box; NaN where a point is not in both."""
    source, target = pairs.T
    away = (places - objects.xy[target]) * objects.size[target][:, None]
    error = np.linalg.norm(away, axis=-1) / objects.longer[target][:, None]
    return np.where(objects.known[source] & objects.known[target], error, np.nan)


def auc(score: np.ndarray, right: np.ndarray) -> float:
    """The chance that a right answer has the higher score."""
    order = score.argsort().argsort()
    count = right.sum()
    return float((order[right].sum() - count * (count - 1) / 2) / max(1, count * (len(right) - count)))


def calibration_error(score: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Mean distance of certainty from accuracy over ten bins."""
    place = np.minimum((score * bins).astype(int), bins - 1)
    gaps = [abs(score[place == b].mean() - right[place == b].mean()) * (place == b).mean() for b in set(place)]
    return float(sum(gaps))


def match_accuracy(encoded: Encoded, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Right matches and all matches (P,) among the shared points of pairs, shuffled."""
    objects, network = encoded.objects, encoded.network
    device = encoded.xy.device
    shown = shown_points(objects.xy, objects.known, pairs, np.ones(len(pairs), bool), 0.0, np.random.default_rng(0))
    points = {key: torch.from_numpy(value).to(device) for key, value in shown.items()}
    size = encoded.features.size[0]
    points |= {key: points[key] * size for key in ("keypoints0", "keypoints1")}
    found = []
    for i in range(0, len(pairs), CHUNK):
        part = {key: value[i : i + CHUNK] for key, value in points.items()}
        one, two = (pick(encoded.features, torch.from_numpy(pairs[i : i + CHUNK, side]).to(device)) for side in (0, 1))
        if getattr(network, "trained", True):
            with torch.autocast(device.type, torch.bfloat16):
                found.append(network.matching.head(one, two, part)["log_assignment"].argmax(-1))
        else:
            nodes0 = node_features(one.maps, part["keypoints0"], one.size).float()
            nodes1 = node_features(two.maps, part["keypoints1"], two.size).float()
            similarity = F.normalize(nodes0, dim=-1) @ F.normalize(nodes1, dim=-1).mT
            found.append(similarity.masked_fill(~part["mask1"].unsqueeze(1), -2).argmax(-1))
    truth = points["gt_matches0"]
    right = (torch.cat(found) == truth) & (truth >= 0)
    return right.sum(1).cpu().numpy(), (truth >= 0).sum(1).cpu().numpy()


def on_benchmarks(encoded: Encoded) -> dict[str, Any]:
    """Locating and matching on the held-out objects of both datasets, by label and by fold."""
    objects = encoded.objects
    pairs = pairs_of(objects, PAIRS)
    answers = locate(encoded, pairs)
    error = errors_of(objects, pairs, answers["places"])
    right, total = match_accuracy(encoded, pairs)
    labels = np.array([objects.labels[i] for i in pairs[:, 0]])
    counted = ~np.isnan(error)
    pck = np.stack([((error <= t) & counted).sum(1) / counted.sum(1) for t in (0.1, 0.05, 0.01)], 1)  # (P, 3)
    by_label = {
        label: [*pck[labels == label].mean(0), right[labels == label].sum() / total[labels == label].sum()]
        for label in sorted(set(labels))
    }
    row: dict[str, Any] = {}
    folds = {kind: fold for fold in ("A", "B") for kind in FOLDS[fold]}
    for name in ("rest", "A", "B"):
        for dataset in ("", "spair", "voc"):
            group = [
                figures for label, figures in by_label.items()
                if folds.get(label.split("/")[1], "rest") == name and label.startswith(dataset)
            ]  # fmt: skip
            row[f"{name}.{dataset}" if dataset else name] = np.mean(group, 0)[:3]
            row[f"match.{name}.{dataset}" if dataset else f"match.{name}"] = np.mean(group, 0)[3]
    hit, mass = error[counted] <= 0.1, answers["mass"][counted]
    known = objects.known[pairs[:, 0]]
    row["right"], row["ece"] = auc(mass, hit), calibration_error(mass, hit)
    row["visible"] = auc(answers["there"][known], objects.known[pairs[:, 1]][known])
    row["by label"] = {label: [round(100 * float(x), 1) for x in figures] for label, figures in by_label.items()}
    row["pairs"] = len(pairs)
    return row


def pairs_of_heads(objects: Objects, random: np.random.Generator) -> np.ndarray:
    """Seeded pairs (HEADS, 2) of trilobites."""
    return np.stack([random.choice(len(objects), 2, replace=False) for _ in range(HEADS)])


def shares_within(error: np.ndarray, limits: Sequence[float]) -> list[float]:
    """The shares of the errors, NaN left out, up to each limit."""
    return [float(np.mean(error[~np.isnan(error)] <= limit)) for limit in limits]


def on_moved_heads(network: Any, objects: Objects, pictures: Tensor, size: int) -> dict[str, Any]:
    """One reference, each head moved, turned and stretched by a random map of its own: its box says nothing.

    Answers are taken back to the pictures as they were, so that the figures compare with those of the boxes.
    """
    random = np.random.default_rng(0)
    pairs = pairs_of_heads(objects, random)
    maps = [affine(random, 0.3, False) for _ in range(len(objects))]
    warps = [warp_points(*points, *m) for *points, m in zip(objects.xy, objects.known, maps, strict=True)]
    xy, inside, theta = (np.stack(part) for part in zip(*warps, strict=True))
    moved = replace(objects, xy=xy, known=inside)
    encoded = Encoded(network, moved, render(pictures, torch.from_numpy(theta).to(pictures.device), size))
    found = locate(encoded, pairs)["places"] * 2 - 1
    back = np.stack([((p - shift) @ np.linalg.inv(turn).T + 1) / 2 for p, (turn, shift) in zip(
        found, (maps[target] for target in pairs[:, 1]), strict=True)])  # fmt: skip
    error = errors_of(replace(objects, known=inside), pairs, back)
    return {"moved": shares_within(error, (0.1, 0.05, 0.02))}


def on_trilobites(encoded: Encoded) -> dict[str, Any]:
    """One reference by the network's head; five in closed form."""
    objects = encoded.objects
    random = np.random.default_rng(0)
    pairs = pairs_of_heads(objects, random)
    error = errors_of(objects, pairs, locate(encoded, pairs)["places"])
    row: dict[str, Any] = {"trilobite": shares_within(error, (0.1, 0.05, 0.02))}
    maps = unit_maps(encoded.maps, CLOSED_FORM)
    count = int(objects.known.any(0).sum())
    xy = encoded.xy[:, :count]
    known = torch.from_numpy(objects.known[:, :count]).to(xy.device)
    hits: dict[str, list[np.ndarray]] = {}
    for _ in range(DRAWS):
        references = random.choice(len(objects), REFERENCES, replace=False)
        index = torch.from_numpy(references).to(xy.device)
        queries = np.setdiff1d(np.arange(len(objects)), references)
        possible = objects.known[references, :count].any(0) & objects.known[queries, :count]
        for name, places in read_with_references(maps, xy, known, index).items():
            away = (places.cpu().numpy()[queries] - objects.xy[queries, :count]) * objects.size[queries][:, None]
            error = (np.linalg.norm(away, axis=-1) / objects.longer[queries][:, None])[possible]
            hits.setdefault(name, []).append(np.array([(error <= t).mean() for t in (0.05, 0.1)]))
    row["five"] = {name: np.mean(group, 0) for name, group in hits.items()}
    return row


def on_warped(network: Any, objects: Objects, pictures: Tensor, size: int) -> dict[str, Any]:
    """Random points of photographs in warped copies of them, within 3 and 1 px of 378."""
    random = np.random.default_rng(0)
    chosen = np.sort(random.permutation(len(objects))[:WARPED])
    xy = random.uniform(0.05, 0.95, (len(chosen), MOST_NAMES, 2))
    warps = [warp_points(points, np.ones(MOST_NAMES, bool), *affine(random, 0.3, False)) for points in xy]
    moved, inside, theta = (np.stack(part) for part in zip(*warps, strict=True))
    chosen_pictures = pictures[torch.from_numpy(chosen).to(pictures.device)]
    copies = render(chosen_pictures, torch.from_numpy(theta).to(pictures.device), size)
    images = torch.cat([plain(chosen_pictures, size), copies])
    both = Objects(
        np.arange(2 * len(chosen)), ["x/x"] * 2 * len(chosen), np.concatenate([xy, moved]).astype(np.float32),
        np.concatenate([np.ones_like(inside), inside]), np.full((2 * len(chosen), 2), 378, np.float32),
        np.ones(2 * len(chosen), np.float32), [],
    )  # fmt: skip
    pairs = np.arange(2 * len(chosen)).reshape(2, -1).T
    error = errors_of(both, pairs, locate(Encoded(network, both, images), pairs)["places"])
    return {"warped": shares_within(error, (3, 1))}


def cost(network: Any, size: int, device: torch.device) -> float:
    """Time of encoding a batch over that of the plain backbone; medians, turn about."""
    image = torch.rand(CHUNK if device.type == "cuda" else 2, 3, size, size, device=device)
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(8 if device.type == "cuda" else 3):
        for whole in (True, False):
            with torch.autocast(device.type, torch.bfloat16):
                _wait(device)
                begun = time.perf_counter()
                network(image) if whole else network.backbone(image)
                _wait(device)
                times[whole].append(time.perf_counter() - begun)
    return float(np.median(times[True]) / np.median(times[False]))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@torch.no_grad()
def measure(
    network: Any, roles: dict[str, Objects], items: list[dict], data: Path, device: torch.device, size: int
) -> dict[str, Any]:
    """All figures, in per cent."""
    begun = time.time()
    network.eval()
    row: dict[str, Any] = {}
    with torch.compiler.set_stance("force_eager"):
        held, heads = roles["held"], roles["trilobite"]
        pictures = read_pictures(data, items, held.images, 12).to(device)
        row |= on_benchmarks(Encoded(network, held, plain(pictures, size)))
        row |= on_warped(network, held, pictures, size)
        pictures = read_pictures(data, items, heads.images, 12).to(device)
        row |= on_trilobites(Encoded(network, heads, plain(pictures, size), CLOSED_FORM))
        row |= on_moved_heads(network, heads, pictures, size)
        row["cost"] = cost(network, size, device)
    row["measured in"] = round(time.time() - begun, 1)
    return {key: _rounded(key, value) for key, value in row.items()}


def _rounded(key: str, value: Any) -> Any:
    if key in ("by label", "pairs", "measured in"):
        return value
    if isinstance(value, dict):
        return {name: _rounded(key, part) for name, part in value.items()}
    if isinstance(value, list | np.ndarray):
        return [round(100 * float(x), 1) for x in value]
    return round(float(value), 3) if key in ("right", "ece", "visible", "cost") else round(100 * float(value), 1)


HEADER = (
    "| run | steps | rest @.1/.05/.01 | A | B | trilobite @.1/.05/.02 | moved | five: nearest, ridge, shape @.05/.1 "
    "| warped 3/1 px | match rest/A/B | visible | right | ece | cost |\n|" + "---|" * 14
)


def as_line(row: dict[str, Any]) -> str:
    """A row of the table."""

    def slashed(values: Iterable[float]) -> str:
        return " / ".join(f"{value:.1f}" for value in values)

    five = ", ".join(slashed(row["five"][name]) for name in ("nearest", "ridge", "shape"))
    shares = [slashed(row[key]) for key in ("rest", "A", "B", "trilobite", "moved")]
    match = slashed(row[f"match.{key}"] for key in ("rest", "A", "B"))
    certain = [f"{row[key]:.3f}" for key in ("visible", "right", "ece")]
    cells = [row["name"], row.get("steps", "-"), *shares, five, slashed(row["warped"]), match, *certain, row["cost"]]
    return "| " + " | ".join(map(str, cells)) + " |"


def print_row(row: dict[str, Any]) -> None:
    print(HEADER + "\n" + as_line(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--backbone", help="a safetensors file")
    parser.add_argument("--normmatch", help="a file or a bundled name")
    parser.add_argument("--read", default="5,8,11", help="blocks, counted from 1, of nearest neighbours")
    parser.add_argument("--position", action="store_true", help="answer with the source's place instead")
    parser.add_argument("--size", type=int, default=378)
    parser.add_argument("--name", default="")
    parser.add_argument("--out", type=Path, help="a folder for the row")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    roles, items = read_objects(args.data)
    if args.weights:
        network: Any = OneNetwork.load(args.weights)
        name = args.name or network.settings.name
    else:
        blocks = [int(number) - 1 for number in args.read.split(",")]
        reader = Position(blocks) if args.position else NearestNeighbour(blocks)
        matching = (
            NormMatch.from_pretrained(args.normmatch)
            if args.normmatch
            else OneNetwork(Settings(size=args.size), args.backbone).matching
        )
        network = Plain(matching, reader, trained=bool(args.normmatch))
        name = args.name or f"{args.normmatch or 'untrained'} {args.read}"
    row = {"name": name, **measure(network.to(device), roles, items, args.data, device, args.size)}
    print_row(row)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{name.replace(' ', '-').replace(',', '-')}.json").write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
