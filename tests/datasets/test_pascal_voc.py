"""PascalVOC keypoints: the filters, the split that must not run code, the held-out images, the real counts."""

import os
import shutil
import tarfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from normmatch.datasets import pascal_voc
from normmatch.datasets.protocols import PROTOCOLS
from normmatch.datasets.types import Dataset, Split
from normmatch.errors import ConfigError, DataError
from tests.datasets import layouts

REAL_TEST_COUNTS = dict(
    zip(
        pascal_voc.CLASSES,
        [136, 53, 117, 88, 120, 52, 160, 101, 63, 55, 5, 147, 45, 60, 156, 99, 73, 8, 43, 89],
        strict=True,
    )
)

pytestmark = pytest.mark.filterwarnings("ignore:.* is not whole")  # where it matters, a test asks for the warning


@pytest.fixture
def root(tmp_path: Path) -> Path:
    layouts.make_voc(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def real(shared_datasets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real annotations and split; images are empty files of the right names, since only names matter here."""
    root = tmp_path_factory.mktemp("voc")
    with tarfile.open(shared_datasets / "VOC2011-annotations.tar.xz") as archive:
        archive.extractall(root, filter="data")
    shutil.copy(shared_datasets / pascal_voc.SPLIT_FILE, root)
    (root / "TrainVal/VOCdevkit/VOC2011/JPEGImages").mkdir()
    for path in sorted(shared_datasets.glob("VOC2011-objects-*.tar")):
        with tarfile.open(path) as archive:
            for name in archive.getnames():
                if name.endswith(".jpg"):
                    (root / name).touch()
    return root


@pytest.fixture(scope="module")
def real_nmt(real: Path) -> Dataset:
    return pascal_voc.load(real)


def voc_folder(root: Path) -> Path:
    return root / "TrainVal" / "VOCdevkit" / "VOC2011"


def labels(split: Split) -> dict[str, int]:
    return dict(Counter(obj.label for obj in split.objects))


def add(root: Path, xml: str | None, *, flags: str | None = None, entry: str = "cat/2008_000999_1.xml") -> Dataset:
    """Load the fixture with one more test object, whose files may be broken."""
    image = Path(entry).stem.rpartition("_")[0]
    if flags is None:
        flags = layouts.voc_xml([{"name": "cat"}])
    (voc_folder(root) / "Annotations" / f"{image}.xml").write_text(flags)
    layouts.make_image(voc_folder(root) / "JPEGImages" / f"{image}.jpg")
    if xml is not None:
        (root / "annotations" / entry).parent.mkdir(exist_ok=True)
        (root / "annotations" / entry).write_text(xml)
    names = pascal_voc.read_split(root / pascal_voc.SPLIT_FILE)
    train, test = (
        {label: [name for name in names[key] if name.startswith(f"{label}/")] for label in layouts.VOC_CLASSES}
        for key in ("train", "test")
    )
    test["cat"] = [*test["cat"], entry]
    layouts.write_voc_split(root / pascal_voc.SPLIT_FILE, train, test)
    return pascal_voc.load(root)


GOOD = layouts.keypoint_xml("cat", (10, 10, 20, 20), [("Nose", 15, 12), ("L_Eye", 11, 29)])


def test_reads_objects_in_pixels_with_centres_at_a_half(root: Path) -> None:
    dataset = add(root, GOOD)
    assert (dataset.name, dataset.protocol, set(dataset.splits)) == ("pascal-voc", "nmt", {"train", "val", "test"})
    obj = dataset.splits["test"].objects[-1]
    assert obj.label == "cat"
    assert obj.path.name == "2008_000999.jpg"
    assert obj.names == ("Nose", "L_Eye")
    assert obj.box == (9.5, 9.5, 20, 20)
    np.testing.assert_array_equal(obj.keypoints, np.array([[14.5, 11.5], [10.5, 28.5]], dtype=np.float32))
    assert obj.keypoints.dtype == np.float64


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_keypoints_outside_the_crop(root: Path, protocol: str) -> None:
    dataset = pascal_voc.load(root, protocol)
    second = next(obj for obj in dataset.splits["test"].objects if obj.box is not None and obj.box[0] > 30)
    kept = protocol == "thinkmatch"
    assert ("R_Paw" in second.names) == kept
    assert dataset.skipped["keypoints outside the crop"] == (0 if kept else 28)


@pytest.mark.parametrize("flag", ["difficult", "occluded", "truncated"])
def test_flagged_objects_are_left_out(root: Path, flag: str) -> None:
    before = len(pascal_voc.load(root).splits["test"].objects)
    dataset = add(root, GOOD, flags=layouts.voc_xml([{"name": "cat", flag: 1}]))
    assert len(dataset.splits["test"].objects) == before
    assert dataset.skipped["objects that are difficult, occluded or truncated"] == 1


def test_flags_are_those_of_the_numbered_object(root: Path) -> None:
    two = layouts.voc_xml([{"name": "cat", "difficult": 1}, {"name": "cat"}])
    assert add(root, GOOD, flags=two, entry="cat/2008_000999_2.xml").splits["test"].objects[-1].names[0] == "Nose"


@pytest.mark.parametrize(("last_is_difficult", "persons"), [(0, 1), (1, 0)])
def test_person_number_0_takes_the_flags_of_the_last_object(root: Path, last_is_difficult: int, persons: int) -> None:
    flags = layouts.voc_xml([{"name": "person", "difficult": 1 - last_is_difficult}, {"difficult": last_is_difficult}])
    dataset = add(root, GOOD, flags=flags, entry="person/2008_000999_0.xml")
    assert labels(dataset.splits["test"]).get("person", 0) == persons


def test_later_persons_are_left_out(root: Path) -> None:
    dataset = add(root, GOOD, entry="person/2009_000999_1.xml")
    assert dataset.skipped["persons of years after 2008"] == 1
    assert "person" not in labels(dataset.splits["test"])


BROKEN = "objects whose files are missing or broken"


@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        (None, BROKEN),
        ("<annotation><keypo", BROKEN),
        ("<annotation/>", BROKEN),
        (layouts.keypoint_xml("cat", (10, 10, 0, 20), [("Nose", 10, 12)]), BROKEN),
        (GOOD.replace('width="20"', 'width="wide"'), BROKEN),
        (layouts.keypoint_xml("cat", (10, 10, 20, 20), [("Nose", 50, 12)]), "objects with no keypoint left"),
    ],
)
def test_bad_keypoint_xml_is_skipped_and_counted(root: Path, xml: str | None, reason: str) -> None:
    before = pascal_voc.load(root)
    dataset = add(root, xml)
    assert dataset.skipped[reason] == 1
    assert labels(dataset.splits["test"]) == labels(before.splits["test"])


@pytest.mark.parametrize("flags", ["not xml", "<annotation/>"])
def test_bad_voc_xml_is_skipped_and_counted(root: Path, flags: str) -> None:
    assert add(root, GOOD, flags=flags).skipped[BROKEN] == 1


@pytest.mark.parametrize("entry", ["unicorn/2008_000999_1.xml", "cat/2008_000999_7.xml", "cat/../2008_000999_1.xml"])
def test_odd_names_in_the_split_are_counted(root: Path, entry: str) -> None:
    assert add(root, None, entry=entry).skipped[BROKEN] == 1


def test_damage_is_a_warning_with_the_first_file_and_the_benchmark_s_rules_are_not(root: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add(root, GOOD, flags=layouts.voc_xml([{"name": "cat", "difficult": 1}]))  # expected, as are points outside
        add(root, GOOD, entry="cat/2008_000998_1.xml")
    (voc_folder(root) / "JPEGImages" / "2008_000998.jpg").unlink()
    sentence = (
        r"^pascal-voc is not whole, left out: 1 objects whose files are missing or broken "
        r"\(first: cat/2008_000998_1\.xml\)\.$"
    )
    with pytest.warns(UserWarning, match=sentence):
        dataset = pascal_voc.load(root)
    assert dataset.skipped[BROKEN] == 1


def test_validation_is_held_out_by_image_and_fixed_by_seed(root: Path) -> None:
    whole = pascal_voc.load(root, val_share=0)
    assert set(whole.splits) == {"train", "test"}
    chosen = []
    for seed in (0, 0, 1):
        splits = pascal_voc.load(root, val_share=0.2, seed=seed).splits
        train, val = ({obj.path for obj in splits[key].objects} for key in ("train", "val"))
        assert not train & val
        assert len(splits["train"].objects) + len(splits["val"].objects) == len(whole.splits["train"].objects)
        assert labels(splits["val"]) == {"bird": 4, "cat": 4}
        chosen.append(sorted(path.name for path in val))
    assert chosen[0] == chosen[1] != chosen[2]


def test_small_share_still_holds_two_of_a_class(root: Path) -> None:
    assert labels(pascal_voc.load(root, val_share=0.001).splits["val"]) == {"bird": 2, "cat": 2}


def test_tree_may_start_lower(root: Path) -> None:
    shutil.move(voc_folder(root), root / "VOC2011")
    assert len(pascal_voc.load(root).splits["test"].objects) == 16


def test_errors_are_one_sentence(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        pascal_voc.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no protocol 'other'"):
        pascal_voc.load(root, "other")
    with pytest.raises(ConfigError, match="val_share is 1"):
        pascal_voc.load(root, val_share=1)
    shutil.rmtree(voc_folder(root) / "Annotations")
    with pytest.raises(DataError, match="0 usable training and 0 test objects .*missing or broken"):
        pascal_voc.load(root)
    (root / pascal_voc.SPLIT_FILE).unlink()
    with pytest.raises(DataError, match=r"no voc2011_pairs\.npz"):
        pascal_voc.load(root)


class Malicious:
    """Pickles as a call of os.mkdir."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.target),)


def test_malicious_split_does_not_run(root: Path) -> None:
    target = root / "it_ran"
    array = np.empty(20, dtype=object)
    array[:] = [Malicious(target)] * 20
    np.savez(root / pascal_voc.SPLIT_FILE, train=array, test=array)
    with pytest.raises(DataError, match="not the split file .*no names of objects"):
        pascal_voc.load(root)
    assert not target.exists()
    np.load(root / pascal_voc.SPLIT_FILE, allow_pickle=True)["train"]
    assert target.exists(), "the file is harmless, so this test shows nothing"


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut"])
def test_broken_split_is_a_data_error(root: Path, content: bytes) -> None:
    (root / pascal_voc.SPLIT_FILE).write_bytes(content)
    with pytest.raises(DataError, match="is not the split file"):
        pascal_voc.load(root)


def test_split_of_another_shape_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, train=np.arange(3), test=np.arange(3))
    with pytest.raises(DataError, match="is not the split file"):
        pascal_voc.read_split(path)
    np.savez(path, train=np.array([1, None]), test=np.array([1, None]))
    with pytest.raises(DataError, match="is not the split file"):
        pascal_voc.read_split(path)


def test_real_counts(real_nmt: Dataset) -> None:
    splits = real_nmt.splits
    assert len(splits["train"].objects) + len(splits["val"].objects) == 6952
    assert labels(splits["test"]) == REAL_TEST_COUNTS
    assert sum(REAL_TEST_COUNTS.values()) == 1670
    val, train = (labels(splits[key]) for key in ("val", "train"))
    assert set(val) == set(train) == set(pascal_voc.CLASSES)
    for label, count in val.items():  # whole images move, so a share is met to within a few objects
        wanted = max(2, round(0.1 * (count + train[label])))
        assert wanted <= count <= wanted + 8
    images = {key: {obj.image for obj in split.objects} for key, split in splits.items()}
    assert not images["train"] & images["val"]
    assert not (images["train"] | images["val"]) & images["test"]


def test_real_keypoints(real_nmt: Dataset) -> None:
    names: dict[str, set[str]] = {label: set() for label in pascal_voc.CLASSES}
    for split in real_nmt.splits.values():
        for obj in split.objects:
            names[obj.label].update(obj.names)
            assert len(set(obj.names)) == len(obj.names) == len(obj.keypoints)
            inside = (obj.keypoints - obj.box[:2] >= 0) & (obj.keypoints - obj.box[:2] <= obj.box[2:])
            assert inside.all()
    assert len(names["pottedplant"]) == 6
    assert max(len(found) for found in names.values()) == len(names["person"]) == 20


def test_real_thinkmatch_keeps_points_outside(real: Path, real_nmt: Dataset) -> None:
    dataset = pascal_voc.load(real, "thinkmatch", val_share=0)
    objects = [obj for split in dataset.splits.values() for obj in split.objects]
    assert len(objects) == 8624  # two of these have points outside the crop only
    outside = sum(
        ((o.keypoints < o.box[:2]) | (o.keypoints > np.add(o.box[:2], o.box[2:]))).any(1).sum() for o in objects
    )
    assert outside == real_nmt.skipped["keypoints outside the crop"]
