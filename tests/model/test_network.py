"""The whole network: masks, order, symmetry, reuse of encoded images, what comes out, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from normmatch import PRESETS, NormMatch
from normmatch.errors import InputError
from normmatch.model.backbone import Features

SIZE = 64
TINY = replace(PRESETS["tiny"], image_size=SIZE)
KINDS = {
    "shared": TINY,
    "separate": replace(TINY, shared_streams=False),
    "vanilla": replace(TINY, transformer="vanilla"),
    "one round": replace(TINY, sinkhorn_rounds=1),  # far from converged
}
ROUNDING = {"log_assignment": 5e-4}  # similarity / epsilon is 29 times as large; all else is held to 1e-5


def make_model(kind: str = "shared") -> NormMatch:
    """A model of random weights whose layers take large steps, so that whatever they should not see would show."""
    torch.manual_seed(0)
    model = NormMatch(KINDS[kind]).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "alpha" in name:
            parameter.mul_(8)
    return model


@pytest.fixture(scope="module")
def models() -> dict[str, NormMatch]:
    return {kind: make_model(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def model(models: dict[str, NormMatch]) -> NormMatch:
    return models["shared"]


@st.composite
def points(draw: st.DrawFn, most: int = 7) -> np.ndarray:
    """Keypoints (N, 2): scattered, on a coarse grid (some coincide), on a line, or all at one place."""
    n, seed = draw(st.integers(1, most)), draw(st.integers(0, 999))
    kind = draw(st.sampled_from(["scattered", "scattered", "grid", "line", "same"]))
    xy = np.random.default_rng(seed).uniform(1, SIZE - 1, (n, 2))
    if kind == "grid":
        xy = xy // 20 * 20
    elif kind == "line":
        xy[:, 1] = xy[:, 0] / 2
    elif kind == "same":
        xy[:] = xy[0]
    return xy.astype(np.float32)


@st.composite
def pairs(draw: st.DrawFn) -> dict[str, Tensor]:
    """One pair of images and keypoints, as a batch of one without padding."""
    rng = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    image0, image1 = torch.rand(2, 1, 3, SIZE, SIZE, generator=rng)
    keypoints0, keypoints1 = (torch.from_numpy(draw(points()))[None] for _ in "01")
    return {"image0": image0, "image1": image1, "keypoints0": keypoints0, "keypoints1": keypoints1}


def random_pair(m: int, n: int, seed: int = 0, size: int = SIZE) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    image0, image1 = torch.rand(2, 1, 3, size, size, generator=rng)
    keypoints = [torch.rand(1, count, 2, generator=rng) * size for count in (m, n)]
    return {"image0": image0, "image1": image1, "keypoints0": keypoints[0], "keypoints1": keypoints[1]}


def scatter(items: list[dict[str, Tensor]], more: tuple[int, int], garbage: float, seed: int) -> tuple[dict, list]:
    """A batch of pairs whose points lie in random slots among padding full of garbage; and the slots of each pair."""
    rng = np.random.default_rng(seed)
    batch = {key: torch.cat([item[key] for item in items]) for key in ("image0", "image1")}
    slots: list[dict[str, np.ndarray]] = [{} for _ in items]
    for i, extra in zip("01", more, strict=True):
        n = max(item[f"keypoints{i}"].shape[1] for item in items) + extra
        batch[f"keypoints{i}"] = torch.full((len(items), n, 2), garbage)
        batch[f"mask{i}"] = torch.zeros(len(items), n, dtype=torch.bool)
        for b, item in enumerate(items):
            slots[b][i] = rng.permutation(n)[: item[f"keypoints{i}"].shape[1]]
            batch[f"keypoints{i}"][b, slots[b][i]] = item[f"keypoints{i}"][0]
            batch[f"mask{i}"][b, slots[b][i]] = True
    return batch, slots


def pick(output: dict[str, Tensor], b: int, slots: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """The answer of pair b, in the order of its slots; matches count among the slots, too."""
    found = {}
    for key, value in output.items():
        item = value[b]
        if key in ("similarity", "log_assignment"):
            item = item[slots["0"]][:, slots["1"]]
        else:
            item = item[slots[key[-1]]]
        if key in ("matches0", "matches1"):
            place = {int(slot): k for k, slot in enumerate(slots["10"[int(key[-1])]])}
            item = torch.tensor([place[int(slot)] for slot in item])
        found[key] = item[None]
    return found


def scores_of(output: dict[str, Tensor], matches: Tensor, side: str) -> Tensor:
    """The scores (B, M) that an answer gives to matches (B, M) of a side, be they its own or not."""
    table = output["log_assignment"].exp().clamp(0, 1) * output["similarity"].clamp(0, 1)  # (B, M, N)
    table = table if side == "0" else table.mT
    return table.gather(2, matches.clamp_min(0).unsqueeze(2)).squeeze(2).masked_fill(matches < 0, 0.0)


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Equal up to rounding; a match may be another one where that is as good (coinciding points are)."""
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        if key in ("matches0", "matches1"):
            table = expected["log_assignment"] if key == "matches0" else expected["log_assignment"].mT
            chosen = table.gather(2, actual[key].unsqueeze(2)).squeeze(2)
            torch.testing.assert_close(chosen, table.amax(2), atol=1e-3, rtol=0)
        elif key in ("matching_scores0", "matching_scores1"):
            scores = scores_of(expected, actual[f"matches{key[-1]}"], key[-1])
            torch.testing.assert_close(actual[key], scores, atol=1e-5, rtol=0, msg=key)
        else:
            torch.testing.assert_close(actual[key], value, atol=ROUNDING.get(key, 1e-5), rtol=0, msg=key)


def reversed_pair(data: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key[:-1] + "10"[int(key[-1])]: value for key, value in data.items()}


# ------------------------------------------------------------------------------------------------------ masks and order


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    items=st.lists(pairs(), min_size=1, max_size=3),
    more=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    garbage=st.sampled_from([0.0, 30.0, -1e9, float("inf"), float("nan")]),
    seed=st.integers(0, 99),
)
def test_a_pair_is_the_same_alone_and_in_any_batch(
    models: dict[str, NormMatch], kind: str, items: list, more: tuple[int, int], garbage: float, seed: int
) -> None:
    batch, slots = scatter(items, more, garbage, seed)
    together = models[kind](batch)
    for b, item in enumerate(items):
        assert_same(pick(together, b, slots[b]), models[kind](item))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(item=pairs(), more=st.tuples(st.integers(1, 9), st.integers(1, 9)), garbage=st.sampled_from([5.0, float("nan")]))
def test_padded_equals_unpadded(model: NormMatch, item: dict, more: tuple[int, int], garbage: float) -> None:
    m, n = (item[f"keypoints{i}"].shape[1] for i in "01")
    data = dict(item)
    for i, count, extra in (("0", m, more[0]), ("1", n, more[1])):
        data[f"keypoints{i}"] = torch.cat([item[f"keypoints{i}"], torch.full((1, extra, 2), garbage)], 1)
        data[f"mask{i}"] = torch.arange(count + extra)[None] < count
    output = model(data)
    assert_same(pick(output, 0, {"0": np.arange(m), "1": np.arange(n)}), model(item))
    assert (output["matches0"][:, m:] == -1).all()
    assert (output["matches1"][:, n:] == -1).all()
    assert (output["matching_scores0"][:, m:] == 0).all()
    assert (output["matching_scores1"][:, n:] == 0).all()
    padded = ~(data["mask0"].unsqueeze(2) & data["mask1"].unsqueeze(1))
    assert (output["similarity"][padded] == 0).all()
    assert output["log_assignment"][padded].isneginf().all()
    assert all(not value.isnan().any() for value in output.values())


def test_edges_to_padded_points_do_not_count(model: NormMatch) -> None:
    data = random_pair(5, 6)
    data["keypoints0"][0, 3:] = torch.tensor([[1.0, 60.0], [50.0, 2.0]])
    data["mask0"] = torch.tensor([[True, True, True, False, False]])
    clean = {**data, "adjacency0": torch.zeros(1, 5, 5, dtype=torch.bool)}
    clean["adjacency0"][:, :3, :3] = ~torch.eye(3, dtype=torch.bool)
    littered = {**data, "adjacency0": ~torch.eye(5, dtype=torch.bool)[None]}
    slots = {"0": np.arange(3), "1": np.arange(6)}
    assert_same(pick(model(littered), 0, slots), pick(model(clean), 0, slots))


def test_a_pair_without_any_point_in_one_image_disturbs_nobody(model: NormMatch) -> None:
    items = [random_pair(4, 5, 1), random_pair(4, 5, 2)]
    batch, slots = scatter(items, (0, 0), float("nan"), 0)
    batch["mask0"][1] = False
    output = model(batch)
    assert_same(pick(output, 0, slots[0]), model(items[0]))
    assert (output["matches0"][1] == -1).all()
    assert (output["matches1"][1] == -1).all()
    assert (output["matching_scores1"][1] == 0).all()
    assert all(not value.isnan().any() for value in output.values())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(item=pairs(), seed=st.integers(0, 99))
def test_order_means_nothing(models: dict[str, NormMatch], kind: str, item: dict, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = {i: rng.permutation(item[f"keypoints{i}"].shape[1]) for i in "01"}
    shuffled = {**item, **{f"keypoints{i}": item[f"keypoints{i}"][:, order[i]] for i in "01"}}
    back = {i: np.argsort(order[i]) for i in "01"}
    assert_same(pick(models[kind](shuffled), 0, back), models[kind](item))


@pytest.mark.parametrize("kind", ["shared", "vanilla", "one round"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(items=st.lists(pairs(), min_size=1, max_size=2), more=st.integers(0, 3))
def test_symmetry_of_shared_streams(models: dict[str, NormMatch], kind: str, items: list, more: int) -> None:
    data, _ = scatter(items, (more, 0), float("nan"), 0)
    there, back = models[kind](data), models[kind](reversed_pair(data))
    for key in ("similarity", "log_assignment"):
        torch.testing.assert_close(back[key].mT, there[key], atol=ROUNDING.get(key, 1e-5), rtol=0)
    for i, j in ("01", "10"):
        torch.testing.assert_close(back[f"descriptors{j}"], there[f"descriptors{i}"], atol=1e-5, rtol=0)
        scores = scores_of(there, back[f"matches{j}"], i)  # of equally good matches it may choose another
        torch.testing.assert_close(back[f"matching_scores{j}"], scores, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("m", "n"), [(6, 6), (4, 9), (9, 4)])
def test_matches_are_symmetric_too(model: NormMatch, m: int, n: int) -> None:
    data = random_pair(m, n)  # scattered points: no two matches are equally good
    there, back = model(data), model(reversed_pair(data))
    assert torch.equal(back["matches1"], there["matches0"])
    assert torch.equal(back["matches0"], there["matches1"])


def test_separate_streams_are_not_symmetric(models: dict[str, NormMatch]) -> None:
    data = random_pair(5, 5)
    there, back = models["separate"](data), models["separate"](reversed_pair(data))
    assert (back["similarity"].mT - there["similarity"]).abs().max() > 1e-3


# -------------------------------------------------------------------------------------------- images and their encoding


def test_encoded_images_give_the_same(model: NormMatch) -> None:
    data = random_pair(5, 7)
    features0, features1 = model.encode(data["image0"]), model.encode(data["image1"])
    points = {key: value for key, value in data.items() if key.startswith("keypoints")}
    expected = model(data)
    assert_same(model({**points, "features0": features0, "features1": features1}), expected)
    assert_same(model({**points, "features0": features0, "image1": data["image1"]}), expected)
    assert_same(model({**points, "image0": data["image0"], "features1": features1}), expected)


def test_one_image_matched_with_many_is_seen_once(model: NormMatch) -> None:
    seen: list[int] = []
    hook = model.backbone.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    try:
        first = random_pair(5, 5, seed=0)
        features0 = model.encode(first["image0"])
        others = [random_pair(5, n, seed=n) for n in (3, 4, 6)]
        for other in others:
            model({**{k: v for k, v in other.items() if k != "image0"}, "features0": features0})
        assert seen == [1, 1, 1, 1]
        seen.clear()
        model(first)
        assert sum(seen) == 2
    finally:
        hook.remove()


def test_encode_says_what_the_backbone_sees(model: NormMatch) -> None:
    features = model.encode(torch.rand(2, 3, 64, 96))
    assert isinstance(features, Features)
    assert features.size == (64, 96)
    assert len(features.maps) == 2
    assert features.pooled.shape == (2, model.backbone.global_channels)


def test_images_of_unequal_sizes(model: NormMatch) -> None:
    rng = torch.Generator().manual_seed(3)
    image0, image1 = torch.rand(2, 3, 64, 128, generator=rng), torch.rand(2, 3, 96, 64, generator=rng)
    keypoints0 = torch.rand(2, 5, 2, generator=rng) * torch.tensor([128.0, 64.0])
    keypoints1 = torch.rand(2, 4, 2, generator=rng) * torch.tensor([64.0, 96.0])
    data = {"image0": image0, "image1": image1, "keypoints0": keypoints0, "keypoints1": keypoints1}
    output = model(data)
    back = model(reversed_pair(data))
    torch.testing.assert_close(back["similarity"].mT, output["similarity"], atol=1e-5, rtol=0)
    for b in range(2):
        alone = model({key: value[b : b + 1] for key, value in data.items()})
        assert_same({key: value[b : b + 1] for key, value in output.items()}, alone)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_images_and_keypoints_of_any_float_type(model: NormMatch, dtype: torch.dtype) -> None:
    data = {key: value.to(dtype) for key, value in random_pair(5, 6).items()}
    expected = model({key: value.float() for key, value in data.items()})
    output = model(data)
    torch.testing.assert_close(output["similarity"].float(), expected["similarity"], atol=1e-5, rtol=0)


# ------------------------------------------------------------------------------------------------------- what comes out


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 6), (2, 1), (2, 2), (6, 3), (3, 6)])
def test_documented_outputs(model: NormMatch, m: int, n: int) -> None:
    data = random_pair(m, n)
    data = {key: value.repeat(2, *[1] * (value.ndim - 1)) for key, value in data.items()}
    output = model(data)
    dim = model.config.dim
    shapes = {
        "matches0": (2, m), "matches1": (2, n), "matching_scores0": (2, m), "matching_scores1": (2, n),
        "similarity": (2, m, n), "log_assignment": (2, m, n), "descriptors0": (2, m, dim), "descriptors1": (2, n, dim),
    }  # fmt: skip
    assert {key: tuple(value.shape) for key, value in output.items()} == shapes
    assert all(key in (NormMatch.forward.__doc__ or "") for key in (*shapes, *data, "mask0", "adjacency1", "features0"))
    for key, value in output.items():
        assert value.dtype == (torch.int64 if key in ("matches0", "matches1") else torch.float32), key
        assert value.isfinite().all(), key
    assert ((output["matches0"] >= 0) & (output["matches0"] < n)).all()
    assert ((output["matches1"] >= 0) & (output["matches1"] < m)).all()
    for i in "01":
        assert ((output[f"matching_scores{i}"] >= 0) & (output[f"matching_scores{i}"] <= 1)).all()
        norms = output[f"descriptors{i}"].norm(dim=-1)
        torch.testing.assert_close(norms, torch.ones_like(norms), atol=1e-5, rtol=0)


def test_outputs_fit_together(model: NormMatch) -> None:
    output = model(random_pair(5, 8))
    cosine = output["descriptors0"] @ output["descriptors1"].mT
    torch.testing.assert_close(output["similarity"], cosine, atol=1e-5, rtol=0)
    assignment = output["log_assignment"].exp()
    torch.testing.assert_close(assignment.sum(2), torch.ones(1, 5), atol=1e-3, rtol=0)  # each of the fewer points
    assert (assignment.sum(1) < 1 + 1e-3).all()
    assert torch.equal(output["matches0"], assignment.argmax(2))
    assert torch.equal(output["matches1"], assignment.argmax(1))
    sure = assignment * cosine.clamp(0, 1)
    torch.testing.assert_close(output["matching_scores0"], sure.amax(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(output["matching_scores1"], sure.amax(1), atol=1e-5, rtol=0)


def test_a_point_is_most_similar_to_itself(model: NormMatch) -> None:
    data = random_pair(8, 8)
    data["image1"], data["keypoints1"] = data["image0"], data["keypoints0"]
    similarity = model(data)["similarity"][0]
    torch.testing.assert_close(similarity.diagonal(), torch.ones(8))
    assert torch.equal(similarity.argmax(1), torch.arange(8))


def test_describe_has_every_layer(model: NormMatch) -> None:
    data = random_pair(6, 6)
    described, output = model.describe(data), model(data)
    layers, dim = model.config.num_layers, model.config.dim
    assert described["layers0"].shape == described["layers1"].shape == (layers, 1, 6, dim)
    torch.testing.assert_close(described["layers0"][-1], output["descriptors0"], atol=0, rtol=0)
    torch.testing.assert_close(described["similarity"], output["similarity"], atol=0, rtol=0)


def test_every_parameter_learns() -> None:
    model = NormMatch(replace(TINY, shared_streams=False))
    output = model.describe(random_pair(6, 6))
    (
        output["similarity"].square().sum() + output["layers0"][:, :, 0].sum() + output["layers1"][:, :, 1].sum()
    ).backward()
    idle = [name for name, p in model.head.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert idle == []


def test_a_config_is_what_the_model_is_made_of() -> None:
    model = NormMatch(replace(TINY, num_layers=3, dim=24, num_heads=2, spline_kernel=3))
    assert len(model.head.transformer.layers) == 3
    assert model.head.spline.conv1.weight.shape[1] == 3 * 3 * 24
    assert model(random_pair(3, 4))["descriptors0"].shape == (1, 3, 24)


# ------------------------------------------------------------------------------------------------------------ bad input


NAN, INF = float("nan"), float("inf")
GOOD = random_pair(4, 5)


def changed(key: str, place: tuple[int, ...], value: float) -> dict[str, Tensor]:
    tensor = GOOD[key].clone()
    tensor[place] = value
    return {key: tensor}


BAD_INPUT: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({"keypoints0": torch.zeros(1, 0, 2)}, "keypoints0"),
    "nan": (changed("keypoints1", (0, 2, 1), NAN), "keypoints1"),
    "infinite": (changed("keypoints0", (0, 0, 0), INF), "keypoints0"),
    "minus infinite": (changed("keypoints0", (0, 0, 0), -INF), "keypoints0"),
    "far right": (changed("keypoints1", (0, 0, 0), 10 * SIZE), "keypoints1"),
    "far above": (changed("keypoints0", (0, 0, 1), -3.0 * SIZE), "keypoints0"),
    "no keypoints": ({"keypoints1": None}, "keypoints1"),
    "keypoints of one image": ({"keypoints0": GOOD["keypoints0"][0]}, "keypoints0"),
    "three coordinates": ({"keypoints0": torch.rand(1, 4, 3)}, "keypoints0"),
    "integer keypoints": ({"keypoints0": GOOD["keypoints0"].long()}, "keypoints0"),
    "keypoints no tensor": ({"keypoints1": GOOD["keypoints1"].numpy()}, "keypoints1"),
    "keypoints for two images": ({"keypoints1": GOOD["keypoints1"].repeat(2, 1, 1)}, "keypoints1"),
    "no image": ({"image0": None}, "image0"),
    "image no tensor": ({"image0": GOOD["image0"].numpy()}, "image0"),
    "image without batch": ({"image1": GOOD["image1"][0]}, "image1"),
    "grey image": ({"image1": GOOD["image1"][:, :1]}, "image1"),
    "channels last": ({"image0": GOOD["image0"].permute(0, 2, 3, 1)}, "image0"),
    "image of no pixels": ({"image0": torch.zeros(1, 3, 0, SIZE)}, "image0"),
    "no images": ({"image0": torch.zeros(0, 3, SIZE, SIZE)}, "image0"),
    "bytes": ({"image0": (GOOD["image0"] * 255).byte()}, "image0"),
    "0 to 255": ({"image1": GOOD["image1"] * 255}, "image1"),
    "below 0": ({"image1": GOOD["image1"] - 0.5}, "image1"),
    "nan pixel": (changed("image0", (0, 0, 3, 3), NAN), "image0"),
    "another number of images": ({"image1": GOOD["image1"].repeat(2, 1, 1, 1)}, "1"),
    "too small": ({"image0": GOOD["image0"][:, :, :8, :8], "keypoints0": GOOD["keypoints0"] / 8}, "image"),
    "mask of floats": ({"mask0": torch.ones(1, 4)}, "mask0"),
    "mask too long": ({"mask1": torch.ones(1, 9, dtype=torch.bool)}, "mask1"),
    "mask no tensor": ({"mask1": [True] * 5}, "mask1"),
    "graph of floats": ({"adjacency0": torch.ones(1, 4, 4)}, "adjacency0"),
    "graph not square": ({"adjacency1": torch.ones(1, 5, 4, dtype=torch.bool)}, "adjacency1"),
    "features no features": ({"features0": GOOD["image0"]}, "features0"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gets_one_sentence_that_names_the_argument(model: NormMatch, case: str) -> None:
    change, argument = BAD_INPUT[case]
    with pytest.raises(InputError) as caught:
        model({**GOOD, **change})
    message = str(caught.value)
    assert argument in message
    assert "expected" in message or "but there are" in message
    assert "\n" not in message
    assert len(message) < 200


@pytest.mark.parametrize("key", ["image0", "image1", "keypoints0", "keypoints1"])
def test_missing_arguments_are_named(model: NormMatch, key: str) -> None:
    with pytest.raises(InputError, match=f"{key} is missing"):
        model({name: value for name, value in GOOD.items() if name != key})


@pytest.mark.parametrize("image", [(GOOD["image0"] * 255).byte(), GOOD["image0"] * 255, GOOD["image0"][0], None])
def test_encode_refuses_what_forward_refuses(model: NormMatch, image: Any) -> None:
    with pytest.raises(InputError, match="image"):
        model.encode(image)


def test_nan_in_padding_is_no_bad_input_but_nan_in_a_point_is(model: NormMatch) -> None:
    data = {**GOOD, **changed("keypoints0", (0, 3, 0), NAN)}
    data["mask0"] = torch.tensor([[True, True, True, False]])
    model(data)
    data["mask0"] = torch.tensor([[False, True, True, True]])
    with pytest.raises(InputError, match="keypoints0"):
        model(data)


@pytest.mark.parametrize(
    ("outside", "border"),
    [((-4.0, 20.0), (0.0, 20.0)), ((SIZE + 4.0, 20.0), (64.0, 20.0)), ((9.0, -4.0), (9.0, 0.0)),
     ((SIZE + 0.5, SIZE + 3.0), (64.0, 64.0))],
)  # fmt: skip
def test_points_slightly_outside_are_sampled_at_the_border(model: NormMatch, outside: tuple, border: tuple) -> None:
    data = random_pair(1, 4)  # a single point has no neighbours, so its place enters through sampling alone
    there = model({**data, "keypoints0": torch.tensor([[outside]])})
    here = model({**data, "keypoints0": torch.tensor([[border]])})
    assert_same(there, here)


def test_gradients_reach_the_keypoints(model: NormMatch) -> None:
    data = random_pair(6, 5)
    data["keypoints0"].requires_grad_()
    model.match(data)["similarity"].sum().backward()
    assert data["keypoints0"].grad is not None
    assert data["keypoints0"].grad.abs().max() > 0
