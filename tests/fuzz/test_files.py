"""Damaged files of every kind that a user hands over end in what they hold or in one sentence."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from normmatch import NormMatch
from normmatch.annotations import read
from normmatch.datasets import folder, prepared
from normmatch.io import read_image
from normmatch.matching import pair_list, run_folder
from normmatch.training import checkpoint
from tests.fuzz import values
from tests.fuzz.test_api import CASES, PARTS, SEED, Hunt
from tests.matching.scene import photograph, tiny_model

OURS = {
    "images": [
        {"image": "a.png", "class": "cat", "box": [1, 2, 30, 20], "keypoints": [{"name": "eye", "x": 3, "y": 4.5}]}
    ]
}
COCO = {
    "images": [{"id": 1, "file_name": "a.png", "width": 40, "height": 30}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "keypoints": [3, 4, 2, 0, 0, 0], "bbox": [1, 2, 9, 9]}],
    "categories": [{"id": 1, "name": "cat", "keypoints": ["eye", "nose"]}],
}
CSV = b"image,class,name,x,y\na.png,cat,eye,3,4\na.png,cat,nose,5,6\nb.png,cat,eye,3,4\nb.png,cat,nose,5,6\n"
FILES = {"ours.json": json.dumps(OURS).encode(), "coco.json": json.dumps(COCO).encode(), "points.csv": CSV}


@pytest.mark.parametrize("part", range(PARTS))
def test_keypoints_files(part: int, tmp_path: Path) -> None:
    hunt = Hunt()
    for case in range(part, CASES, PARTS):
        rng = np.random.default_rng((SEED, 5, case))
        name = values.pick(rng, list(FILES))
        path = tmp_path / name
        path.write_bytes(values.damaged(rng, FILES[name]))
        hunt(case, lambda path=path: read(path))  # type: ignore[misc]
    hunt.done()


@pytest.mark.parametrize("part", range(PARTS))
def test_odd_values_in_json(part: int, tmp_path: Path) -> None:
    """The file is JSON as it should be, a value in it is not."""
    odd = [
        None,
        True,
        -1,
        0,
        1e999,
        "",
        "x" * 500,
        [],
        {},
        [[]],
        {"row": 0.9},
        "1_0",
        "nan",
        10**30,
        [1, 2, 3],
        "\ud800",
        values.deep(900),
        [[1, 2], [3]],
        "$\\bad{$",
        float("nan"),
        2.5,
        "\u0661",
    ]
    hunt = Hunt()
    for case in range(part, CASES, PARTS):
        rng = np.random.default_rng((SEED, 6, case))
        content = json.loads(json.dumps(values.pick(rng, [OURS, COCO])))
        node = content
        while isinstance(node, dict | list) and node:
            key = rng.choice(list(node)) if isinstance(node, dict) else int(rng.integers(len(node)))
            child = node[key]
            if not isinstance(child, dict | list) or not child or rng.random() < 0.25:
                node[key] = values.pick(rng, odd)
                break
            node = child
        path = tmp_path / "a.json"
        path.write_text(json.dumps(content))
        hunt(case, lambda path=path: read(path))  # type: ignore[misc]
    hunt.done()


@pytest.mark.parametrize("part", range(PARTS))
def test_training_folders(part: int, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.fromarray(photograph(1)).save(tmp_path / name)
    hunt = Hunt()
    for case in range(part, CASES // 2, PARTS):
        rng = np.random.default_rng((SEED, 7, case))
        (tmp_path / "points.csv").write_bytes(values.damaged(rng, CSV))
        hunt(case, lambda: folder.load(tmp_path))
    hunt.done()


@pytest.mark.parametrize("part", range(PARTS))
def test_images(part: int, tmp_path: Path) -> None:
    hunt = Hunt()
    for case in range(part, CASES, PARTS):
        rng = np.random.default_rng((SEED, 8, case))
        kind = values.pick(rng, ["png", "jpg", "tif", "gif", "bmp", "webp", "ppm"])
        path = tmp_path / f"a.{kind}"
        Image.fromarray(values.good_image(rng)).save(path)
        path.write_bytes(values.damaged(rng, path.read_bytes()))
        hunt(case, lambda path=path: read_image(path))  # type: ignore[misc]
    hunt.done()


@pytest.mark.parametrize("part", range(PARTS))
def test_weights(part: int, tmp_path: Path) -> None:
    """Damaged bytes, and configs that ask for absurd sizes: refused at once, with little memory."""
    file = tiny_model().save_pretrained(tmp_path / "tiny.safetensors")
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    config = json.loads(header["__metadata__"]["config"])
    odd = [
        4e9,
        10**7,
        1e30,
        1e-300,
        -5,
        0,
        10**400,
        "x",
        None,
        [],
        {},
        True,
        0.5,
        float("inf"),
        float("nan"),
        [1, 2, 3],
        "../../x",
    ]
    hunt = Hunt()
    for case in range(part, max(PARTS, CASES // 4), PARTS):
        rng = np.random.default_rng((SEED, 9, case))
        path = tmp_path / "a.safetensors"
        if rng.random() < 0.4:
            path.write_bytes(values.damaged(rng, whole))
        else:
            changed = {**config, str(rng.choice([*config, "new"])): values.pick(rng, odd)}
            text = json.dumps({**header, "__metadata__": {"config": json.dumps(changed)}}).encode()
            path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
        hunt(case, lambda path=path: NormMatch.from_pretrained(path))  # type: ignore[misc]
    hunt.done()
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors", "tiny.safetensors"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program itself writes, small: a prepared cache, results of a list, a checkpoint, a log."""
    root = tmp_path_factory.mktemp("written")
    for name in ("a.png", "b.png"):
        Image.fromarray(photograph(1)).save(root / name)
    (root / "points.csv").write_bytes(CSV)
    prepared.prepare(folder.load(root), root / "cache", 16, progress=False)
    (root / "results.jsonl").write_text("".join(f'{{"row": {row}, "matches": []}}\n' for row in range(3)))
    (root / "run.json").write_text('{"weights": "abc", "min_score": null}')
    (root / "pairs.csv").write_text("image0,image1\na.png,b.png\n")
    checkpoint.save(root / "step-1.safetensors", {"step": 1, "model": {"x": torch.zeros(3)}}, 1)
    return root


@pytest.mark.parametrize("part", range(PARTS))
def test_what_the_program_wrote(part: int, written: Path, tmp_path: Path) -> None:
    readers = {
        "cache/manifest.json": lambda root: list(prepared.load_prepared(root / "cache")),
        "cache/objects.json": lambda root: list(prepared.load_prepared(root / "cache")),
        "cache/images.npy": lambda root: list(prepared.load_prepared(root / "cache")),
        "results.jsonl": lambda root: run_folder.read_done(root / "results.jsonl", 3),
        "run.json": lambda root: run_folder.check_run(root, {"weights": "abc"}),
        "pairs.csv": lambda root: pair_list._tasks(root / "pairs.csv", root / "points.csv"),
        "step-1.safetensors": lambda root: checkpoint.load(root / "step-1.safetensors"),
    }
    hunt = Hunt()
    for case in range(part, CASES // 2, PARTS):
        rng = np.random.default_rng((SEED, 13, case))
        name = values.pick(rng, list(readers))
        root = tmp_path / str(case)
        shutil.copytree(written, root)
        (root / name).write_bytes(values.damaged(rng, (root / name).read_bytes()))
        hunt(case, lambda root=root, name=name: readers[name](root))  # type: ignore[misc]
        shutil.rmtree(root)
    hunt.done()
