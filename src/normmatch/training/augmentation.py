"""Training augmentation in two halves: the CPU draws parameters and moves the keypoints, the device renders the pixels.

    draw_params    random numbers for each image
    fit_params     move the keypoints; covered ones leave both images; what would leave too few is undone
    render         one batched pass over the pixels

The parameters are a handful of numbers per image, so a loader's worker never touches a pixel. torchvision's v2
transforms draw one set of parameters for a whole batch, so they do not serve here: every image needs its own.

Coordinates are x right, y down, pixel centres at +0.5: a flip maps x to S - x, and an affine map turns about S / 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from normmatch.config import AugmentConfig


@dataclass(frozen=True, eq=False)
class AugmentParams:
    """What happens to each of M images. A field that does nothing for an image holds its neutral value."""

    flip: np.ndarray  # (M,) bool: mirror first, names swapped
    mirror: np.ndarray  # (M,) bool: mirror once more, names as they are, where they tell no sides; both of a pair
    affine: np.ndarray  # (M, 2, 3) float32: then p' = A p + t, with the image's centre at 0 and its edges at +-1
    light: np.ndarray  # (M, 2) float32: gain of brightness, gain of contrast
    partner: np.ndarray  # (M,) int64: the other image, for mixup and cutmix
    share: np.ndarray  # (M,) float32: the own image's share in the mixup
    cut: np.ndarray  # (M, 4) float32: x0, y0, x1, y1, covered by the partner's pixels; empty where x0 = x1
    erase: np.ndarray  # (M, 4) float32: the same, covered by the image's mean colour

    def tensors(self) -> dict[str, Tensor]:
        """The parameters as entries of a batch, their names beginning with augment_."""
        return {f"augment_{item.name}": torch.from_numpy(getattr(self, item.name)) for item in fields(self)}


def draw_params(rng: np.random.Generator, config: AugmentConfig, pairs: int, size: int) -> AugmentParams:
    """Draw parameters for the 2 * pairs images of a batch: all images 0, then all images 1."""
    count = 2 * pairs
    light = rng.uniform(1 - config.gain, 1 + config.gain, (count, 2))
    share = rng.uniform(*config.mixup_share, count)
    return AugmentParams(
        flip=rng.random(count) < config.flip,
        affine=np.where(_happens(rng, config.affine, (count, 1, 1)), _draw_affine(rng, config, count), _identity()),
        light=np.where(_happens(rng, config.photometric, (count, 1)), light, 1.0).astype(np.float32),
        partner=_draw_partner(rng, pairs),
        share=np.where(_happens(rng, config.mixup, (count,)), share, 1.0).astype(np.float32),
        cut=np.where(_happens(rng, config.cutmix, (count, 1)), _draw_box(rng, config, count, size), 0),
        erase=np.where(_happens(rng, config.erase, (count, 1)), _draw_box(rng, config, count, size), 0),
        mirror=np.tile(_happens(rng, config.mirror, (pairs,)), 2) if config.mirror else np.zeros(count, bool),
    )


def _happens(rng: np.random.Generator, probability: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.random(shape) < probability


def _identity() -> np.ndarray:
    return np.eye(2, 3, dtype=np.float32)


def _draw_affine(rng: np.random.Generator, config: AugmentConfig, count: int) -> np.ndarray:
    """Scale of each axis, then rotation, then shift: (count, 2, 3)."""
    angle = np.deg2rad(rng.uniform(-config.rotation, config.rotation, count))
    scale = rng.uniform(*config.scale, (count, 1, 2))
    shift = 2 * rng.uniform(-config.shift, config.shift, (count, 2, 1))  # the image is 2 units wide
    rotation = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1).reshape(-1, 2, 2)
    return np.concatenate([rotation * scale, shift], axis=2).astype(np.float32)  # (count, 2, 3)


def _draw_partner(rng: np.random.Generator, pairs: int) -> np.ndarray:
    """An image of another pair for each image: (2 * pairs,). A ghost of its own counterpart would give it away."""
    if pairs == 1:
        return np.array([1, 0])  # there is no other pair
    own = np.tile(np.arange(pairs), 2)
    other = (own + rng.integers(1, pairs, 2 * pairs)) % pairs
    return other + pairs * rng.integers(0, 2, 2 * pairs)


def _draw_box(rng: np.random.Generator, config: AugmentConfig, count: int, size: int) -> np.ndarray:
    """Boxes on whole pixels inside the image, of an area in `cover_area` and a shape of 1:2 to 2:1: (count, 4)."""
    area = rng.uniform(*config.cover_area, count)
    shape = np.exp(rng.uniform(-np.log(2) / 2, np.log(2) / 2, count))
    extent = np.sqrt(area[:, None]) * np.stack([shape, 1 / shape], axis=1)  # (count, 2)
    extent = np.clip(np.rint(size * extent), 1, size)
    start = np.floor(rng.random((count, 2)) * (size - extent + 1))
    return np.concatenate([start, start + extent], axis=1).astype(np.float32)


def move_keypoints(params: AugmentParams, keypoints: np.ndarray, size: int) -> np.ndarray:
    """Keypoints (M, V, 2) of the source images, where they are in the rendered ones."""
    unit = keypoints * (2 / size) - 1  # edges of the image at +-1
    unit[..., 0] *= np.where(params.flip, -1, 1)[:, None]
    moved = unit @ params.affine[:, :, :2].transpose(0, 2, 1) + params.affine[:, None, :, 2]
    return ((moved + 1) * (size / 2)).astype(np.float32)


def add_noise(rng: np.random.Generator, keypoints: np.ndarray, largest: float) -> np.ndarray:
    """Keypoints (2, B, V, 2) put off their places, each image's by a standard deviation of its own, up to `largest`.

    People click beside a point, and detectors find it nearly: a network that has only seen exact ones trusts them.
    """
    if not largest:
        return keypoints
    deviation = rng.uniform(0, largest, (*keypoints.shape[:2], 1, 1))
    return (keypoints + deviation * rng.standard_normal(keypoints.shape)).astype(np.float32)


def covered(box: np.ndarray, keypoints: np.ndarray) -> np.ndarray:
    """Which keypoints (M, V, 2) lie on a pixel that box (M, 4) covers: (M, V)."""
    return np.all((keypoints >= box[:, None, :2]) & (keypoints < box[:, None, 2:]), axis=-1)


def fit_params(
    params: AugmentParams, keypoints: np.ndarray, present: np.ndarray, swap: np.ndarray, size: int, fewest: int = 2
) -> tuple[AugmentParams, np.ndarray, np.ndarray]:
    """Apply the parameters to the keypoints, and undo what would leave a pair too few points in common.

    A point that is covered in one image leaves both, whether or not the sampling shows points without a partner. A
    flip or a covering that would leave fewer than `fewest` names present in both images of a pair is not done: a flip
    for the whole pair, a covering for its image. An affine map takes no point out of its image: it is changed by as
    little as that needs.

    Args:
        keypoints: (2, B, V, 2), by name: column v of pair b is the same name in both images
        present: (2, B, V), which of them there are
        swap: (B, V), the column of the name that column v has in a mirror; a row that swaps nothing is never flipped

    Returns:
        the parameters to render with, the moved keypoints, and which of them are present.
    """
    params, keypoints, present = _fit_flip(params, keypoints, present, swap, fewest)
    mirror = params.mirror & np.tile((swap == np.arange(swap.shape[1])).all(1), 2)
    params = replace(params, mirror=mirror, flip=params.flip | mirror)
    params = _fit_affine(params, keypoints, present, size)
    keypoints = move_keypoints(params, keypoints.reshape(len(params.flip), -1, 2), size).reshape(keypoints.shape)
    params, present = _fit_boxes(params, keypoints, present, fewest)
    return params, keypoints, present


def _fit_flip(
    params: AugmentParams, keypoints: np.ndarray, present: np.ndarray, swap: np.ndarray, fewest: int
) -> tuple[AugmentParams, np.ndarray, np.ndarray]:
    """Give the points of mirrored images their new names; where they are in the image is for _fit_affine."""
    pairs, names = swap.shape
    flip = params.flip.reshape(2, pairs) & (swap != np.arange(names)).any(1)
    column = np.where(flip[..., None], swap, np.arange(names))  # (2, B, V): under which name the point was
    flip &= _enough(np.take_along_axis(present, column, 2), fewest)
    column = np.where(flip[..., None], swap, np.arange(names))
    present = np.take_along_axis(present, column, 2)
    keypoints = np.take_along_axis(keypoints, column[..., None], 2)
    return replace(params, flip=flip.reshape(-1)), keypoints, present


def _fit_affine(params: AugmentParams, keypoints: np.ndarray, present: np.ndarray, size: int) -> AugmentParams:
    """Shrink and shift the affine maps by as little as keeps the points inside that were inside.

    Crops are tight, so their points touch the edges. Dropping what leaves the image instead would take 22 % of
    PascalVOC's training points away, and 63 % of its screens would not be jittered at all.
    """
    keep = (present & _inside(keypoints, size)).reshape(len(params.flip), -1, 1)  # (M, V, 1)
    flat = keypoints.reshape(len(params.flip), -1, 2)
    moved = move_keypoints(params, flat, size) * (2 / size) - 1  # (M, V, 2), edges of the image at +-1
    low = np.where(keep, moved, np.inf).min(1, initial=np.inf)  # (M, 2)
    high = np.where(keep, moved, -np.inf).max(1, initial=-np.inf)
    edge = 1 - 1e-3  # a hair's breadth inside, for rounding
    shrink = np.minimum(1, 2 * edge / np.maximum(high - low, 1e-6).max(1))  # (M,)
    affine = params.affine * shrink[:, None, None]
    low, high = low * shrink[:, None], high * shrink[:, None]
    affine[:, :, 2] += np.maximum(-edge - low, 0) + np.minimum(edge - high, 0)
    return replace(params, affine=np.where(keep.any(1)[..., None], affine, params.affine).astype(np.float32))


def _fit_boxes(
    params: AugmentParams, keypoints: np.ndarray, present: np.ndarray, fewest: int
) -> tuple[AugmentParams, np.ndarray]:
    """Take the points that are covered in one image out of both, and undo the boxes that would cover too many."""
    pairs = present.shape[1]
    boxes = {"cut": params.cut.copy(), "erase": params.erase.copy()}
    for box in boxes.values():
        for side in (0, 1):
            own = box[side * pairs : (side + 1) * pairs]  # (B, 4), a view
            left = present & ~(present[side] & covered(own, keypoints[side]))  # (2, B, V)
            done = _enough(left, fewest)
            own[~done] = 0
            present = np.where(done[:, None], left, present)
    return replace(params, **boxes), present


def _enough(present: np.ndarray, fewest: int) -> np.ndarray:
    return present.all(0).sum(1) >= fewest  # (2, B, V) -> (B,)


def _inside(keypoints: np.ndarray, size: int) -> np.ndarray:
    return np.all((keypoints >= 0) & (keypoints <= size), axis=-1)


def render(images: Tensor, params: Mapping[str, Tensor]) -> Tensor:
    """Augment uint8 images (M, 3, S, S) by `AugmentParams.tensors`: float32 in [0, 1], on the images' device."""
    size = images.shape[-1]
    own = F.grid_sample(
        images.float() / 255,
        F.affine_grid(
            _source(params["augment_affine"], params["augment_flip"]), list(images.shape), align_corners=False
        ),
        mode="bilinear",
        padding_mode="border",  # crops are tight: black corners would be edges beside the keypoints, in training only
        align_corners=False,
    )
    brightness, contrast = params["augment_light"].view(-1, 2, 1, 1, 1).unbind(1)  # (M, 1, 1, 1) each
    own = (torch.lerp(own.mean((1, 2, 3), keepdim=True), own, contrast) * brightness).clamp(0, 1)
    other = own[params["augment_partner"]]
    mixed = torch.lerp(other, own, params["augment_share"].view(-1, 1, 1, 1))
    mixed = torch.where(_box_mask(params["augment_cut"], size), other, mixed)
    return torch.where(_box_mask(params["augment_erase"], size), mixed.mean((2, 3), keepdim=True), mixed)


def _source(affine: Tensor, flip: Tensor) -> Tensor:
    """Where a rendered point comes from, for affine_grid: p = F A^-1 (p' - t), with F the mirror; (M, 2, 3)."""
    (a, b, x), (c, d, y) = (row.unbind(1) for row in affine.unbind(1))
    sign = torch.where(flip, -1.0, 1.0)
    rows = [torch.stack([d, -b, b * y - d * x], 1) * sign[:, None], torch.stack([-c, a, c * x - a * y], 1)]
    return torch.stack(rows, dim=1) / (a * d - b * c).view(-1, 1, 1)


def _box_mask(box: Tensor, size: int) -> Tensor:
    """The pixels whose centre is in the box (M, 4): (M, 1, S, S)."""
    centre = torch.arange(size, device=box.device) + 0.5
    x0, y0, x1, y1 = box.unsqueeze(-1).unbind(1)  # (M, 1) each
    across = (centre >= x0) & (centre < x1)  # (M, S)
    down = (centre >= y0) & (centre < y1)
    return (down.unsqueeze(2) & across.unsqueeze(1)).unsqueeze(1)
