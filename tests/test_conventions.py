"""The promises of the design, each kept by the whole, and the shape of the code: its layers and sizes."""

import ast
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import normmatch
from normmatch import PRESETS, NormMatch
from normmatch.config import AugmentConfig, LossConfig
from normmatch.datasets.batches import collate
from normmatch.datasets.types import KeypointPair
from normmatch.geometry import crop_keypoints, resize_crop
from normmatch.model.sampling import sample
from normmatch.model.transformer import NormalizedLayer, UnitLinear
from normmatch.training.augmentation import draw_params, fit_params, render
from normmatch.training.losses import MatchingLoss
from tests.command_line import run

SOURCE = Path(normmatch.__file__).parent
SIZE = 64


@pytest.fixture(scope="module")
def model() -> NormMatch:
    torch.manual_seed(0)
    model = NormMatch(replace(PRESETS["tiny"], image_size=SIZE)).eval()
    for name, parameter in model.named_parameters():
        if "alpha" in name:
            parameter.data.mul_(8)  # large steps: what should not be seen would show
    return model


def make_pairs(counts: list[tuple[int, int]], seed: int = 0) -> tuple[list[KeypointPair], Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    pairs = []
    for m, n in counts:
        keypoints = [rng.uniform(0, SIZE, (k, 2)).astype(np.float32) for k in (m, n)]
        names = [tuple(map(str, range(k))) for k in (m, n)]
        pairs.append(KeypointPair(0, 0, "cat", *names, *keypoints, np.arange(m)))
    images = torch.from_numpy(rng.random((2, len(counts), 3, SIZE, SIZE), dtype=np.float32))
    return pairs, images[0], images[1]


def make_batch(
    pairs: list[KeypointPair], image0: Tensor, image1: Tensor, points: int | None = None
) -> dict[str, Tensor]:
    return {**collate(pairs, points), "image0": image0, "image1": image1}


# ------------------------------------------------------------------------------------------------------------ promise 1


def test_promise_1_a_pair_alone_equals_the_pair_in_a_collated_batch(model: NormMatch) -> None:
    counts = [(3, 5), (7, 7), (1, 2), (9, 4)]
    pairs, images0, images1 = make_pairs(counts)
    with torch.no_grad():
        for fill in (None, 24):  # a multiple of 8, or as many as asked for
            together = model(make_batch(pairs, images0, images1, fill))
            for b, (m, n) in enumerate(counts):
                keypoints0, keypoints1 = (torch.from_numpy(k)[None] for k in (pairs[b].keypoints0, pairs[b].keypoints1))
                images = {"image0": images0[b : b + 1], "image1": images1[b : b + 1]}
                alone = model({**images, "keypoints0": keypoints0, "keypoints1": keypoints1})
                for key in ("similarity", "log_assignment"):
                    atol = 1e-5 if key == "similarity" else 5e-4
                    torch.testing.assert_close(together[key][b, :m, :n], alone[key][0], atol=atol, rtol=0)
                torch.testing.assert_close(together["descriptors0"][b, :m], alone["descriptors0"][0], atol=1e-5, rtol=0)
                assert torch.equal(together["matches0"][b, :m], alone["matches0"][0])
                assert (together["matches0"][b, m:] == -1).all()


def test_promise_1_the_loss_does_not_depend_on_padding(model: NormMatch) -> None:
    pairs, images0, images1 = make_pairs([(5, 5), (3, 3)])
    losses = []
    for points in (8, 16):
        batch = make_batch(pairs, images0, images1, points)
        losses.append(MatchingLoss(LossConfig())(model.describe(batch), batch))
    for key, value in losses[0].items():
        torch.testing.assert_close(losses[1][key], value, atol=1e-5, rtol=0)


# ------------------------------------------------------------------------------------------------------------ promise 2


def test_promise_2_permuting_keypoints_permutes_the_answer(model: NormMatch) -> None:
    pairs, image0, image1 = make_pairs([(9, 7)])
    order0, order1 = np.random.default_rng(1).permutation(9), np.random.default_rng(2).permutation(7)
    keypoints0, keypoints1 = (torch.from_numpy(k)[None] for k in (pairs[0].keypoints0, pairs[0].keypoints1))
    data = {"image0": image0, "image1": image1, "keypoints0": keypoints0, "keypoints1": keypoints1}
    with torch.no_grad():
        straight = model(data)
        shuffled = model({**data, "keypoints0": keypoints0[:, order0], "keypoints1": keypoints1[:, order1]})
    expected = straight["log_assignment"][:, order0][:, :, order1]
    torch.testing.assert_close(shuffled["log_assignment"], expected, atol=5e-4, rtol=0)
    back = torch.from_numpy(order1)[shuffled["matches0"][0]]
    assert torch.equal(back, straight["matches0"][0][order0])


def test_promise_2_pairs_are_shown_shuffled_on_both_sides() -> None:
    from normmatch.datasets.types import pair_points

    names = tuple("abcdefgh")
    points = np.arange(16, dtype=np.float32).reshape(8, 2)
    rng = np.random.default_rng(0)
    pair = pair_points((0, 1), "cat", names, points, names, points, rng, "intersection")
    assert pair.names0 != names
    assert pair.names1 != names
    assert pair.names0 != pair.names1
    np.testing.assert_array_equal(pair.keypoints1[pair.gt_matches0], pair.keypoints0)


# ------------------------------------------------------------------------------------------------------------ promise 3


def test_promise_3_match_a_b_is_the_transpose_of_match_b_a(model: NormMatch) -> None:
    pairs, image0, image1 = make_pairs([(9, 6)])
    keypoints0, keypoints1 = (torch.from_numpy(k)[None] for k in (pairs[0].keypoints0, pairs[0].keypoints1))
    with torch.no_grad():
        there = model({"image0": image0, "image1": image1, "keypoints0": keypoints0, "keypoints1": keypoints1})
        back = model({"image0": image1, "image1": image0, "keypoints0": keypoints1, "keypoints1": keypoints0})
    torch.testing.assert_close(back["similarity"].mT, there["similarity"], atol=1e-5, rtol=0)
    torch.testing.assert_close(back["log_assignment"].mT, there["log_assignment"], atol=5e-4, rtol=0)
    for i, j in ("01", "10"):
        assert torch.equal(back[f"matches{j}"], there[f"matches{i}"])
        torch.testing.assert_close(back[f"matching_scores{j}"], there[f"matching_scores{i}"], atol=1e-5, rtol=0)


# ------------------------------------------------------------------------------------------------------------ promise 4


def ruler(width: int, height: int) -> np.ndarray:
    """An image (H, W, 2) that says where it is: the pixel i covers i to i + 1, its centre is at i + 0.5."""
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    return np.stack([x, y], axis=-1).astype(np.float32)


def read(image: np.ndarray, keypoints: np.ndarray) -> np.ndarray:
    """What an image (H, W, C) shows at keypoints (N, 2): `sampling.py` owns the convention."""
    height, width = image.shape[:2]
    tensor = torch.from_numpy(image).permute(2, 0, 1)[None]
    return sample(tensor, torch.from_numpy(keypoints)[None], (height, width))[0].numpy()


def inner_points(width: int, height: int, margin: float, count: int = 40) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(margin, (width - margin, height - margin), (count, 2)).astype(np.float32)


def test_promise_4_sampling_reads_the_place_it_is_given() -> None:
    points = inner_points(70, 50, margin=0.5)
    np.testing.assert_allclose(read(ruler(70, 50), points), points, atol=1e-4)
    # the centre of the first pixel is at 0.5, and the border is repeated beyond the outermost centres
    outside = np.array([[0.5, 0.5], [0, 0], [-3, 60], [70, 50]], np.float32)
    np.testing.assert_allclose(
        read(ruler(70, 50), outside), [[0.5, 0.5], [0.5, 0.5], [0.5, 49.5], [69.5, 49.5]], atol=1e-4
    )


@pytest.mark.parametrize("stride", [2, 7, 14])
def test_promise_4_feature_maps_are_read_in_pixels_of_the_image(stride: int) -> None:
    width, height = 6 * stride, 4 * stride
    cells = F.avg_pool2d(torch.from_numpy(ruler(width, height)).permute(2, 0, 1)[None], stride)  # (1, 2, 4, 6)
    points = inner_points(width, height, margin=stride / 2)
    found = sample(cells, torch.from_numpy(points)[None], (height, width))[0].numpy()
    np.testing.assert_allclose(found, points, atol=1e-3)


@pytest.mark.parametrize("scale", [0.5, 2.0, 3.5])
def test_promise_4_resizing_by_s_maps_x_to_s_times_x(scale: float) -> None:
    image = torch.from_numpy(ruler(60, 40)).permute(2, 0, 1)[None]
    resized = F.interpolate(image, size=(int(40 * scale), int(60 * scale)), mode="bilinear", align_corners=False)
    points = inner_points(60, 40, margin=2)
    np.testing.assert_allclose(read(resized[0].permute(1, 2, 0).numpy(), scale * points), points, atol=1e-3)


@pytest.mark.parametrize("crop", [(0.0, 0.0, 80.0, 60.0), (10.0, 5.0, 40.0, 30.0), (7.3, 11.6, 50.2, 33.7)])
@pytest.mark.parametrize("size", [(32, 32), (96, 96), (51, 77)])
def test_promise_4_crops_agree_with_sampling(crop: tuple, size: tuple[int, int]) -> None:
    image = ruler(80, 60)
    x, y, width, height = crop
    points = inner_points(int(width), int(height), margin=5) + np.array([x, y], np.float32)
    layers = [resize_crop(Image.fromarray(image[..., c]), crop, size) for c in (0, 1)]
    resized = np.stack([np.asarray(layer) for layer in layers], axis=-1)
    assert resized.shape == (size[1], size[0], 2)
    np.testing.assert_allclose(read(resized, crop_keypoints(points, crop, size)), points, atol=0.05)


@pytest.mark.parametrize(
    "change",
    [{}, {"flip": 1.0}, {"affine": 1.0}, {"affine": 1.0, "flip": 1.0}, {"affine": 1.0, "rotation": 90.0}],
    ids=str,
)
def test_promise_4_augmentation_agrees_with_sampling(change: dict[str, float]) -> None:
    off = AugmentConfig(affine=0, photometric=0, flip=0, mixup=0, cutmix=0, erase=0)
    names = 12
    for seed in range(5):
        rng = np.random.default_rng(seed)
        keypoints = rng.uniform(20, SIZE - 20, (2, 1, names, 2)).astype(np.float32)
        swap = np.arange(names)[None] ^ 1  # neighbours are left and right
        params = draw_params(rng, replace(off, **change), 1, SIZE)
        params, moved, _ = fit_params(params, keypoints, np.ones((2, 1, names), bool), swap, SIZE)
        assert params.flip.all() == ("flip" in change)
        image = torch.zeros(3, SIZE, SIZE)
        image[:2] = torch.from_numpy(ruler(SIZE, SIZE)).permute(2, 0, 1)
        rendered = render(image.repeat(2, 1, 1, 1) * 255 / SIZE, params.tensors()) * SIZE  # (2, 3, S, S)
        for side in (0, 1):
            found = read(rendered[side].permute(1, 2, 0).numpy(), moved[side, 0])[:, :2]
            source = keypoints[side, 0][swap[0]] if params.flip[side] else keypoints[side, 0]  # the name has changed
            np.testing.assert_allclose(found, source, atol=0.02)


def test_promise_4_mirroring_maps_x_to_width_minus_x() -> None:
    points = inner_points(70, 50, margin=0.5)
    mirrored = points * (-1, 1) + (70, 0)
    flipped = np.ascontiguousarray(ruler(70, 50)[:, ::-1])
    np.testing.assert_allclose(read(flipped, mirrored.astype(np.float32)), points, atol=1e-4)


def test_promise_4_the_network_follows_the_convention() -> None:
    """A backbone that only averages its cells, in the whole network: enlarging image and keypoints changes nothing."""
    torch.manual_seed(0)
    model = NormMatch(replace(PRESETS["tiny"], image_size=SIZE)).eval()
    seen: list[Tensor] = []
    model.head.spline.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    pairs, image0, image1 = make_pairs([(6, 6)])
    keypoints0, keypoints1 = (torch.from_numpy(k)[None] for k in (pairs[0].keypoints0, pairs[0].keypoints1))
    with torch.no_grad():
        features0, features1 = model.features({"image0": image0, "image1": image1})
        for scale in (1, 3):
            size = (SIZE * scale, SIZE * scale)
            model({
                "features0": features0._replace(size=size), "keypoints0": keypoints0 * scale,
                "features1": features1._replace(size=size), "keypoints1": keypoints1 * scale,
            })  # fmt: skip
    torch.testing.assert_close(seen[0], seen[1], atol=1e-5, rtol=0)


# ------------------------------------------------------------------------------------------------------------ promise 5


def assert_unit(vectors: Tensor, dim: int = -1) -> None:
    norms = vectors.norm(dim=dim)
    torch.testing.assert_close(norms, torch.ones_like(norms), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shared", [True, False])
def test_promise_5_every_representation_is_on_the_sphere(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = NormMatch(replace(PRESETS["tiny"], image_size=SIZE, shared_streams=shared)).eval()
    steps: list[Tensor] = []
    step = NormalizedLayer.step

    def recorded(self: NormalizedLayer, x: Tensor, *args: Any) -> Tensor:
        assert_unit(x)
        steps.append(step(self, x, *args))
        return steps[-1]

    monkeypatch.setattr(NormalizedLayer, "step", recorded)
    pairs, image0, image1 = make_pairs([(6, 9), (2, 3)])
    batch = make_batch(pairs, image0, image1)
    described = model.describe(batch)
    assert len(steps) == 4 * model.config.num_layers * (1 if shared else 2)
    for x in (*steps, described["layers0"], described["layers1"]):
        assert_unit(x)
    output = model(batch)
    assert_unit(output["descriptors0"])
    assert_unit(output["descriptors1"])
    assert output["similarity"].abs().max() <= 1 + 1e-5


def assert_matrices_are_unit(model: NormMatch) -> int:
    """q, k, v, up, gate along the input axis; out, down along the output axis: how many matrices there are."""
    matrices = {n: m.weight for n, m in model.head.transformer.named_modules() if isinstance(m, nn.Linear)}
    for name, weight in matrices.items():
        axis = {"q": 1, "kv": 1, "up_gate": 1, "out": 0, "down": 0}[name.rpartition(".")[2]]
        assert_unit(weight, dim=axis)
    return len(matrices)


@pytest.mark.parametrize("shared", [True, False])
def test_promise_5_matrices_are_unit_at_the_start_and_after_every_step(shared: bool) -> None:
    torch.manual_seed(0)
    model = NormMatch(replace(PRESETS["tiny"], image_size=SIZE, shared_streams=shared))
    assert assert_matrices_are_unit(model) == 8 * model.config.num_layers * (1 if shared else 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    pairs, image0, image1 = make_pairs([(6, 6), (4, 4)])
    batch = make_batch(pairs, image0, image1)
    for _ in range(2):
        optimizer.zero_grad()
        MatchingLoss(LossConfig())(model.describe(batch), batch)["loss"].backward()
        optimizer.step()
        with pytest.raises(AssertionError):
            assert_matrices_are_unit(model)
        model.normalize_weights()
        assert_matrices_are_unit(model)
        assert_unit(model.describe(batch)["layers0"])


def test_promise_5_loading_keeps_the_sphere(model: NormMatch, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    assert_matrices_are_unit(NormMatch.from_pretrained(tmp_path))
    assert any(isinstance(module, UnitLinear) for module in model.modules())


# ------------------------------------------------------------------------------------------------------------ promise 6


IMPORT_ALL = """
import os, random, socket, sys, warnings, logging
import numpy as np
import torch

def refuse(*args, **kwargs):
    raise AssertionError("a connection was opened at import")

class NoSocket(socket.socket):
    def __init__(self, *args, **kwargs):
        refuse()

def state():
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "interop threads": torch.get_num_interop_threads(),
        "seed": torch.initial_seed(),
        "torch rng": torch.get_rng_state().numpy().tobytes(),
        "numpy rng": repr(np.random.get_state()),
        "python rng": random.getstate(),
        "matmul": torch.get_float32_matmul_precision(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32),
        "print": repr(torch._tensor_str.PRINT_OPTS),
        "numpy errors": np.geterr(),
        "environment": {k: v for k, v in os.environ.items() if k.startswith(("NORMMATCH", "TORCH", "HF_", "OMP"))},
        "folder": os.getcwd(),
        "loggers": len(logging.getLogger().handlers),
    }

import huggingface_hub, rich.console, safetensors.torch, scipy.spatial, timm, torchvision, tyro  # their doing is theirs
socket.socket, socket.create_connection, socket.getaddrinfo = NoSocket, refuse, refuse
before = state()
import importlib, pkgutil
import normmatch
names = [module.name for module in pkgutil.walk_packages(normmatch.__path__, "normmatch.")]
for name in names:
    if name != "normmatch.__main__":
        importlib.import_module(name)
after = state()
changed = [key for key in before if before[key] != after[key]]
assert not changed, changed
assert len(names) > 20, names
"""


def test_promise_6_nothing_happens_at_import(tmp_path: Path) -> None:
    """Every module, in a process of its own that cannot open a connection and whose home is empty."""
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir()
    caches = {"HF_HOME": str(home / "hub"), "TORCH_HOME": str(home / "torch"), "MPLCONFIGDIR": str(tmp_path / "fonts")}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        cwd=folder, env={**os.environ, "HOME": str(home), **caches},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(folder.iterdir()) == []
    assert not home.exists()  # neither a download nor a settings file


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


UNSAFE = {
    "pickle.load", "pickle.loads", "torch.load", "torch.hub.load_state_dict_from_url", "joblib.load", "dill.load",
    "eval", "exec", "yaml.load", "shelve.open", "marshal.loads", "pd.read_pickle",
}  # fmt: skip


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_promise_6_nothing_is_unpickled(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for name, call in calls(tree):
        assert name not in UNSAFE, f"{file.name}:{call.lineno} calls {name}"
        options = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert options.get("allow_pickle", "False") == "False", f"{file.name}:{call.lineno}"
        assert options.get("weights_only", "True") == "True", f"{file.name}:{call.lineno}"
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    if imported & {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"}:
        assert file.name == "pascal_voc.py"  # whose reader admits three names, and runs none of them
        bases = [ast.unparse(b) for n in ast.walk(tree) if isinstance(n, ast.ClassDef) for b in n.bases]
        uses = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n) == "pickle.Unpickler"]
        assert bases.count("pickle.Unpickler") == len(uses) == 1  # never called itself, only restricted
        assert "find_class" in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_promise_6_a_pickle_is_no_weights_file(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(normmatch.NormMatchError, match="not a readable safetensors file"):
        NormMatch.from_pretrained(tmp_path)


# ------------------------------------------------------------------------------------------------------------ promise 7


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A folder of the user's, with two images and their points."""
    root = tmp_path / "own"
    root.mkdir()
    lines = ["image,class,name,x,y"]
    for i in range(4):
        Image.new("RGB", (60, 40), (40 * i, 90, 120)).save(root / f"{i}.png")
        lines += [f"{i}.png,cat,eye,{10 + i},20", f"{i}.png,cat,nose,30,{15 + i}"]
    (root / "points.csv").write_text("\n".join(lines))
    return root


def spoil(root: Path, how: str) -> None:
    if how == "no image":
        (root / "2.png").unlink()
    elif how == "cut image":
        (root / "2.png").write_bytes((root / "2.png").read_bytes()[:50])
    elif how == "no image file":
        (root / "2.png").write_text("hello")
    elif how == "bad number":
        (root / "points.csv").write_text((root / "points.csv").read_text().replace("10,20", "ten,20"))
    elif how == "no columns":
        (root / "points.csv").write_text("a,b\n1,2\n")
    elif how == "no points":
        (root / "points.csv").unlink()
    elif how == "no folder":
        for file in root.iterdir():
            file.unlink()
        root.rmdir()


PROBLEMS = ["no image", "cut image", "no image file", "bad number", "no columns", "no points", "no folder"]


@pytest.mark.parametrize("how", PROBLEMS)
def test_promise_7_bad_data_gets_one_sentence(capsys: pytest.CaptureFixture[str], own_data: Path, how: str) -> None:
    spoil(own_data, how)
    code, _, err = run(capsys, "data", "prepare", "folder", "--root", own_data, "--size", 32)
    assert code == 2
    *progress, sentence = err.splitlines()
    assert all("objects/s" in line for line in progress)  # the bar, as far as it came
    assert {"bad number": "points.csv line 2", "no columns": "points.csv line 1"}.get(how, str(own_data)) in sentence
    assert "Traceback" not in err
    assert not (own_data / "prepared" / "folder-nmt-32").exists()  # nothing that could be taken for whole


@pytest.mark.parametrize("name", ["pascal-voc", "spair-71k", "willow", "hpatches"])
def test_promise_7_archives_that_are_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    root = tmp_path / "root"
    code, _, err = run(capsys, "data", "download", name, "--root", root, "--archives", tmp_path / "empty")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert not [path for path in root.rglob("*") if path.is_file()]
    code, _, err = run(capsys, "data", "check", name, "--root", tmp_path / "empty", "--out", tmp_path / "sheet.png")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert str(tmp_path / "empty") in err
    assert not (tmp_path / "sheet.png").exists()


def test_promise_7_in_a_process_of_its_own(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    command = [sys.executable, "-m", "normmatch", "data", "check", "folder", "--root", str(missing)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert str(missing) in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_promise_7_the_network_says_it_in_one_sentence(model: NormMatch) -> None:
    pairs, image0, image1 = make_pairs([(3, 3)])
    batch = make_batch(pairs, image0, image1)
    batch["keypoints1"][0, 1, 0] = math.nan
    with pytest.raises(normmatch.NormMatchError, match="^keypoints1 has NaN or infinite coordinates, expected [^.]*$"):
        model(batch)


# ------------------------------------------------------------------------------------------------ the shape of the code

# From the top to the bottom: a module imports only what stands in its own layer or further down.
LAYERS = (
    "commands", "app", "experiments", "bench", "export", "training", "evaluation", "datasets", "matching", "model",
    "annotations", "weights", "progress", "viz", "plot_inputs", "labels", "extras", "geometry", "config", "io",
    "outputs", "checks", "errors",
)  # fmt: skip
TORCH = {"torch", "torchvision", "timm", "triton", "lightning_fabric", "safetensors.torch"}
WITH_TORCH = ("model", "training", "evaluation", "export", "bench", "matching/backends/torch.py", "datasets/batches.py")
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST_MODULE, LONGEST_FUNCTION = 320, 45  # lines, of a function without its docstring


def named(files: list[Path]) -> Any:
    return pytest.mark.parametrize("file", files, ids=lambda file: str(file.relative_to(SOURCE)))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of all that is imported, in functions as well, but not for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        yield from imports(node)


def below(name: str, *tops: str) -> bool:
    """Whether a full name is one of these packages, or something in it."""
    return any(name == top or name.startswith(f"{top}.") for top in tops)


def against_the_layers(path: str, source: str) -> list[str]:
    """The imports of a module that do not go downwards, or that only other modules may have."""
    layer = path.split("/")[0].removesuffix(".py")
    if layer not in LAYERS:
        return [f"{path} is in no layer"]
    faults = []
    for line, name in imports(ast.parse(source)):
        target = name.split(".")[1] if below(name, "normmatch") and "." in name else ""
        wrong = [
            target in LAYERS and LAYERS.index(target) < LAYERS.index(layer),
            target and target not in (*LAYERS, "__version__"),  # the front door is for others
            below(name, "tyro") and layer != "commands",
            below(name, *TORCH) and not any(path == part or path.startswith(f"{part}/") for part in WITH_TORCH),
            below(name, "unittest"),
        ]
        faults += [f"{path}:{line} imports {name}"] if any(wrong) else []
    return faults


@named([file for file in MODULES if file.parent != SOURCE or file.name not in ("__init__.py", "__main__.py")])
def test_imports_go_downwards(file: Path) -> None:
    path = file.relative_to(SOURCE).as_posix()
    assert against_the_layers(path, file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("matching/matcher.py", "import torch"),
        ("matching/matcher.py", "def f():\n    from torch.nn import functional"),
        ("weights/__init__.py", "from safetensors.torch import load_file"),
        ("datasets/pairs.py", "import tyro"),
        ("errors.py", "from normmatch import io"),
        ("datasets/pairs.py", "from normmatch.training.loop import train"),
        ("evaluation/run.py", "import normmatch.commands"),
        ("model/network.py", "from normmatch import Matcher"),
        ("export/graphs.py", "import unittest.mock"),
        ("somewhere/else.py", ""),
    ],
)
def test_imports_that_do_not_are_found(path: str, source: str) -> None:
    assert len(against_the_layers(path, source)) == 1
    allowed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nfrom normmatch import __version__"
    assert against_the_layers("io.py", allowed) == []


@named(MODULES)
def test_modules_and_functions_are_short(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert source.count("\n") <= LONGEST_MODULE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            docstring = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node) else 0
            lines = (node.end_lineno or 0) - node.lineno + 1 - docstring
            assert lines <= LONGEST_FUNCTION, f"{node.name} has {lines} lines"
