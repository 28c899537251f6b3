"""Matching photographs: what goes in, what comes out, what is remembered, and that nothing depends on the company."""

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import normmatch
from normmatch import PRESETS, Matcher, NormMatch, match_pair
from normmatch.errors import ConfigError, InputError, NormMatchError
from normmatch.matching import matcher as module
from normmatch.matching.backends.torch import TorchBackend
from tests.matching.scene import photograph, points, tiny_model


@pytest.fixture(scope="module")
def model() -> NormMatch:
    return tiny_model()


@pytest.fixture
def matcher(model: NormMatch) -> Matcher:
    return Matcher(model, device="cpu", precision="float32")


def assert_same(result: dict[str, np.ndarray], expected: dict[str, np.ndarray], atol: float = 1e-4) -> None:
    assert result.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(result[key], value, atol=20 * atol if key == "log_assignment" else atol)


def count_images(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that go through the backbone from now on."""
    seen: list[int] = []
    encode = TorchBackend.encode

    def counted(self: TorchBackend, images: np.ndarray) -> list[Any]:
        seen.append(len(images))
        return encode(self, images)

    monkeypatch.setattr(TorchBackend, "encode", counted)
    return seen


def test_equals_the_network(model: NormMatch, matcher: Matcher) -> None:
    """On squares of the network's own size nothing is resized: the answer is that of `NormMatch.forward`."""
    images, keypoints = [photograph(i, 96, 96) for i in (0, 1)], [points(i, 7 + 5 * i, 96, 96) for i in (0, 1)]
    result = matcher.match(*images, *keypoints)
    data = {}
    for i in (0, 1):
        data[f"image{i}"] = torch.from_numpy(images[i]).permute(2, 0, 1)[None].float() / 255
        data[f"keypoints{i}"] = torch.from_numpy(keypoints[i])[None].float()
    with torch.inference_mode():
        expected = model(data)
    for key, shape in {
        "matches0": (7,), "matches1": (12,), "matching_scores0": (7,), "matching_scores1": (12,),
        "similarity": (7, 12), "log_assignment": (7, 12),
    }.items():  # fmt: skip
        assert result[key].shape == shape
        np.testing.assert_allclose(result[key], expected[key][0].numpy(), atol=2e-3)
    assert result["matches0"].dtype == np.int64
    np.testing.assert_array_equal(result["matches"], np.stack([np.arange(7), result["matches0"]], 1))
    np.testing.assert_array_equal(result["scores"], result["matching_scores0"])


def test_any_kind_of_image(matcher: Matcher, tmp_path: Path) -> None:
    first, second = photograph(0), photograph(1)
    Image.fromarray(first).save(tmp_path / "a.png")
    keypoints = points(0, 5), points(1, 6)
    expected = matcher.match(first, second, *keypoints)
    tensor = torch.from_numpy(first.copy()).permute(2, 0, 1)
    images = [tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(first), first / 255, tensor, tensor / 255]
    for image in images:
        assert_same(matcher.match(image, second, *keypoints), expected)
    lists = [k.tolist() for k in keypoints]
    assert_same(matcher.match(first, second, *lists), expected)
    assert_same(matcher.match(first, second, *map(torch.tensor, lists)), expected)


def test_an_open_file_is_an_image_too(matcher: Matcher, tmp_path: Path) -> None:
    Image.fromarray(photograph(0)).save(tmp_path / "a.png")
    pair = photograph(1), points(0, 5), points(1, 6)
    with (tmp_path / "a.png").open("rb") as file:
        assert_same(matcher.match(file, *pair), matcher.match(photograph(0), *pair))


def test_the_network_of_the_caller_stays_as_it_was(matcher: Matcher) -> None:
    """Also where it is in training, on another device, or trained on afterwards."""
    model = tiny_model().train()
    pair = photograph(0), photograph(1), points(0, 5), points(1, 6)
    mine = Matcher(model, device="cpu", precision="float32")
    assert all(module.training for module in model.modules())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert_same(mine.match(*pair), matcher.match(*pair))


def test_exif_orientation(matcher: Matcher, tmp_path: Path) -> None:
    """A file that says it lies on its side is matched as a viewer shows it."""
    upright, other, keypoints = photograph(0), photograph(1), (points(0, 5), points(1, 5))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    Image.fromarray(np.rot90(upright).copy()).save(tmp_path / "turned.png", exif=exif)
    expected = matcher.match(upright, other, *keypoints)
    assert_same(matcher.match(tmp_path / "turned.png", other, *keypoints), expected)
    with Image.open(tmp_path / "turned.png") as image:
        assert_same(matcher.match(image, other, *keypoints), expected)


def test_a_box_is_the_cropped_image(matcher: Matcher) -> None:
    image, other, keypoints = photograph(0), photograph(1), (points(0, 5, 60, 40), points(1, 6))
    expected = matcher.match(image[20:60, 30:90], other, *keypoints)
    moved = keypoints[0] + (30, 20)
    boxed = matcher.match(image, other, moved, keypoints[1], box0=(30, 20, 60, 40))
    assert_same(boxed, expected, atol=3e-3)  # resizing looks a pixel beyond the box
    back = matcher.match(other, image, keypoints[1], moved, box1=[30, 20, 60, 40])
    np.testing.assert_allclose(back["similarity"].T, boxed["similarity"], atol=1e-4)


def test_a_batch_of_unequal_sizes_is_its_pairs(matcher: Matcher) -> None:
    counts = [(7, 12), (1, 1), (30, 2), (0, 4), (5, 0), (9, 9)]
    pairs = [
        (photograph(i), photograph(i + 20, 60, 90), points(i, m), points(i, n, 60, 90), None, (5, 5, 50, 80))
        for i, (m, n) in enumerate(counts)
    ]
    for result, pair, (m, n) in zip(matcher.match_batch(iter(pairs)), pairs, counts, strict=True):
        assert result["similarity"].shape == (m, n)
        assert_same(result, matcher.match(*pair[:4], box1=pair[5]))


def test_no_point_on_a_side(matcher: Matcher) -> None:
    for one_to_one, mutual in ((False, False), (True, False), (False, True)):
        result = matcher.match(photograph(0), photograph(1), [], points(1, 3), one_to_one=one_to_one, mutual=mutual)
        assert result["matches0"].shape == (0,)
        assert result["matches1"].tolist() == [-1, -1, -1]
        assert result["matching_scores1"].tolist() == [0, 0, 0]
        assert result["matches"].shape == (0, 2)
        assert result["similarity"].shape == (0, 3)


def test_a_point_alone(matcher: Matcher) -> None:
    result = matcher.match(photograph(0), photograph(1), [[60, 40]], [[50, 30]], min_score=0)
    assert result["matches0"].tolist() == result["matches1"].tolist() == [0]
    assert result["log_assignment"] == pytest.approx(0, abs=1e-4)


def test_many_points_are_matched_a_few_pairs_at_a_time(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    match = TorchBackend.match

    def counted(self: TorchBackend, seen0: Any, seen1: Any) -> Any:
        seen.append((len(seen0), max(map(len, (*seen0, *seen1))) - 1))
        return match(self, seen0, seen1)

    monkeypatch.setattr(TorchBackend, "match", counted)
    monkeypatch.setattr(module, "MAX_CELLS", 64**2)
    pairs = [(photograph(0), photograph(1), points(0, n), points(1, 5)) for n in (60, 5, 60, 30)]
    results = matcher.match_batch(pairs)
    assert [len(result["matches0"]) for result in results] == [60, 5, 60, 30]
    assert seen == [(2, 30), (1, 60), (1, 60)]


def test_two_thousand_points() -> None:
    """In a network that is small in every way, because the graph is large enough."""
    torch.manual_seed(0)
    tiniest = replace(PRESETS["tiny"], dim=8, num_heads=1, spline_kernel=2, num_layers=1, sinkhorn_rounds=1)
    model = NormMatch(tiniest)
    result = Matcher(model, device="cpu").match(photograph(0), photograph(1), points(0, 2000), points(1, 1990))
    assert result["similarity"].shape == (2000, 1990)
    assert np.isfinite(result["log_assignment"]).all()
    assert (result["matches0"] >= 0).all()


def test_match_many_sees_each_image_once(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    images, keypoints = [photograph(i) for i in range(4)], [points(i, 3 + i) for i in range(4)]
    boxes = [None, None, (10, 10, 100, 60), None]
    seen = count_images(monkeypatch)
    results = matcher.match_many(images, keypoints, boxes)
    assert seen == [4]
    assert set(results) == {(i, j) for i in range(4) for j in range(i + 1, 4)}
    for (i, j), result in results.items():
        expected = matcher.match(images[i], images[j], keypoints[i], keypoints[j], box0=boxes[i], box1=boxes[j])
        assert_same(result, expected)
    with pytest.raises(InputError, match="4 images, 3 sets of keypoints"):
        matcher.match_many(images, keypoints[:3])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compile", [False, True])
def test_the_same_on_a_gpu(model: NormMatch, matcher: Matcher, compile: bool) -> None:
    images, keypoints = [photograph(i) for i in range(5)], [points(i, n) for i, n in enumerate((3, 12, 20, 0, 7))]
    expected = matcher.match_many(images, keypoints)
    on_gpu = Matcher(copy.deepcopy(model), device="cuda", precision="float32", compile=compile)
    for _ in range(2):  # the second time from what is remembered
        results = on_gpu.match_many(images, keypoints)
        assert results.keys() == expected.keys()
        for key, result in results.items():
            np.testing.assert_allclose(result["similarity"], expected[key]["similarity"], atol=5e-3)  # TF32
        found, wanted = (np.concatenate([r[key]["matches0"] for key in expected]) for r in (results, expected))
        assert np.mean(found == wanted) > 0.9


def test_of_many_an_image_given_twice_is_encoded_once(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_images(monkeypatch)
    images = [photograph(i) for i in (*range(9), 0)]  # more than go through the backbone together
    results = Matcher(model, device="cpu", cache=0).match_many(images, [points(0, 3)] * 10, min_score=0)
    assert sum(seen) == 9
    np.testing.assert_allclose(results[1, 9]["similarity"], results[0, 1]["similarity"].T, atol=1e-4)


@pytest.mark.parametrize("cache", [0, 32])
def test_of_many_an_image_with_other_points_is_encoded_once(
    model: NormMatch, monkeypatch: pytest.MonkeyPatch, cache: int
) -> None:
    seen = count_images(monkeypatch)
    images, keypoints = [photograph(i % 40, 24, 20) for i in range(80)], [points(i, 3, 24, 20) for i in range(80)]
    monkeypatch.setattr(Matcher, "match_crops", lambda self, pairs, **_: [{}] * len(pairs))  # 3,160 pairs
    Matcher(model, device="cpu", cache=cache).match_many(images, keypoints)
    assert sum(seen) == 40


def test_an_image_whose_points_were_known_is_used_all_the_same(
    model: NormMatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_images(monkeypatch)
    matcher = Matcher(model, device="cpu", cache=4)
    for i in range(1, 9):
        matcher.match(photograph(0), photograph(i), points(0, 3), points(i, 3))
    matcher.match(photograph(0), photograph(8), points(0, 3) + 1, points(8, 3))  # a point was moved
    assert sum(seen) == 9


def test_of_what_was_seen_together_the_last_is_remembered(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_images(monkeypatch)
    matcher = Matcher(model, device="cpu", cache=1)
    for i in range(1, 5):
        matcher.match(photograph(i), photograph(0), points(i, 3), points(0, 3))
    assert sum(seen) == 5


def test_encoded_images_are_remembered_by_content(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_images(monkeypatch)
    matcher = Matcher(model, device="cpu", cache=2)
    a, b, c = (photograph(i) for i in range(3))
    xy = points(0, 3)
    matcher.match(a, b, xy, xy)
    matcher.match(a.copy(), Image.fromarray(b), xy + 1, xy + 1)
    assert seen == [2]
    matcher.match(a, b, xy, xy + 2, box0=(0, 0, 110, 80))  # other pixels
    assert seen == [2, 1]
    matcher.match(a, c, xy + 3, xy)  # a was forgotten: b and the box were used last
    assert seen == [2, 1, 2]
    changed = a.copy()
    changed[40, 60] = 255 - changed[40, 60]
    matcher.match(changed, c, xy, xy)
    assert seen == [2, 1, 2, 1]
    without = Matcher(model, device="cpu", cache=0)
    without.match(a, a, xy, xy)
    without.match(a, a, xy, xy)
    assert seen[4:] == [1, 1]


def test_an_image_is_embedded_once_with_its_points(model: NormMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its graph and all that does not depend on the partner are made then; with other points they are made anew."""
    embedded: list[list[int]] = []
    embed = TorchBackend.embed

    def counted(self: TorchBackend, features: Any, keypoints: Any) -> list[Any]:
        embedded.append([len(xy) for xy in keypoints])
        return embed(self, features, keypoints)

    monkeypatch.setattr(TorchBackend, "embed", counted)
    encoded = count_images(monkeypatch)
    matcher = Matcher(model, device="cpu", precision="float32")
    a, b, c = (photograph(i) for i in range(3))
    matcher.match_batch([(a, b, points(0, 3), points(1, 4)), (a, c, points(0, 3), points(2, 5))])
    assert embedded == [[3, 4, 5]]
    known = matcher.match(c, b, points(2, 5), points(1, 4))
    assert embedded == [[3, 4, 5]]
    moved = points(1, 4) + 1
    matcher.match(a, b, points(0, 3), moved)
    assert embedded == [[3, 4, 5], [4]]
    assert encoded == [3]
    assert_same(known, Matcher(model, device="cpu", precision="float32").match(c, b, points(2, 5), points(1, 4)))


def test_many_images_are_embedded_some_at_a_time(
    model: NormMatch, matcher: Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(photograph(i), photograph(i + 1), points(i, 3), points(i + 1, 5)) for i in range(0, 6, 2)]
    expected = matcher.match_batch(pairs)
    monkeypatch.setattr(module, "EMBED_BATCH", 2)
    again = Matcher(model, device="cpu", precision="float32")
    for result, other in zip(again.match_batch(pairs), expected, strict=True):
        assert_same(result, other)


def test_scores_below_the_threshold_are_no_match(model: NormMatch, matcher: Matcher, monkeypatch: Any) -> None:
    pair = photograph(0), photograph(1), points(0, 8), points(1, 8)
    everything = matcher.match(*pair, min_score=0)
    threshold = float(np.median(everything["matching_scores0"]))
    some = matcher.match(*pair, min_score=threshold)
    kept = everything["matching_scores0"] >= threshold
    np.testing.assert_array_equal(some["matches0"] >= 0, kept)
    assert 0 < kept.sum() < 8
    np.testing.assert_array_equal(some["matching_scores0"], everything["matching_scores0"])
    monkeypatch.setattr(matcher.backend, "min_score", threshold)  # calibrated
    assert_same(matcher.match(*pair), some)
    with pytest.raises(InputError, match="min_score is 2"):
        matcher.match(*pair, min_score=2)


def test_one_to_one_uses_no_point_twice(matcher: Matcher) -> None:
    result = matcher.match(photograph(0), photograph(1), points(0, 9), points(1, 6), one_to_one=True, min_score=0)
    used = result["matches0"][result["matches0"] >= 0]
    assert sorted(used.tolist()) == list(range(6))
    for i, j in result["matches"]:
        assert result["matches1"][j] == i
    assert (result["matching_scores0"][result["matches0"] < 0] == 0).all()


def test_a_process_keeps_one_network(model: NormMatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = model.save_pretrained(tmp_path / "tiny.safetensors")
    pair = photograph(0), photograph(1), points(0, 4), points(1, 5)
    result = match_pair(*pair, weights=file, one_to_one=True)
    monkeypatch.setattr(NormMatch, "from_pretrained", None)  # it is not asked for again
    assert_same(match_pair(*pair, weights=str(file), one_to_one=True), result)
    assert normmatch.match_pair is match_pair


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "nonsense"}, "The device 'nonsense' cannot be used here"),
        ({"precision": "float8"}, "precision is 'float8'"),
        ({"backend": "jax"}, "backend is 'jax'"),
        ({"cache": -1}, "cache is -1"),
    ],
)
def test_options_that_cannot_be(model: NormMatch, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Matcher(model, **options)


def test_missing_weights() -> None:
    with pytest.raises(NormMatchError, match="weights nothing not found"):
        Matcher("nothing")


def test_torch_is_loaded_with_the_network_only() -> None:
    """So that `backend="onnx"` needs none."""
    modules = "decoding, matcher, pair_list, picture, propagate, record, sample_pair, samples"
    imports = f"import normmatch.viz, normmatch.weights; from normmatch.matching import {modules}"
    code = f"import sys; sys.modules['torch'] = sys.modules['huggingface_hub'] = None; {imports}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_photographs_are_resized_to_the_size_that_is_asked_for(model: NormMatch) -> None:
    """At another size the answer is that of the network on images of that size."""
    images, keypoints = [photograph(i, 128, 128) for i in (0, 1)], [points(i, 6, 128, 128) for i in (0, 1)]
    result = Matcher(model, device="cpu", precision="float32", size=128).match(*images, *keypoints, min_score=0)
    data = {f"image{i}": torch.from_numpy(images[i]).permute(2, 0, 1)[None].float() / 255 for i in (0, 1)}
    data |= {f"keypoints{i}": torch.from_numpy(keypoints[i])[None].float() for i in (0, 1)}
    with torch.inference_mode():
        expected = model(data)["similarity"][0].numpy()
    np.testing.assert_allclose(result["similarity"], expected, atol=1e-4)
    with pytest.raises(ConfigError, match="size is 100; expected a multiple of 16 from 32 on"):
        Matcher(model, device="cpu", size=100)
