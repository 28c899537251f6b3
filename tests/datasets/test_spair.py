"""SPair-71k: pairs and keypoints from the images' annotations, and the real sample."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from normmatch.datasets import spair
from normmatch.datasets.types import Dataset
from normmatch.errors import DataError
from tests.datasets import layouts

pytestmark = pytest.mark.filterwarnings("ignore:.* is not whole")  # where it matters, a test asks for the warning


@pytest.fixture
def root(tmp_path: Path) -> Path:
    layouts.make_spair(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def real(shared_datasets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("spair")
    with tarfile.open(shared_datasets / "SPair-71k-sample.tar") as archive:
        archive.extractall(root, filter="data")
    return root


def assert_agrees_with_pair_annotation(dataset: Dataset, split: str, folder: Path) -> int:
    """Each pair's common keypoints are those that its PairAnnotation lists; returns how many pairs were compared."""
    annotations = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    objects, pairs = dataset.splits[split].objects, dataset.splits[split].pairs
    assert pairs is not None
    for (index0, index1), annotation in zip(pairs, annotations, strict=True):
        points0, points1 = (dict(zip(objects[i].names, objects[i].keypoints, strict=True)) for i in (index0, index1))
        shared = [name for name in points0 if name in points1]
        assert objects[index0].path.name == annotation["src_imname"]
        assert objects[index1].path.name == annotation["trg_imname"]
        assert objects[index0].label == objects[index1].label == annotation["category"]
        assert shared == annotation["kps_ids"]
        np.testing.assert_array_equal([points0[name] - 0.5 for name in shared], annotation["src_kps"])
        np.testing.assert_array_equal([points1[name] - 0.5 for name in shared], annotation["trg_kps"])
    return len(annotations)


def test_pairs_are_those_of_layout(root: Path) -> None:
    dataset = spair.load(root)
    assert (dataset.name, dataset.protocol, list(dataset.splits)) == ("spair-71k", "nmt", ["train", "val", "test"])
    for split, folder in spair.SPLITS.items():
        annotations = root / "SPair-71k" / "PairAnnotation" / folder
        assert assert_agrees_with_pair_annotation(dataset, split, annotations) == 24
        assert len(dataset.splits[split].objects) == 8
    assert not dataset.skipped


def test_keypoints_come_without_pair_annotation(root: Path) -> None:
    before = spair.load(root).splits["val"]
    shutil.rmtree(root / "SPair-71k" / "PairAnnotation")
    after = spair.load(root / "SPair-71k").splits["val"]  # and root may be SPair-71k itself
    np.testing.assert_array_equal(before.pairs, after.pairs)
    for old, new in zip(before.objects, after.objects, strict=True):
        assert old.names == new.names
        np.testing.assert_array_equal(old.keypoints, new.keypoints)


def test_pairs_come_without_layout(root: Path) -> None:
    before = spair.load(root).splits["val"]
    shutil.rmtree(root / "SPair-71k" / "Layout")
    np.testing.assert_array_equal(spair.load(root).splits["val"].pairs, before.pairs)


@pytest.mark.parametrize("separator", [":", "_"])
def test_names_with_colon_or_underscore(tmp_path: Path, separator: str) -> None:
    layouts.make_spair(tmp_path, separator=separator)
    kept = spair.load(tmp_path)  # Layout has ":", the files have the separator
    assert len(kept.splits["test"].pairs) == 24
    shutil.rmtree(tmp_path / "SPair-71k" / "Layout")
    again = spair.load(tmp_path)  # both have the separator
    np.testing.assert_array_equal(again.splits["test"].pairs, kept.splits["test"].pairs)


def test_crop_or_whole_image(root: Path) -> None:
    assert all(obj.box is None for obj in spair.load(root, protocol="bbgm").splits["val"].objects)
    # bndbox [6, 5, 64, 56] numbers pixels from 1: columns 6..64 lie from the edge at 5 to the edge at 64
    assert spair.load(root, protocol="thinkmatch").splits["val"].objects[0].box == (5, 4, 59, 52)


BROKEN = "pairs of images whose files are missing or broken"


@pytest.mark.parametrize(
    "change",
    [
        "{",
        "[]",
        '{"kps": {"0": [1, "x"]}, "bndbox": [1, 1, 9, 9]}',
        '{"kps": {"0": null}, "bndbox": [1, 1, 9, 9]}',  # no keypoints
        '{"kps": {"0": [3, 4]}, "bndbox": [9, 1, 9, 9]}',  # an empty box
        None,
    ],
)
def test_bad_image_annotation_is_skipped_and_counted(root: Path, change: str | None) -> None:
    path = root / "SPair-71k" / "ImageAnnotation" / "cat" / "2009_000000.json"
    path.unlink()
    if change is not None:
        path.write_text(change)
    dataset = spair.load(root, protocol="thinkmatch")
    assert dict(dataset.skipped) == {BROKEN: 3 * 6}  # it is in six of the twelve pairs of its class
    assert all(obj.path.stem != "2009_000000" for obj in dataset.splits["val"].objects)
    assert len(dataset.splits["val"].pairs) == 18


def test_missing_image_and_odd_names_are_counted(root: Path) -> None:
    (root / "SPair-71k" / "JPEGImages" / "dog" / "2009_000005.jpg").unlink()
    layout = root / "SPair-71k" / "Layout" / "large" / "val.txt"
    first = layout.read_text().split()[0]
    layout.write_text(layout.read_text() + f"nonsense\n{first}\n000099-2009_000000-2009_000001:unicorn\n")
    with pytest.warns(UserWarning, match=f"20 {BROKEN}"):
        dataset = spair.load(root)
    assert dict(dataset.skipped) == {BROKEN: 3 * 6 + 2}


def test_errors_are_one_sentence(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        spair.load(tmp_path / "nowhere")
    shutil.rmtree(root / "SPair-71k" / "JPEGImages")
    with pytest.raises(DataError, match=f"no usable pair .72 {BROKEN}"):
        spair.load(root)
    shutil.rmtree(root / "SPair-71k" / "ImageAnnotation")
    with pytest.raises(DataError, match="There is no ImageAnnotation in"):
        spair.load(root)


def test_real_pairs_agree_with_pair_annotation(real: Path) -> None:
    dataset = spair.load(real)
    assert list(dataset.splits) == ["val"]
    assert not dataset.skipped
    folder = real / "SPair-71k" / "PairAnnotation" / "val"
    assert assert_agrees_with_pair_annotation(dataset, "val", folder) == 304
    assert len(dataset.splits["val"].objects) == 18
