"""Small datasets made by code, each in its official layout on disk. Several test files build on them."""

import json
from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
VOC_NAMES = ("L_Eye", "R_Eye", "Nose", "L_Paw", "R_Paw")


def make_image(path: Path, size: tuple[int, int] = (80, 60), seed: int = 0) -> None:
    """Smooth coloured noise of (width, height), written in the format that the ending names."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)


def voc_xml(objects: list[dict[str, int | str]]) -> str:
    """VOC's own annotation: each object is {"name": class, "difficult": 0, ...}."""
    parts = ["".join(f"<{tag}>{value}</{tag}>" for tag, value in obj.items()) for obj in objects]
    return f"<annotation>{''.join(f'<object>{part}</object>' for part in parts)}</annotation>"


def keypoint_xml(label: str, box: tuple[float, ...], keypoints: list[tuple[str, float, float]]) -> str:
    """Berkeley's annotation of one object."""
    xmin, ymin, width, height = box
    points = "".join(f'<keypoint name="{n}" visible="1" x="{x}" y="{y}" z="0.00"/>' for n, x, y in keypoints)
    bounds = f'<visible_bounds height="{height}" width="{width}" xmin="{xmin}" ymin="{ymin}"/>'
    return f"<annotation><category>{label}</category>{bounds}<keypoints>{points}</keypoints></annotation>"


def write_voc_split(path: Path, train: dict[str, list[str]], test: dict[str, list[str]]) -> None:
    """The split file: object arrays of 20 lists of names, as numpy pickles them."""
    arrays = {}
    for key, names in (("train", train), ("test", test)):
        arrays[key] = np.empty(20, dtype=object)
        for index, label in enumerate(VOC_CLASSES):
            arrays[key][index] = names.get(label, [])
    np.savez(path, **arrays)


def make_voc(
    root: Path, classes: tuple[str, ...] = ("bird", "cat"), train_images: int = 10, test_images: int = 4
) -> None:
    """PascalVOC keypoints: two good objects of one class an image, the second with its last point outside the crop."""
    voc = root / "TrainVal" / "VOCdevkit" / "VOC2011"
    (voc / "Annotations").mkdir(parents=True)
    names: dict[str, dict[str, list[str]]] = {"train": {}, "test": {}}
    rng = np.random.default_rng(0)
    number = 0
    for label in classes:
        (root / "annotations" / label).mkdir(parents=True)
        for index in range(train_images + test_images):
            number += 1
            image = f"2008_{number:06d}"
            make_image(voc / "JPEGImages" / f"{image}.jpg", seed=number)
            flags = {"name": label, "truncated": 0, "occluded": 0, "difficult": 0}
            (voc / "Annotations" / f"{image}.xml").write_text(voc_xml([flags, flags]), encoding="utf-8")
            for order, box in ((1, (3, 4, 30, 40)), (2, (40, 10, 36, 44))):
                points = rng.uniform(0.05, 0.95, (len(VOC_NAMES), 2)) * box[2:] + box[:2]  # (5, 2)
                if order == 2:
                    points[-1] = box[0] - 2, box[1] + 5
                named = [(name, float(x), float(y)) for name, (x, y) in zip(VOC_NAMES, points, strict=True)]
                entry = f"{label}/{image}_{order}.xml"
                (root / "annotations" / entry).write_text(keypoint_xml(label, box, named), encoding="utf-8")
                names["train" if index < train_images else "test"].setdefault(label, []).append(entry)
    write_voc_split(root / "voc2011_pairs.npz", names["train"], names["test"])


def make_spair(root: Path, classes: tuple[str, ...] = ("cat", "dog"), separator: str = ":") -> None:
    """SPair-71k: four images a class and all their ordered pairs in each of trn, val and test, with labels."""
    top = root / "SPair-71k"
    rng = np.random.default_rng(0)
    annotations = {}
    for label in classes:
        for index in range(4):
            image = f"2009_{len(annotations):06d}"
            make_image(top / "JPEGImages" / label / f"{image}.jpg", seed=len(annotations))
            points = rng.integers(10, 50, (6, 2)).tolist()
            kps = {str(i): (None if i == index else points[i]) for i in range(6)}  # image i lacks keypoint i
            annotation = {"filename": f"{image}.jpg", "category": label, "kps": kps, "bndbox": [6, 5, 64, 56]}
            annotations[label, image] = annotation
            path = top / "ImageAnnotation" / label / f"{image}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(annotation), encoding="utf-8")
    for split in ("trn", "val", "test"):
        pairs = [(label, a, b) for label, a in annotations for other, b in annotations if label == other and a != b]
        lines = [_spair_pair(top, split, i, pair, annotations, separator) for i, pair in enumerate(pairs)]
        for size, chosen in (("large", lines), ("small", lines[: len(lines) // 2])):
            layout = top / "Layout" / size / f"{split}.txt"
            layout.parent.mkdir(parents=True, exist_ok=True)
            layout.write_text("\n".join(chosen) + "\n", encoding="utf-8")


def _spair_pair(
    top: Path, split: str, index: int, pair: tuple[str, str, str], annotations: dict, separator: str
) -> str:
    """Write one PairAnnotation and give its name as Layout lists it."""
    label, image0, image1 = pair
    kps0, kps1 = annotations[label, image0]["kps"], annotations[label, image1]["kps"]
    shared = [i for i in kps0 if kps0[i] and kps1[i]]
    name = f"{index + 1:06d}-{image0}-{image1}"
    annotation = {
        "filename": f"{name}:{label}",
        "src_imname": f"{image0}.jpg",
        "trg_imname": f"{image1}.jpg",
        "category": label,
        "src_kps": [kps0[i] for i in shared],
        "trg_kps": [kps1[i] for i in shared],
        "kps_ids": shared,
        "viewpoint_variation": index % 3,
        "scale_variation": index % 2,
        "truncation": 0,
        "occlusion": index % 4,
    }
    path = top / "PairAnnotation" / split / f"{name}{separator}{label}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(annotation), encoding="utf-8")
    return f"{name}:{label}"


def make_willow(root: Path, classes: tuple[str, ...] = ("Car", "Duck"), images: int = 24) -> None:
    """WILLOW-ObjectClass: ten keypoints an image in a .mat beside it."""
    rng = np.random.default_rng(0)
    for label in classes:
        for index in range(images):
            path = root / "WILLOW-ObjectClass" / label / f"{label.lower()}_{index:04d}.png"
            make_image(path, seed=index)
            scipy.io.savemat(path.with_suffix(".mat"), {"pts_coord": rng.uniform(5, 55, (2, 10))})


def make_hpatches(root: Path, ending: str = ".ppm", size: tuple[int, int] = (80, 60)) -> None:
    """HPatches: one viewpoint sequence that shifts right by 20 pixels an image, one illumination sequence."""
    for sequence, step in (("v_shift", 20.0), ("i_still", 0.0)):
        folder = root / "hpatches-sequences-release" / sequence
        for number in range(1, 7):
            make_image(folder / f"{number}{ending}", size, seed=0)
            if number > 1:
                homography = np.array([[1.0, 0.0, step * (number - 1)], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
                np.savetxt(folder / f"H_1_{number}", homography)


def make_photos(folder: Path, images: int = 6) -> None:
    """A plain folder of pictures, some of them in a folder below."""
    for index in range(images):
        below = "more" if index % 3 == 2 else "."
        make_image(folder / below / f"photo_{index}.{'png' if index % 2 else 'jpg'}", (80, 60), seed=index)
