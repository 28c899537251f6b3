"""The figures of the issue's table: matching and locating on whole test splits, for sizes side by side.

    python measure.py --weights RUN [--spair DIR] [--voc DIR] [--trilobites DIR] [--sizes 378 518] --out FILE

SPair-71k: all listed test pairs, whole photographs (`nmt`); PascalVOC: 1,000 pairs a class (`nmt`, seed 0); matching by
row arg-max after Sinkhorn, mean of classes. Locating on SPair-71k: PCK by image (mean of pairs) and by point (mean of
classes), unit the longer side of the target's box; calibration and AUCs of its probabilities.
"""

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import train
from normmatch.annotations import Annotation
from normmatch.datasets import pascal_voc, spair
from normmatch.datasets.batches import collate
from normmatch.datasets.crops import read_crop
from normmatch.datasets.pairs import PairList, sample_pair_list
from normmatch.datasets.types import PreparedSplit
from normmatch.geometry import crop_keypoints, resize_crop
from normmatch.model.backbone import Features
from normmatch.model.locate import decode, describe
from normmatch.model.network import NormMatch

CHUNK = 64


def prepared(objects: tuple[Annotation, ...], size: int, pairs: np.ndarray | None, pool) -> PreparedSplit:
    """As `normmatch data prepare` makes it."""

    def one(item: Annotation):
        image, crop = read_crop(item)
        points = crop_keypoints(np.asarray(item.keypoints, np.float32), crop, (size, size)).astype(np.float32)
        return np.asarray(resize_crop(image, crop, (size, size))), points, crop

    images, made, sizes = np.empty((len(objects), size, size, 3), np.uint8), [], []
    for k, (image, points, crop) in enumerate(pool.map(one, objects)):
        images[k] = image
        made.append(Annotation(objects[k].image, objects[k].names, points, label=objects[k].label))
        sizes.append((crop[2], crop[3]))
    return PreparedSplit(images, tuple(made), pairs, np.array(sizes))


@torch.inference_mode()
def encode(model: NormMatch, split: PreparedSplit, device: torch.device) -> tuple[Features, torch.Tensor | None]:
    parts, dense = [], []
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        for start in range(0, len(split.images), CHUNK):
            image = torch.from_numpy(split.images[start : start + CHUNK]).permute(0, 3, 1, 2).to(device).float() / 255
            parts.append(model.backbone(image))
            if model.locating is not None:
                dense.append(model.locate_maps(parts[-1]))
    maps = tuple(torch.cat([p.maps[k] for p in parts]) for k in (0, 1))
    return Features(maps, torch.cat([p.pooled for p in parts]), parts[0].size), torch.cat(dense) if dense else None


class Chunks(torch.utils.data.Dataset):
    """Batches of pairs, collated by processes of their own."""

    def __init__(self, split: PreparedSplit, pairs: PairList, sampling: str = "intersection") -> None:
        self.split, self.pairs, self.sampling = split, pairs, sampling

    def __len__(self) -> int:
        return -(-len(self.pairs) // CHUNK)

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        torch.set_num_threads(1)
        return collate(
            [
                self.pairs.pair(self.split, i, self.sampling)
                for i in range(k * CHUNK, min((k + 1) * CHUNK, len(self.pairs)))
            ],
            32,
        )


@torch.inference_mode()
def match(
    model: NormMatch,
    features: Features,
    split: PreparedSplit,
    pairs: PairList,
    device: torch.device,
    raw: dict | None = None,
) -> dict:
    """Right and all by class, of the points that both show; with `raw`, of all points, whose scores it gets."""
    labels = np.array([split.objects[i].label for i in pairs.pairs[:, 0]])
    right, total, scores, hits = np.zeros(len(pairs)), np.zeros(len(pairs)), [], []
    workers = min(14, (os.cpu_count() or 1) - 2)
    loader = torch.utils.data.DataLoader(
        Chunks(split, pairs, "intersection" if raw is None else "all"), batch_size=None, num_workers=max(0, workers)
    )
    for number, batch in enumerate(loader):
        chosen = range(number * CHUNK, number * CHUNK + len(batch["index0"]))
        batch = {k: v.to(device) for k, v in batch.items()}
        sides = [
            Features(
                tuple(m[batch[f"index{i}"]] for m in features.maps), features.pooled[batch[f"index{i}"]], features.size
            )
            for i in "01"
        ]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            out = model.head(*sides, batch)
        best = out["log_assignment"].float().argmax(2)
        known = batch["gt_matches0"] >= 0
        hit = (best == batch["gt_matches0"]) & known
        right[list(chosen)], total[list(chosen)] = hit.sum(1).cpu(), known.sum(1).cpu()
        score = out["log_assignment"].float().exp().clamp(0, 1) * out["similarity"].clamp(0, 1)
        scores.append(score.gather(2, best.unsqueeze(2)).squeeze(2)[known].cpu().numpy())
        hits.append(hit[known].cpu().numpy())
        if raw is not None:
            shown = batch["mask0"]
            found = score.gather(2, best.unsqueeze(2)).squeeze(2)
            for key, value in (("match_score", found), ("match_right", hit), ("match_known", known)):
                raw.setdefault(key, []).append(value[shown].float().cpu().numpy())
    by_class = {c: round(100 * right[labels == c].sum() / total[labels == c].sum(), 2) for c in sorted(set(labels))}
    score, hit = np.concatenate(scores), np.concatenate(hits)
    return {
        "mean": round(float(np.mean(list(by_class.values()))), 2),
        "by class": by_class,
        "ece": round(ece(score, hit), 4),
        "auc": round(auc(score, hit), 4),
    }


@torch.inference_mode()
def locate(
    model: NormMatch,
    dense: torch.Tensor,
    split: PreparedSplit,
    pairs: np.ndarray,
    longer: np.ndarray,
    device: torch.device,
    thresholds: tuple[float, ...],
    raw: dict | None = None,
) -> dict:
    size, (h, w) = split.images.shape[1], dense.shape[-2:]
    columns = {}
    for item in split.objects:
        columns.setdefault(item.label, set()).update(item.names)
    columns = {label: {n: v for v, n in enumerate(sorted(names))} for label, names in columns.items()}
    most = max(map(len, columns.values()))
    xy, known = np.zeros((len(split.objects), most, 2), np.float32), np.zeros((len(split.objects), most), bool)
    for k, item in enumerate(split.objects):
        place = [columns[item.label][n] for n in item.names]
        xy[k, place], known[k, place] = item.keypoints, True
    places = torch.from_numpy(xy).to(device)
    found, mass, absent = (np.zeros((len(pairs), most, d)) for d in (2, 1, 1))
    for start in range(0, len(pairs), CHUNK):
        one, two = torch.from_numpy(pairs[start : start + CHUNK]).to(device).unbind(1)
        queries = describe(dense[one], places[one], (size, size))
        answer = decode(model.locating.log_probabilities(queries, dense[two]), (h, w), (size, size))
        stop = start + len(one)
        found[start:stop] = answer.points.cpu()
        mass[start:stop, :, 0], absent[start:stop, :, 0] = answer.scores.cpu(), answer.absent.cpu()
    mass, absent = mass[..., 0], absent[..., 0]
    one, two = pairs.T
    both, asked = known[one] & known[two], known[one]
    away = (found - xy[two]) / size * split.crop_sizes()[two][:, None]
    error = np.where(both, np.linalg.norm(away, axis=-1) / longer[two][:, None], np.inf)
    labels = np.array([split.objects[i].label for i in one])
    usable = both.any(1)
    image = [round(100 * float(((error <= t).sum(1)[usable] / both.sum(1)[usable]).mean()), 2) for t in thresholds]
    point = [
        round(
            100
            * float(np.mean([(error[labels == c] <= t).sum() / both[labels == c].sum() for c in sorted(set(labels))])),
            2,
        )
        for t in thresholds
    ]
    hit = error[both] <= 0.1
    if raw is not None:
        raw |= {
            "locate_score": [mass[asked]],
            "locate_absent": [absent[asked]],
            "locate_both": [both[asked]],
            "locate_error": [np.where(both, error, np.inf)[asked]],
        }
    return {
        "thresholds": thresholds,
        "by image": image,
        "by point": point,
        "by class @0.1": {
            c: round(100 * float((error[labels == c] <= 0.1).sum() / both[labels == c].sum()), 1)
            for c in sorted(set(labels))
        },
        "right auc": round(auc(mass[both], hit), 4),
        "ece": round(ece(mass[both], hit), 4),
        "visible auc": round(auc(1 - absent[asked], both[asked]), 4),
    }


def auc(score: np.ndarray, right: np.ndarray) -> float:
    order = score.argsort(kind="stable").argsort() + 1.0
    n = right.sum()
    return float((order[right].sum() - n * (n + 1) / 2) / max(1, n * (len(right) - n)))


def ece(score: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    place = np.minimum((score * bins).astype(int), bins - 1)
    return float(
        sum(abs(score[place == b].mean() - right[place == b].mean()) * (place == b).mean() for b in set(place))
    )


def spair_boxes(objects: tuple[Annotation, ...]) -> np.ndarray:
    longer = []
    for item in objects:
        file = item.path.parents[2] / "ImageAnnotation" / item.label / f"{item.path.stem}.json"
        left, top, right, bottom = json.loads(file.read_bytes())["bndbox"]
        longer.append(max(right - left, bottom - top))
    return np.array(longer, float)


def trilobites(root: Path) -> tuple[tuple[Annotation, ...], np.ndarray]:
    data = json.loads((root / "landmarks.json").read_text())
    files = {image["id"]: image["file_name"] for image in data["images"]}
    names, found, longer = data["categories"][0]["keypoints"], [], []
    for a in data["annotations"]:
        xyv = np.array(a["keypoints"], float).reshape(-1, 3)
        seen = xyv[:, 2] > 0
        low, high = xyv[seen, :2].min(0), xyv[seen, :2].max(0)
        side = high - low
        name = files[a["image_id"]]
        path = root / name if (root / name).is_file() else root / "images" / name
        box = (*(low - 0.15 * side), *(1.3 * side))
        kept = tuple(n for n, s in zip(names, seen, strict=True) if s)
        found.append(Annotation(str(path), kept, xyv[seen, :2], tuple(map(float, box)), "trilobite"))
        longer.append(side.max())
    return tuple(found), np.array(longer)


def held_out(model: NormMatch, args: argparse.Namespace, device: torch.device, result: dict) -> None:
    """The held-out training objects: figures, and the scores of all points in calibration.npz."""
    split = train.read_split(args.shards, {"held"}, stored=378)
    items = [i for i in json.loads((args.shards / "objects.json").read_text()) if i["role"] == "held"]
    longer = np.array([i["longer"] for i in items])
    features, dense = encode(model, split, device)
    pairs = sample_pair_list(split, "held", 100, 0, strict=False)
    raw: dict = {}
    row = {"match": match(model, features, split, pairs, device)}
    row["match, all points"] = match(model, features, split, pairs, device, raw)
    if dense is not None:
        row["locate"] = locate(model, dense, split, pairs.pairs, longer, device, (0.1, 0.05, 0.02, 0.01), raw)
    np.savez_compressed(args.out.parent / "calibration.npz", **{k: np.concatenate(v) for k, v in raw.items()})
    result["held 378"] = row
    print("held", json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True)
    for name in ("spair", "voc", "trilobites"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[378, 518])
    parser.add_argument("--per-class", type=int, default=1000, help="pairs of PascalVOC")
    parser.add_argument("--images", type=int, default=0, help="of a class of SPair-71k; all if 0")
    parser.add_argument("--pairs", type=int, default=0, help="of SPair-71k, evenly taken; all if 0")
    parser.add_argument("--shards", type=Path, help="of prepare.py: the held-out objects, for calibration")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = NormMatch.from_pretrained(args.weights).to(device)
    result: dict = {"weights": str(args.weights)}
    sources = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if args.spair:
            split = spair.load(args.spair).splits["test"]
            pairs = split.pairs[:: max(1, len(split.pairs) // args.pairs)] if args.pairs else split.pairs
            if args.images:
                seen, kept = {}, []
                for k, item in enumerate(split.objects):
                    if seen.setdefault(item.label, 0) < args.images:
                        seen[item.label] += 1
                        kept.append(k)
                place = {k: n for n, k in enumerate(kept)}
                pairs = np.array([[place[i], place[j]] for i, j in split.pairs.tolist() if i in place and j in place])
                split = type(split)(tuple(split.objects[k] for k in kept), pairs)
                print(len(kept), "images", len(pairs), "pairs", flush=True)
            sources["spair"] = split.objects, pairs, spair_boxes(split.objects)
        if args.voc:
            sources["voc"] = pascal_voc.load(args.voc, val_share=0).splits["test"].objects, None, None
        if args.trilobites:
            objects, longer = trilobites(args.trilobites)
            drawn = np.random.default_rng(0).integers(len(objects), size=(400, 2))
            sources["trilobites"] = objects, drawn[drawn[:, 0] != drawn[:, 1]][:300], longer
    if args.shards:
        held_out(model, args, device, result)
    with ThreadPoolExecutor(16) as pool:
        for size in args.sizes:
            for name, (objects, pairs, longer) in sources.items():
                begun, row = time.time(), {}
                split = prepared(objects, size, pairs, pool)
                features, dense = encode(model, split, device)
                if name != "trilobites":
                    row["match"] = match(
                        model, features, split, sample_pair_list(split, name, args.per_class, 0), device
                    )
                if dense is not None and longer is not None:
                    thresholds = (0.1, 0.05, 0.02, 0.01)
                    row["locate"] = locate(model, dense, split, pairs, longer, device, thresholds)
                row["seconds"] = round(time.time() - begun)
                result[f"{name} {size}"] = row
                print(name, size, json.dumps(row), flush=True)
                args.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
