from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from normmatch.annotations import Annotation
from normmatch.config import AugmentConfig
from normmatch.datasets.types import PreparedSplit, Sampling
from normmatch.errors import ConfigError, DataError
from normmatch.training.batches import ImagesOnDevice, TrainBatches, batch_images

SIZE = 48
NAMES = ("L_Eye", "R_Eye", "Nose", "L_Ear", "R_Ear", "Tail", "Chin", "L_Paw", "R_Paw")
EVERYTHING = AugmentConfig(flip=0.5, mixup=0.5, cutmix=0.5, erase=0.5)


def make_split(pairs: np.ndarray | None = None, rest: tuple[Annotation, ...] = ()) -> PreparedSplit:
    """36 objects of three classes of unequal size; the colour at a keypoint tells its name (red) and object (green)."""
    rng = np.random.default_rng(0)
    objects, images = [], rng.integers(0, 3, (36 + len(rest), SIZE, SIZE, 3)).astype(np.uint8)
    for i in range(36):
        label = "cat" if i < 24 else "dog" if i < 32 else "owl"
        columns = np.sort(rng.permutation(len(NAMES))[: rng.integers(3, len(NAMES) + 1)])
        cells = rng.permutation(36)[: len(columns)]  # a point in a cell of a 6 x 6 grid: never two on one spot
        keypoints = (np.stack([cells % 6, cells // 6], 1) * 8 + 4.0).astype(np.float32)
        for name, (x, y) in zip(columns, keypoints.astype(int), strict=True):
            images[i, y - 2 : y + 2, x - 2 : x + 2, :2] = 20 + 20 * name, 20 + 6 * i
        names = tuple(NAMES[v] for v in columns)
        objects.append(Annotation(f"{i}.jpg", names, keypoints, label=label))
    return PreparedSplit(images, (*objects, *rest), pairs)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture(scope="module")
def split() -> PreparedSplit:
    return make_split()


def test_a_step_is_the_same_with_any_number_of_workers(split: PreparedSplit) -> None:
    batches = TrainBatches(split, 8, seed=1, augment=EVERYTHING, with_images=True)
    runs = []
    for workers in (0, 2):
        loader = DataLoader(batches, batch_size=None, sampler=range(5, 11), num_workers=workers)
        runs.append(list(loader))
    assert len(runs[0]) == 6
    assert all(equal(a, b) for a, b in zip(*runs, strict=True))
    assert equal(runs[0][2], batches[7])  # as if training had stopped and gone on at step 7
    assert not torch.equal(runs[0][0]["index0"], runs[0][1]["index0"])
    assert not torch.equal(TrainBatches(split, 8, seed=2)[5]["index0"], runs[0][0]["index0"])


def test_augmentation_does_not_change_which_pairs_are_drawn(split: PreparedSplit) -> None:
    plain, augmented = TrainBatches(split, 8, seed=0), TrainBatches(split, 8, seed=0, augment=EVERYTHING)
    assert torch.equal(plain[3]["index0"], augmented[3]["index0"])
    assert "augment_affine" in augmented[3]
    assert "augment_affine" not in plain[3]


@pytest.mark.parametrize("sampling", ["intersection", "inclusion", "all"])
@pytest.mark.parametrize("flip", [0.0, 0.5])
def test_matches_are_the_same_names_in_the_pixels(split: PreparedSplit, sampling: Sampling, flip: float) -> None:
    """Read the name of every point from the colour under it, after shuffling, drops and flips."""
    config = AugmentConfig(affine=0, photometric=0, mixup=0, flip=flip, cutmix=0.4, erase=0.4, cover_area=(0.05, 0.3))
    batches = TrainBatches(split, 16, seed=0, sampling=sampling, augment=config, with_images=True)
    mirror = np.array([1, 0, 2, 4, 3, 5, 6, 8, 7])
    unmatched, flipped = 0, 0
    for step in range(6):
        batch = batches[step]
        images = batch_images(batch)
        names = []
        for side in (0, 1):
            seen = np.full(batch["mask0"].shape, -1)
            for b, k in batch[f"mask{side}"].nonzero().tolist():
                x, y = batch[f"keypoints{side}"][b, k].long().tolist()
                red, green = (images[side][b, :2, y, x] * 255).round().long().tolist()
                assert green == 20 + 6 * batch[f"index{side}"][b]  # the point is on its own object, not covered
                name = (red - 20) // 20
                mirrored = batch["augment_flip"][side * 16 + b]
                flipped += int(mirrored)
                seen[b, k] = mirror[name] if mirrored else name
            names.append(seen)
        for b, row in enumerate(batch["gt_matches0"].numpy()):
            for k in np.flatnonzero(batch["mask0"][b]):
                if row[k] >= 0:
                    assert names[0][b, k] == names[1][b, row[k]]
                else:
                    assert names[0][b, k] not in names[1][b]
                    unmatched += 1
            assert (row >= 0).sum() >= 2
            if sampling == "intersection":
                assert batch["mask1"][b].sum() == (row >= 0).sum()
    assert (unmatched > 0) == (sampling == "all")
    assert (flipped > 0) == (flip > 0)


@pytest.mark.parametrize("sampling", ["intersection", "inclusion", "all"])
def test_covered_keypoints_leave_both_images(sampling: Sampling) -> None:
    """Both objects have all names, so a point without a partner could only be one whose partner was covered."""
    rng = np.random.default_rng(0)
    objects = [
        Annotation(f"{i}.jpg", NAMES, rng.uniform(0, SIZE, (9, 2)).astype(np.float32), label="cat") for i in range(4)
    ]
    split = PreparedSplit(np.zeros((4, SIZE, SIZE, 3), np.uint8), objects)
    config = AugmentConfig(affine=0, photometric=0, mixup=0, cutmix=0.5, erase=0.5, cover_area=(0.1, 0.3))
    batch = TrainBatches(split, 64, seed=0, sampling=sampling, augment=config)[0]
    count = batch["mask0"].sum(1)
    assert torch.equal(count, batch["mask1"].sum(1))
    assert torch.equal(count, (batch["gt_matches0"] >= 0).sum(1))
    assert 2 <= count.min() < 6
    assert count.max() == 9


def test_noise_moves_the_points_and_nothing_else(split: PreparedSplit) -> None:
    still = AugmentConfig(affine=0, photometric=0, mixup=0)
    plain = TrainBatches(split, 64, seed=0, augment=still)[0]
    noisy = TrainBatches(split, 64, seed=0, augment=replace(still, noise=4.0))[0]
    for key in ("index0", "index1", "mask0", "augment_affine"):
        assert torch.equal(plain[key], noisy[key])
    moved = []
    for i in "01":  # in another order, so by name
        for b in range(64):
            for name in plain[f"name_ids{i}"][b][plain[f"mask{i}"][b]]:
                a, z = (x[f"keypoints{i}"][b][x[f"name_ids{i}"][b] == name] for x in (plain, noisy))
                moved.append((z - a).flatten())
    off = torch.stack(moved)
    assert off.mean(0).abs().max() < 0.3
    assert off.std().item() == pytest.approx(4 / 3**0.5, rel=0.15)  # deviations are uniform from 0 to 4


def test_classes_have_equal_chances(split: PreparedSplit) -> None:
    batches = TrainBatches(split, 64, seed=0)
    drawn = [batches[step] for step in range(20)]
    labels = Counter(split.objects[i].label for batch in drawn for i in batch["index0"].tolist())
    assert set(labels) == {"cat", "dog", "owl"}
    assert all(abs(count / 1280 - 1 / 3) < 0.05 for count in labels.values())
    for batch in drawn:
        assert (batch["index0"] != batch["index1"]).all()
        assert all(
            split.objects[i].label == split.objects[j].label
            for i, j in zip(batch["index0"].tolist(), batch["index1"].tolist(), strict=True)
        )
    # over many steps every object is seen on both sides
    for side in ("index0", "index1"):
        assert {i for batch in drawn for i in batch[side].tolist()} == set(range(36))


def test_own_pairs_of_a_split_are_drawn() -> None:
    pairs = np.array([[0, 1], [2, 3], [25, 26]])
    batches = TrainBatches(make_split(pairs), 32, seed=0)
    drawn = {
        tuple(sorted(pair)) for pair in zip(*(batches[0][key].tolist() for key in ("index0", "index1")), strict=True)
    }
    assert drawn == {(0, 1), (2, 3), (25, 26)}
    with pytest.raises(DataError, match=r"pair 1 joins cat and owl"):
        TrainBatches(make_split(np.array([[0, 1], [0, 35]])), 4, seed=0)


def test_what_gives_no_pair_is_counted() -> None:
    lonely = Annotation("e.jpg", NAMES[:3], np.zeros((3, 2), np.float32), label="elk")
    poor = Annotation("p.jpg", NAMES[:1], np.zeros((1, 2), np.float32), label="cat")
    assert TrainBatches(make_split(rest=(lonely,)), 4, seed=0).skipped == {"class elk gives no pair": 1}
    batches = TrainBatches(make_split(np.array([[0, 1], [0, 36]]), (poor,)), 4, seed=0)
    assert batches.skipped == {"pair shares fewer than 2 keypoints": 1}
    assert 36 not in batches[0]["index1"]
    with pytest.raises(DataError, match="nothing to train on"):
        TrainBatches(make_split(np.array([[0, 36]]), (poor,)), 4, seed=0)
    with pytest.raises(ConfigError, match="min_shared is 1"):
        TrainBatches(make_split(), 4, seed=0, min_shared=1)


def test_a_mirror_name_that_no_object_has_is_known() -> None:
    names = ("L_Eye", "L_Ear", "Nose", "Tail")
    keypoints = np.array([[8, 8], [40, 8], [8, 40], [40, 40]], np.float32)
    objects = [Annotation(f"{i}.jpg", names, keypoints, label="cat") for i in range(2)]
    split = PreparedSplit(np.zeros((2, SIZE, SIZE, 3), np.uint8), objects)
    batch = TrainBatches(split, 64, seed=0, augment=AugmentConfig(affine=0, flip=0.5))[0]
    flip = batch["augment_flip"].view(2, 64)
    # mirrored against unmirrored, only Nose and Tail have the same name
    assert batch["mask0"].sum(1).tolist() == torch.where(flip[0] != flip[1], 2, 4).tolist()
    assert 10 < (flip[0] != flip[1]).sum() < 54


@pytest.mark.parametrize("augment", [None, EVERYTHING])
def test_bank_and_batch_give_the_same_pixels(split: PreparedSplit, augment: AugmentConfig | None) -> None:
    batch = TrainBatches(split, 4, seed=0, augment=augment, with_images=True)[0]
    assert batch["image0"].shape == (4, 3, SIZE, SIZE)
    assert batch["image0"].dtype == torch.uint8
    carried, banked = batch_images(batch), batch_images(batch, ImagesOnDevice(split.images, "cpu"))
    for side in (0, 1):
        assert carried[side].shape == (4, 3, SIZE, SIZE)
        assert torch.equal(carried[side], banked[side])
    if augment is None:
        source = split.images[batch["index1"].numpy()].transpose(0, 3, 1, 2) / 255
        np.testing.assert_allclose(carried[1].numpy(), source, atol=1e-6)


def places_config(**changes: object) -> AugmentConfig:
    plain = AugmentConfig(photometric=0, mixup=0, affine=0)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_all_points_of_both_objects_are_told_by_column(split: PreparedSplit) -> None:
    batches = TrainBatches(split, 8, seed=0, places=True)
    batch = batches[0]
    for side in (0, 1):
        index = batch[f"index{side}"].numpy()
        assert torch.equal(batch[f"present{side}"], torch.from_numpy(batches.table.present[index]))
        np.testing.assert_allclose(batch[f"places{side}"] * SIZE, batches.table.keypoints[index], atol=1e-4)
    assert (batch["present0"] ^ batch["present1"]).any()  # matching is shown shared points alone


def test_sizes_take_turns_and_points_stay_on_their_colours(split: PreparedSplit) -> None:
    """Red tells a name where the image is read at a keypoint, at any size."""
    batches = TrainBatches(split, 16, seed=0, augment=places_config(sizes=(48, 96)), places=True, with_images=True)
    sides = set()
    for step in range(6):
        batch = batches[step]
        image0, _ = batch_images(batch)
        sides.add(image0.shape[-1])
        assert image0.shape[-1] == len(batch["image_side"])
        for b, v in batch["present0"].nonzero().tolist():
            x, y = (batch["places0"][b, v] * image0.shape[-1]).long().tolist()
            name = batches.table.names[split.objects[int(batch["index0"][b])].label][v]
            assert image0[b, 0, y, x] * 255 == pytest.approx(20 + 20 * NAMES.index(name), abs=3)
    assert sides == {48, 96}
    assert equal(batches[3], TrainBatches(split, 16, 0, augment=batches.augment, places=True, with_images=True)[3])


def test_pairs_of_one_photograph_show_the_same_pixels_at_their_points() -> None:
    smooth = np.linspace(0, 255, SIZE * SIZE * 3).reshape(1, SIZE, SIZE, 3).repeat(36, 0).astype(np.uint8)
    split = replace(make_split(), images=smooth)
    config = places_config(affine=1, self_pairs=0.5)
    batches = TrainBatches(split, 8, seed=0, augment=config, places=True, with_images=True, points=24)
    batch = batches[0]
    own = batch["index0"] == batch["index1"]
    assert own.sum() == 4
    assert not batch["mask0"][own].any()  # they have no names to be matched by
    assert batch["mask0"][~own].any(1).all()
    image0, image1 = batch_images(batch)
    both = batch["present0"] & batch["present1"]
    assert both[own].any()
    for b, v in (both & own.unsqueeze(1)).nonzero().tolist():
        colours = []
        for image, side in ((image0, 0), (image1, 1)):
            x, y = (batch[f"places{side}"][b, v] * SIZE).long().clamp(0, SIZE - 1).tolist()
            colours.append(image[b, :, y, x])
        torch.testing.assert_close(*colours, atol=0.06, rtol=0)
    gone = ~torch.from_numpy(np.all((batch["places0"].numpy() >= 0) & (batch["places0"].numpy() <= 1), axis=-1))
    assert not (batch["present0"] & gone).any()


def test_both_images_are_mirrored_and_names_stay_where_they_tell_no_sides() -> None:
    sided = make_split()
    numbers = {name: str(i) for i, name in enumerate(NAMES)}
    objects = tuple(replace(item, names=tuple(numbers[name] for name in item.names)) for item in sided.objects)
    split = replace(sided, objects=objects)
    assert not TrainBatches(sided, 8, seed=0, augment=places_config(mirror=1))[0]["augment_mirror"].any()
    plain = TrainBatches(split, 8, seed=0, augment=places_config(), places=True)[0]
    mirrored = TrainBatches(split, 8, seed=0, augment=places_config(mirror=1), places=True)[0]
    for side in "01":
        present = plain[f"present{side}"]
        assert torch.equal(present, mirrored[f"present{side}"])
        expected = torch.stack([1 - plain[f"places{side}"][..., 0], plain[f"places{side}"][..., 1]], -1)
        torch.testing.assert_close(mirrored[f"places{side}"][present], expected[present], atol=1e-4, rtol=0)
        assert (mirrored[f"name_ids{side}"] == -1).all()


def test_strays_are_points_without_partner(split: PreparedSplit) -> None:
    def unmatched(strays: float) -> int:
        batches = TrainBatches(split, 32, seed=0, augment=places_config(strays=strays))
        return sum(int((batches[k]["mask0"] & (batches[k]["gt_matches0"] < 0)).sum()) for k in range(3))

    assert unmatched(0) == 0
    assert 0 < unmatched(0.3) < unmatched(1)


def test_a_dataset_is_shown_by_its_share(split: PreparedSplit) -> None:
    labels = {"cat": "a/cat", "dog": "a/dog", "owl": "b/owl"}
    objects = tuple(replace(item, label=labels[item.label]) for item in split.objects)
    batches = TrainBatches(replace(split, objects=objects), 64, seed=0, shares={"a": 1.0, "b": 3.0})
    shown = Counter(objects[int(i)].label for k in range(10) for i in batches[k]["index0"])
    assert shown["b/owl"] / shown.total() == pytest.approx(0.75, abs=0.06)
    assert shown["a/cat"] / shown["a/dog"] == pytest.approx(1, abs=0.35)
