"""WILLOW-ObjectClass: 20 training images a class, Matlab's coordinates, and the real ducks."""

import shutil
import tarfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from normmatch.datasets import willow
from normmatch.errors import DataError
from tests.datasets import layouts


@pytest.fixture
def root(tmp_path: Path) -> Path:
    layouts.make_willow(tmp_path)
    return tmp_path


def test_twenty_training_images_a_class(root: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing to warn of here
        splits = [willow.load(root, seed=seed).splits for seed in (0, 0, 1)]
    for split in splits:
        assert Counter(obj.label for obj in split["train"].objects) == {"Car": 16, "Duck": 16}
        assert Counter(obj.label for obj in split["val"].objects) == {"Car": 4, "Duck": 4}
        assert Counter(obj.label for obj in split["test"].objects) == {"Car": 4, "Duck": 4}
        assert len({obj.image for part in split.values() for obj in part.objects}) == 48
    for name in ("val", "test"):
        chosen = [[obj.path.name for obj in split[name].objects] for split in splits]
        assert chosen[0] == chosen[1] != chosen[2]
    assert {name: len(s.objects) for name, s in willow.load(root, val_share=0).splits.items()} == {
        "train": 40,
        "test": 8,
    }


def test_keypoints_are_named_by_number_and_half_a_pixel_off_matlab(root: Path) -> None:
    obj = willow.load(root / "WILLOW-ObjectClass").splits["test"].objects[0]
    raw = scipy.io.loadmat(obj.path.with_suffix(".mat"))["pts_coord"]
    np.testing.assert_allclose(obj.keypoints, raw.T - 0.5, atol=1e-5)
    assert obj.names == tuple("0123456789")
    assert obj.box is None
    assert obj.keypoints.dtype == np.float64


def test_small_class_is_halved_with_a_warning(tmp_path: Path) -> None:
    layouts.make_willow(tmp_path, ("Face",), images=21)
    with pytest.warns(UserWarning, match="Face has 21 usable images"):
        splits = willow.load(tmp_path).splits
    assert {name: len(split.objects) for name, split in splits.items()} == {"train": 8, "val": 2, "test": 11}


def test_too_few_images_for_a_validation_split(tmp_path: Path) -> None:
    layouts.make_willow(tmp_path, ("Face",), images=7)
    with pytest.warns(UserWarning, match="Face has 7 usable images"):
        assert {name: len(s.objects) for name, s in willow.load(tmp_path).splits.items()} == {"train": 3, "test": 4}


def test_bad_files_are_skipped_and_counted(root: Path) -> None:
    folder = root / "WILLOW-ObjectClass" / "Car"
    for index in range(5):
        shutil.copy(folder / "car_0000.png", folder / f"more_{index}.png")
    (folder / "more_1.mat").write_bytes(b"MATLAB 5.0 cut")
    scipy.io.savemat(folder / "more_2.mat", {"pts_coord": np.ones((2, 9))})
    scipy.io.savemat(folder / "more_3.mat", {"pts_coord": np.full((2, 10), np.nan)})
    scipy.io.savemat(folder / "more_4.mat", {"other": 1})
    layouts.make_image(folder / "car_0001.jpg")
    sentence = "6 images with a .mat that is missing or broken, or that another image has"
    with pytest.warns(UserWarning, match=f"willow is not whole, left out: {sentence}"):
        dataset = willow.load(root)
    assert sum(dataset.skipped.values()) == 6
    assert sum(len(split.objects) for split in dataset.splits.values()) == 48


def test_errors_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        willow.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no folder of a WILLOW class"):
        willow.load(tmp_path)
    (tmp_path / "Duck").mkdir()
    with pytest.raises(DataError, match=r"has no image .* \(nothing was found\)"):
        willow.load(tmp_path)


def test_real_ducks(shared_datasets: Path, tmp_path: Path) -> None:
    with tarfile.open(shared_datasets / "WILLOW-Duck-sample.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    with pytest.warns(UserWarning, match="Duck has 12 usable images"):
        dataset = willow.load(tmp_path)
    objects = [obj for split in dataset.splits.values() for obj in split.objects]
    assert len(objects) == 12
    assert not dataset.skipped
    for obj in objects:
        beak, eye, tail = obj.keypoints[0], obj.keypoints[1], obj.keypoints[7]
        assert np.linalg.norm(beak - eye) < np.linalg.norm(tail - eye), f"{obj.path.name}: a duck's eye is at its beak"
