from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from normmatch.config import AugmentConfig
from normmatch.errors import ConfigError
from normmatch.training.augmentation import AugmentParams, covered, draw_params, fit_params, move_keypoints, render

SIZE = 64
OFF = AugmentConfig(affine=0, photometric=0, flip=0, mixup=0, cutmix=0, erase=0)
EACH = {
    "nothing": OFF,
    "affine": replace(OFF, affine=1),
    "wild affine": replace(OFF, affine=1, rotation=90, scale=(0.6, 1.7), shift=0.2),
    "flip": replace(OFF, flip=1),
    "flip and affine": replace(OFF, flip=0.5, affine=1),
    "photometric": replace(OFF, photometric=1),
    "mixup": replace(OFF, mixup=1),
    "cutmix": replace(OFF, cutmix=1),
    "erase": replace(OFF, erase=1),
    "all": AugmentConfig(flip=0.5, mixup=0.5, cutmix=0.5, erase=0.5),
}


def dotted(keypoints: np.ndarray, channel: int, background: int = 0) -> np.ndarray:
    """An image (3, S, S) with a soft dot in one colour at each keypoint: the pixel i covers i to i + 1."""
    centre = np.arange(SIZE) + 0.5
    image = np.full((3, SIZE, SIZE), float(background))
    for x, y in keypoints:
        distance = (centre[None, :] - x) ** 2 + (centre[:, None] - y) ** 2
        image[channel] += (255 - background) * np.exp(-distance / (2 * 1.5**2))
    return image.round().clip(0, 255).astype(np.uint8)


def centroid(image: torch.Tensor) -> np.ndarray:
    """Where the one dot in an image (S, S) is."""
    weight = (image - 0.4 * image.max() - 0.6 * image.median()).clamp_min(0)
    centre = torch.arange(SIZE) + 0.5
    return np.array([(weight.sum(0) * centre).sum() / weight.sum(), (weight.sum(1) * centre).sum() / weight.sum()])


def rendered_dots(config: AugmentConfig, seed: int) -> tuple[AugmentParams, np.ndarray, np.ndarray, np.ndarray]:
    """One pair: two red dots in image 0, green ones in image 1. Column 0 is L_Eye, column 1 R_Eye in both."""
    rng = np.random.default_rng(seed)
    keypoints = rng.uniform(14, SIZE - 14, (2, 1, 2, 2)).astype(np.float32)
    params = draw_params(rng, config, 1, SIZE)
    # one point has to be left over, so that there is something to see of coverings
    params, moved, present = fit_params(params, keypoints, np.ones((2, 1, 2), bool), np.array([[1, 0]]), SIZE, fewest=1)
    return params, keypoints, moved, present


@pytest.mark.parametrize("name", EACH)
def test_the_dot_is_where_the_moved_keypoint_says(name: str) -> None:
    found = 0
    for seed in range(15):
        params, keypoints, moved, present = rendered_dots(EACH[name], seed)
        for column in (0, 1):  # draw the point of one name at a time
            source = [1 - column if flip else column for flip in params.flip]
            images = np.stack([dotted(keypoints[side, 0, [source[side]]], channel=side) for side in (0, 1)])
            rendered = render(torch.from_numpy(images), params.tensors())
            for side in (0, 1):
                if present[side, 0, column] and near_box(params, side, moved[side, 0, column]) > 5:
                    np.testing.assert_allclose(centroid(rendered[side, side]), moved[side, 0, column], atol=0.5)
                    found += 1
    assert found >= 30  # of 60


def near_box(params: AugmentParams, image: int, point: np.ndarray) -> float:
    """Distance of a point to the nearest edge of a covered box or of the image; a dot cut in two has no true centre."""
    gaps = [*point, *(SIZE - point)]
    for box in (params.cut[image], params.erase[image]):
        if box[0] < box[2]:
            outside = np.maximum(np.maximum(box[:2] - point, point - box[2:]), 0)
            gaps.append(np.hypot(*outside))
    return min(gaps)


@pytest.mark.parametrize("name", ["cutmix", "erase"])
def test_covered_keypoints_are_not_to_be_seen(name: str) -> None:
    hidden = 0
    for seed in range(60):
        params, keypoints, moved, present = rendered_dots(replace(EACH[name], cover_area=(0.1, 0.4)), seed)
        images = np.stack([dotted(keypoints[side, 0], channel=side) for side in (0, 1)])
        rendered = render(torch.from_numpy(images), params.tensors())
        boxes = params.cut if name == "cutmix" else params.erase
        under = covered(boxes, moved[:, 0])  # (2, 2): side, column
        np.testing.assert_array_equal(~present[:, 0], [under.any(0)] * 2)
        for side, column in np.argwhere(under):
            x, y = moved[side, 0, column].astype(int)
            assert images[side, side, y, x] > 200
            assert rendered[side, side, y, x] < 0.2
            hidden += 1
    assert hidden > 5


def test_covered_means_the_pixel_under_the_point() -> None:
    rng = np.random.default_rng(0)
    params = draw_params(rng, replace(OFF, erase=1, cover_area=(0.1, 0.4)), 8, SIZE)
    images = torch.from_numpy(rng.integers(0, 256, (16, 3, SIZE, SIZE)).astype(np.uint8))
    changed = ((render(images, params.tensors()) - images / 255).abs() > 1e-3).any(1).numpy()  # (M, S, S)
    points = rng.uniform(0, SIZE, (16, 500, 2)).astype(np.float32)
    x, y = points.astype(int).transpose(2, 0, 1)
    np.testing.assert_array_equal(covered(params.erase, points), changed[np.arange(16)[:, None], y, x])


def test_boxes_have_the_area_asked_for_and_lie_inside() -> None:
    params = draw_params(np.random.default_rng(0), replace(OFF, cutmix=1, cover_area=(0.1, 0.2)), 500, 378)
    extent = params.cut[:, 2:] - params.cut[:, :2]
    assert params.cut.min() >= 0
    assert params.cut.max() <= 378
    area = extent.prod(1) / 378**2
    assert 0.098 < area.min() < 0.11
    assert 0.19 < area.max() < 0.202
    assert (params.erase == 0).all()


def test_neutral_augment_changes_no_pixel() -> None:
    images = torch.randint(0, 256, (4, 3, SIZE, SIZE), dtype=torch.uint8)
    params = draw_params(np.random.default_rng(0), OFF, 2, SIZE)
    torch.testing.assert_close(render(images, params.tensors()), images / 255, atol=1e-4, rtol=0)


def test_flip_is_the_mirror_image() -> None:
    images = torch.randint(0, 256, (4, 3, SIZE, SIZE), dtype=torch.uint8)
    params = draw_params(np.random.default_rng(0), EACH["flip"], 2, SIZE)
    torch.testing.assert_close(render(images, params.tensors()), images.flip(-1) / 255, atol=1e-4, rtol=0)
    points = np.array([[[10.0, 20.0]]] * 4, np.float32)
    np.testing.assert_allclose(move_keypoints(params, points, SIZE), [[[SIZE - 10, 20]]] * 4, atol=1e-4)


def test_everything_stays_between_black_and_white() -> None:
    config = AugmentConfig(gain=1.0, flip=0.5, mixup=1, cutmix=0.5, erase=0.5)
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.choice([0, 255], (32, 3, SIZE, SIZE)).astype(np.uint8))
    rendered = render(images, draw_params(rng, config, 16, SIZE).tensors())
    assert rendered.dtype == torch.float32
    assert rendered.shape == images.shape
    assert rendered.min() >= 0
    assert rendered.max() <= 1
    assert rendered.std() > 0.05


def test_mixup_has_the_share_it_says() -> None:
    params = draw_params(np.random.default_rng(0), replace(OFF, mixup=1, mixup_share=(0.7, 0.7)), 1, SIZE)
    images = torch.stack([torch.full((3, SIZE, SIZE), value, dtype=torch.uint8) for value in (255, 0)])
    rendered = render(images, params.tensors())
    torch.testing.assert_close(rendered.mean((1, 2, 3)), torch.tensor([0.7, 0.3]))


def test_partner_is_of_another_pair() -> None:
    params = draw_params(np.random.default_rng(0), OFF, 5, SIZE)
    assert (params.partner % 5 != np.arange(10) % 5).all()
    many = np.concatenate([draw_params(np.random.default_rng(s), OFF, 5, SIZE).partner for s in range(50)])
    assert set(many.tolist()) == set(range(10))


@pytest.mark.parametrize("field", ["affine", "photometric", "flip", "mixup", "cutmix", "erase"])
def test_each_has_a_probability_of_its_own(field: str) -> None:
    params = draw_params(np.random.default_rng(0), replace(OFF, **{field: 0.3}), 2000, SIZE)
    done = {
        "affine": (params.affine != np.eye(2, 3)).any((1, 2)),
        "photometric": (params.light != 1).any(1),
        "flip": params.flip,
        "mixup": params.share != 1,
        "cutmix": params.cut.any(1),
        "erase": params.erase.any(1),
    }
    for key, value in done.items():
        assert value.mean() == (0 if key != field else pytest.approx(0.3, abs=0.03))


def test_affine_is_changed_no_more_than_its_points_need() -> None:
    rng = np.random.default_rng(0)
    params = draw_params(rng, EACH["affine"], 50, SIZE)
    present, swap = np.ones((2, 50, 4), bool), np.tile(np.arange(4), (50, 1))
    middle = rng.uniform(24, 40, (2, 50, 4, 2)).astype(np.float32)
    np.testing.assert_allclose(fit_params(params, middle, present, swap, SIZE)[0].affine, params.affine, atol=1e-6)
    corners = np.broadcast_to(np.array([[0, 0], [SIZE, 0], [0, SIZE], [SIZE, SIZE]], np.float32), middle.shape)
    fitted, moved, _ = fit_params(params, corners, present, swap, SIZE)
    extent = np.ptp(moved, axis=2).max(-1)  # (2, 50)
    assert (extent > 0.84 * SIZE).all()  # still as large as asked for, or as fits
    assert (np.abs(fitted.affine[:, 0, 1]) > 1e-4).all()  # and still turned
    assert fit_params(params, corners, ~present, swap, SIZE)[0].affine == pytest.approx(
        params.affine
    )  # no points at all


def test_flip_swaps_names() -> None:
    """Column 0 is L_Eye, column 1 R_Eye, column 2 Nose. Mirrored, the left eye is where a right eye would be."""
    keypoints = np.array([[10, 5], [40, 5], [20, 30]], np.float32)
    both = np.stack([keypoints, keypoints])[:, None]
    params = draw_params(np.random.default_rng(0), OFF, 1, SIZE)
    params = replace(params, flip=np.array([True, False]))
    fitted, moved, _ = fit_params(params, both, np.ones((2, 1, 3), bool), np.array([[1, 0, 2]]), SIZE)
    np.testing.assert_allclose(moved[0, 0], [[SIZE - 40, 5], [SIZE - 10, 5], [SIZE - 20, 30]], atol=1e-4)
    np.testing.assert_allclose(moved[1, 0], keypoints, atol=1e-4)
    assert fitted.flip.tolist() == [True, False]


def test_no_flip_without_names_to_swap_or_without_enough_left() -> None:
    both = np.full((2, 2, 4, 2), 30, np.float32)
    params = replace(draw_params(np.random.default_rng(0), OFF, 2, SIZE), flip=np.array([True, True, False, False]))
    swap = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])  # the first pair has no left and right
    present = np.zeros((2, 2, 4), bool)
    present[:, :, [0, 2]] = True  # the second pair shows left points only: mirrored, image 0 would share none
    fitted, _, left = fit_params(params, both, present, swap, SIZE)
    assert not fitted.flip.any()
    np.testing.assert_array_equal(left, present)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), wild=st.booleans(), fewest=st.integers(2, 4))
def test_a_pair_never_falls_below_the_fewest_points(seed: int, wild: bool, fewest: int) -> None:
    rng = np.random.default_rng(seed)
    pairs, names = 6, 8
    config = AugmentConfig(flip=0.5, cutmix=1, erase=1, cover_area=(0.3, 1.0) if wild else (0.02, 0.2))
    config = replace(config, shift=1.0 if wild else 0.2)
    keypoints = rng.uniform(-4, SIZE + 4, (2, pairs, names, 2)).astype(np.float32)
    present = rng.random((2, pairs, names)) < 0.6
    present[:, :, :fewest] = True
    swap = np.tile([1, 0, 3, 2, 4, 5, 7, 6], (pairs, 1))
    swap[0] = np.arange(names)
    params, moved, left = fit_params(draw_params(rng, config, pairs, SIZE), keypoints, present, swap, SIZE, fewest)
    assert (left.all(0).sum(1) >= fewest).all()
    # exactly the names that are covered in either image have left both, and no point was taken out of the image
    flip = params.flip.reshape(2, pairs, 1)
    renamed = np.where(flip, np.take_along_axis(present, swap[None], 2), present)
    source = np.where(flip[..., None], np.take_along_axis(keypoints, swap[None, ..., None], 2), keypoints)
    flat = moved.reshape(-1, names, 2)
    hidden = (covered(params.cut, flat) | covered(params.erase, flat)).reshape(2, pairs, names)
    np.testing.assert_array_equal(left, renamed & ~(renamed & hidden).any(0))
    gone = ((moved < 0) | (moved > SIZE)).any(-1) & ((source >= 0) & (source <= SIZE)).all(-1)
    assert not (gone & renamed).any()


@pytest.mark.parametrize("wrong", [{"mixup": 1.5}, {"gain": 2}, {"scale": (0.0, 1.0)}, {"mixup_share": (0.9, 0.5)}])
def test_impossible_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        AugmentConfig(**wrong)
