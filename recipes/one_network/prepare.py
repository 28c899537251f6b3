"""From the unpacked archives to what trainings and the measure read: small JPEGs in shards, and one list of objects.

    python prepare.py --voc DIR --spair DIR --trilobites DIR --spair-test-images FILE --out DIR

DIR/objects.json lists every object: where its JPEG lies in the shards, its kind, its named points as shares of the
picture, the picture's size before it was made small, the longer side of its box, and its role:

    train      may be trained on
    held       is measured on; no photograph of it is in `train`, whatever the dataset and the object
    trilobite  measured on, never trained on

No photograph of SPair-71k's or PascalVOC's test split is in any role. Photographs are told apart by their names,
which both datasets have from PascalVOC.
"""

import argparse
import hashlib
import io
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from normmatch.annotations import Annotation
from normmatch.datasets import pascal_voc, spair
from settings import FOLDS

LONGEST = 420  # pixels of the longer side: enough for trainings at 378
SHARD = 15 << 20  # bytes
VOC_MARGIN = 0.04  # of the box, on each side
TRILOBITE_MARGIN = 0.15
HELD = {"spair": (6, 10), "voc": (10, 20)}  # objects a kind; the second for the kinds of the folds

Crop = tuple[float, float, float, float]  # left, top, right, bottom


def with_margin(box: Crop, margin: float, size: tuple[int, int]) -> Crop:
    """A box grown on each side by a share of its sides, and clipped to the picture."""
    left, top, right, bottom = box
    x, y = margin * (right - left), margin * (bottom - top)
    return max(0.0, left - x), max(0.0, top - y), min(float(size[0]), right + x), min(float(size[1]), bottom + y)


def encode(image: Image.Image, crop: Crop, quality: int = 82) -> bytes:
    """The crop as a JPEG whose longer side is at most LONGEST."""
    width, height = crop[2] - crop[0], crop[3] - crop[1]
    scale = min(1.0, LONGEST / max(width, height))
    size = max(8, round(width * scale)), max(8, round(height * scale))
    stream = io.BytesIO()
    image.resize(size, Image.Resampling.BICUBIC, box=crop).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def record(
    dataset: str, kind: str, photograph: str, points: dict[str, tuple[float, float]], crop: Crop, longer: float
) -> dict[str, Any]:
    """An object as objects.json has it, without its place in the shards."""
    left, top, right, bottom = crop
    width, height = right - left, bottom - top
    return {
        "dataset": dataset,
        "kind": kind,
        "photograph": photograph,
        "points": {
            name: [round((x - left) / width, 5), round((y - top) / height, 5)] for name, (x, y) in points.items()
        },
        "size": [round(width, 2), round(height, 2)],
        "longer": longer,
    }


def from_benchmark(dataset: str, item: Annotation, longer: float) -> tuple[dict[str, Any], bytes]:
    """An object of SPair-71k (the whole photograph) or of PascalVOC (its box with a margin)."""
    with Image.open(item.image) as file:
        image = file.convert("RGB")
    crop: Crop = (0.0, 0.0, float(image.width), float(image.height))
    if item.box is not None:
        x, y, width, height = item.box
        crop = with_margin((x, y, x + width, y + height), VOC_MARGIN, image.size)
    points = {name: (float(x), float(y)) for name, (x, y) in zip(item.names, item.keypoints, strict=True)}
    return record(dataset, item.label, item.path.stem, points, crop, longer), encode(image, crop)


def spair_longer(item: Annotation) -> float:
    """The longer side of the object's box, by which PCK is measured."""
    file = item.path.parents[2] / "ImageAnnotation" / item.label / f"{item.path.stem}.json"
    left, top, right, bottom = json.loads(file.read_bytes())["bndbox"]
    return float(max(right - left, bottom - top))


def trilobites(root: Path) -> list[tuple[dict[str, Any], bytes]]:
    """All heads, cut out around their landmarks."""
    data = json.loads((root / "landmarks.json").read_text())
    names = data["categories"][0]["keypoints"]
    files = {image["id"]: image["file_name"] for image in data["images"]}
    found = []
    for annotation in data["annotations"]:
        xyv = np.array(annotation["keypoints"], float).reshape(-1, 3)
        points = {name: (x, y) for name, (x, y, v) in zip(names, xyv, strict=True) if v > 0}
        low, high = xyv[xyv[:, 2] > 0, :2].min(0), xyv[xyv[:, 2] > 0, :2].max(0)
        name = files[annotation["image_id"]]
        with Image.open(root / name if (root / name).is_file() else root / "images" / name) as file:
            image = file.convert("RGB")
        crop = with_margin((*low, *high), TRILOBITE_MARGIN, image.size)
        item = record("trilomorph", "trilobite", Path(name).stem, points, crop, float((high - low).max()))
        found.append((item | {"role": "trilobite"}, encode(image, crop)))
    return found


def held_photographs(items: Sequence[dict[str, Any]], seed: int) -> set[str]:
    """Photographs to measure on: as many objects of each dataset and kind as HELD says, rare kinds first."""
    groups = defaultdict(list)
    for item in items:
        groups[item["dataset"], item["kind"]].append(item["photograph"])
    random, held = np.random.default_rng(seed), set[str]()
    for (dataset, kind), photographs in sorted(groups.items(), key=lambda group: (len(group[1]), group[0])):
        wanted = min(HELD[dataset][kind in FOLDS["AB"]], len(photographs) // 3)
        for i in random.permutation(len(photographs)):
            if sum(photograph in held for photograph in photographs) >= wanted:
                break
            held.add(photographs[i])
    return held


def write(out: Path, found: Sequence[tuple[dict[str, Any], bytes]]) -> None:
    """Shards, each of about SHARD bytes, and the list that says what lies where."""
    out.mkdir(parents=True, exist_ok=True)
    shard, stream, items = 0, io.BytesIO(), []
    for item, jpeg in found:
        if stream.tell() + len(jpeg) > SHARD:
            (out / f"shard{shard}.bin").write_bytes(stream.getvalue())
            shard, stream = shard + 1, io.BytesIO()
        items.append(item | {"shard": shard, "start": stream.tell(), "bytes": len(jpeg)})
        stream.write(jpeg)
    (out / f"shard{shard}.bin").write_bytes(stream.getvalue())
    text = json.dumps(items, separators=(",", ":"))
    (out / "objects.json").write_text(text)
    print(f"{len(items)} objects, {shard + 1} shards; objects.json {hashlib.sha256(text.encode()).hexdigest()[:16]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("voc", "spair", "trilobites", "spair-test-images", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of held-out photographs")
    args = parser.parse_args()

    voc = pascal_voc.load(args.voc, val_share=0).splits
    barred = set(args.spair_test_images.read_text().split()) | {item.path.stem for item in voc["test"].objects}
    sources = [("spair", item, spair_longer(item)) for item in spair.load(args.spair).splits["train"].objects]
    sources += [("voc", item, max(item.box[2:])) for item in voc["train"].objects if item.box and len(item.names) > 1]
    clean = [source for source in sources if source[1].path.stem not in barred]
    found = [from_benchmark(*source) for source in clean]
    held = held_photographs([item for item, _ in found], args.seed)
    for item, _ in found:
        item["role"] = "held" if item["photograph"] in held else "train"
    found = sorted(found, key=lambda pair: pair[0]["role"] == "train") + trilobites(args.trilobites)
    print(f"left out {len(sources) - len(clean)} objects in photographs of the test splits")
    print(Counter((item["role"], item["dataset"]) for item, _ in found))
    write(args.out, found)


if __name__ == "__main__":
    main()
