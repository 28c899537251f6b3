"""The prepared cache: pixels and keypoints move together, nothing half-made or foreign is ever used."""

import dataclasses
import errno
import json
import multiprocessing
import os
import pickle
import shutil
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from normmatch.annotations import Annotation
from normmatch.datasets import prepared
from normmatch.datasets.prepared import load_prepared, prepare
from normmatch.datasets.types import Dataset, PreparedSplit, Split
from normmatch.errors import DataError
from normmatch.geometry import Box
from normmatch.io import locked

COLOURS = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 255)])
NAMES = ("red", "green", "blue")
SIZE = 96


def dotted_image(path: Path, points: np.ndarray, width: int = 160, height: int = 120) -> Path:
    """A grey image with a soft round dot of its own colour at each point (pixel centres at +0.5)."""
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    image = np.full((height, width, 3), 90.0)
    for point, colour in zip(points, COLOURS, strict=False):
        weight = np.exp(-((x - point[0]) ** 2 + (y - point[1]) ** 2) / (2 * 3.0**2))[:, :, None]
        image = image * (1 - weight) + colour * weight
    Image.fromarray(image.round().astype(np.uint8)).save(path)
    return path


def find_dot(image: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Centre of mass of what is close to the colour, in pixels with centres at +0.5."""
    others = np.where(colour == 0)[0]
    strength = image[:, :, colour.argmax()].astype(float) - image[:, :, others].max(axis=2)
    weight = np.clip(strength - 100, 0, None)
    y, x = np.mgrid[: image.shape[0], : image.shape[1]] + 0.5
    return np.array([(x * weight).sum(), (y * weight).sum()]) / weight.sum()


def make_dataset(folder: Path, count: int = 6, box: Box | None = (20.3, 10.6, 110.5, 97.2)) -> Dataset:
    """`count` images with three dots; every second one is a test object, and two test objects form a pair."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    items = []
    for index in range(count):
        points = np.array([[40, 30], [110, 40], [70, 90]]) + rng.uniform(-8, 8, (3, 2))
        image = dotted_image(folder / f"image{index}.png", points)
        items.append(Annotation(str(image), NAMES, points, box, "thing"))
    pairs = np.array([[0, 1], [1, 2]])
    return Dataset("dots", "nmt", {"train": Split(tuple(items[::2])), "test": Split(tuple(items[1::2]), pairs)})


def check_dots(split: PreparedSplit) -> None:
    for index, item in enumerate(split.objects):
        for point, colour in zip(item.keypoints, COLOURS, strict=True):
            np.testing.assert_allclose(find_dot(split.images[index], colour), point, atol=0.3)


def edit(dataset: Dataset, split: str, index: int, **changes: object) -> Dataset:
    items = list(dataset.splits[split].objects)
    items[index] = dataclasses.replace(items[index], **changes)
    splits = {**dataset.splits, split: Split(tuple(items), dataset.splits[split].pairs)}
    return dataclasses.replace(dataset, splits=splits)


@pytest.mark.parametrize(
    "box",
    [
        None,
        (20.3, 10.6, 110.5, 97.2),
        (-15.4, -8.0, 150.0, 140.0),  # sticks out on three sides
    ],
)
def test_dots_are_where_the_keypoints_say(tmp_path: Path, box: Box | None) -> None:
    dataset = make_dataset(tmp_path / "images", box=box)
    report = prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    assert (report.objects, report.skipped, report.dropped_pairs) == (6, (), 0)
    splits = load_prepared(tmp_path / "cache")
    assert splits["train"].images.shape == (3, SIZE, SIZE, 3)
    assert splits["train"].objects[1].image == "image2.png"
    assert splits["train"].objects[1].names == NAMES
    check_dots(splits["train"])
    check_dots(splits["test"])
    np.testing.assert_array_equal(splits["test"].pairs, [[0, 1], [1, 2]])
    assert splits["train"].pairs is None


def test_source_size_is_that_of_the_clipped_box(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "images", box=(-15.4, 20.0, 150.0, 140.0))
    prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    assert load_prepared(tmp_path / "cache")["train"].crop_sizes().tolist()[0] == [135, 100]


def test_homography(tmp_path: Path) -> None:
    """The image is warped, keypoints and box are given in the warped image, and what comes from outside is black."""
    points = np.array([[40.0, 30.0], [110.0, 40.0], [70.0, 90.0]])
    image = dotted_image(tmp_path / "a.png", points)
    homography = np.array([[0.9, 0.1, 12.0], [-0.05, 1.05, 6.0], [2e-4, 1e-4, 1.0]]) * 2.5  # at any scale
    mapped = np.c_[points, np.ones(3)] @ homography.T
    mapped = (mapped[:, :2] / mapped[:, 2:]).astype(np.float32)
    item = Annotation(str(image), NAMES, mapped, (5.0, 3.0, 140.0, 110.0), "thing", homography=homography)
    prepare(Dataset("warped", "nmt", {"train": Split((item,))}), tmp_path / "cache", SIZE, progress=False)
    split = load_prepared(tmp_path / "cache")["train"]
    check_dots(split)
    assert split.images[0][1, 1].max() == 0


def test_keypoints_outside_are_kept(tmp_path: Path) -> None:
    dataset = edit(make_dataset(tmp_path / "images", box=None), "train", 0, names=("far",), keypoints=[[-80.0, 240.0]])
    prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    np.testing.assert_allclose(
        load_prepared(tmp_path / "cache")["train"].objects[0].keypoints, [[-80 * SIZE / 160, 240 * SIZE / 120]]
    )


class Loader:
    """A map-style dataset over a split, as a DataLoader's workers get it."""

    def __init__(self, split: PreparedSplit) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split.images)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.split.images[index]


def test_images_travel_to_workers(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "images")
    prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    split = load_prepared(tmp_path / "cache")["test"]
    before = split.images[np.array([2, 0, 1])]  # the file is open now
    assert before.shape == (3, SIZE, SIZE, 3)
    assert len(pickle.dumps(split)) < 5000
    # What a spawned worker gets; a forked one is tried below.
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(split)).images[np.array([2, 0, 1])], before)
    loader = DataLoader(Loader(split), batch_size=3, num_workers=1)
    np.testing.assert_array_equal(next(iter(loader)).numpy(), before[[1, 2, 0]])


def test_images_index_like_an_array(tmp_path: Path) -> None:
    prepare(make_dataset(tmp_path / "images"), tmp_path / "cache", SIZE, progress=False)
    images = load_prepared(tmp_path / "cache")["test"].images
    whole = np.load(tmp_path / "cache" / "images.npy")[3:]
    for index in (0, -1, slice(1, 3), slice(None), np.array([1, 1, 0]), [2, 0], np.array([True, False, True])):
        np.testing.assert_array_equal(images[index], whole[index])
    assert images.dtype == np.uint8
    with pytest.raises(IndexError):
        images[3]
    images[0][:] = 0  # a copy: the cache stays as it is
    np.testing.assert_array_equal(images[0], whole[0])


def test_second_run_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(tmp_path / "images")
    prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    monkeypatch.setattr(prepared, "_build", lambda *args: pytest.fail("prepared again"))
    report = prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    assert (report.objects, report.seconds) == (6, 0)
    with locked(tmp_path / ".cache.lock"):  # what is finished may be used while another process holds it
        assert prepare(dataset, tmp_path / "cache", SIZE, progress=False).objects == 6


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(tmp_path / "images")
    monkeypatch.setattr(prepared, "_entries", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    assert os.listdir(tmp_path) == ["images"]
    monkeypatch.undo()
    (tmp_path / "cache.partial").mkdir()  # what is left where it was killed
    (tmp_path / "cache.partial" / "images.npy").touch()
    prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    assert sorted(os.listdir(tmp_path)) == ["cache", "images"]


def test_stale_cache_is_noticed_and_rebuilt(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "images")
    prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    other_pairs = Split(dataset.splits["test"].objects, np.array([[0, 2]]))
    for changed in (
        edit(dataset, "test", 1, keypoints=dataset.splits["test"].objects[1].keypoints + 1),
        dataclasses.replace(dataset, splits={"train": dataset.splits["train"]}),
        edit(dataset, "train", 0, box=None),
        edit(dataset, "train", 0, names=("x", "y", "z")),
        edit(dataset, "train", 0, homography=np.eye(3)),
        dataclasses.replace(dataset, splits={**dataset.splits, "test": other_pairs}),
        dataset,
    ):
        assert prepare(changed, tmp_path / "cache", SIZE, progress=False).seconds > 0
        assert prepare(changed, tmp_path / "cache", SIZE, progress=False).seconds == 0
    Image.new("RGB", (160, 120)).save(tmp_path / "images" / "image3.png")
    assert prepare(dataset, tmp_path / "cache", SIZE, progress=False).seconds > 0
    assert prepare(dataset, tmp_path / "cache", 32, progress=False).seconds > 0
    assert sorted(os.listdir(tmp_path)) == ["cache", "images"]


def test_moved_dataset_keeps_its_cache(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "images")
    prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    splits = {
        name: Split(
            tuple(dataclasses.replace(item, image=item.image.replace("images", "elsewhere")) for item in split.objects),
            split.pairs,
        )
        for name, split in dataset.splits.items()
    }
    moved = dataclasses.replace(dataset, splits=splits)
    assert prepare(moved, tmp_path / "cache", SIZE, progress=False).seconds == 0


def _prepare_after_a_while(dataset: Dataset, cache: Path, start: Barrier) -> None:
    build = prepared._build

    def slowly(*args: object) -> prepared.PrepareReport:
        time.sleep(0.5)
        return build(*args)  # type: ignore[arg-type]

    prepared._build = slowly  # type: ignore[assignment]
    start.wait(20)
    report = prepare(dataset, cache, SIZE, progress=False)
    load_prepared(cache)
    (cache.parent / f"{bool(report.seconds)}-{os.getpid()}").touch()


def test_processes_that_want_the_same_cache_wait_for_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As the ranks of torchrun do: one prepares, and no other dies."""
    dataset = make_dataset(tmp_path / "images")
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    ranks = [
        context.Process(target=_prepare_after_a_while, args=(dataset, tmp_path / "cache", start)) for _ in range(3)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0, 0, 0]
    made = sorted(path.name.split("-")[0] for path in tmp_path.iterdir() if "-" in path.name)
    assert made == ["False", "False", "True"]  # reused by those who waited
    assert capfd.readouterr().err.count("waiting until it is done") == 2


def _die_locked(path: Path) -> None:
    with locked(path):
        os._exit(9)


def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=_die_locked, args=(tmp_path / ".cache.lock",))
    child.start()
    child.join()
    assert (child.exitcode, os.listdir(tmp_path)) == (9, [".cache.lock"])
    prepare(make_dataset(tmp_path / "images"), tmp_path / "cache", SIZE, progress=False)
    assert sorted(os.listdir(tmp_path)) == ["cache", "images"]


@pytest.mark.parametrize(
    "damage", ["cut images", "no images", "other images", "objects", "rows", "manifest", "version"]
)
def test_damaged_cache(tmp_path: Path, damage: str) -> None:
    dataset, folder = make_dataset(tmp_path / "images"), tmp_path / "cache"
    prepare(dataset, folder, SIZE, progress=False)
    if damage == "cut images":
        (folder / "images.npy").write_bytes((folder / "images.npy").read_bytes()[:-100])
    elif damage == "no images":
        (folder / "images.npy").unlink()
    elif damage == "other images":
        np.save(folder / "images.npy", np.array([{"an": "object"}]))  # pickled; must not be loaded
    elif damage == "objects":
        (folder / "objects.json").write_text('{"train": {"objects": [{}]}}')
    elif damage == "rows":
        text = (folder / "objects.json").read_text()
        (folder / "objects.json").write_text(text.replace('"row": 5', '"row": 6'))
    elif damage == "manifest":
        (folder / "manifest.json").write_text("{")
    else:
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**manifest, "version": 0}))
    with pytest.raises(DataError, match="cache"):
        load_prepared(folder)
    if damage != "manifest":  # that one is not recognised as ours, and nothing is deleted on suspicion
        assert prepare(dataset, folder, SIZE, progress=False).seconds > 0
        load_prepared(folder)


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "images")
    with pytest.raises(DataError, match="no prepared dataset"):
        load_prepared(tmp_path / "nothing")
    with pytest.raises(DataError, match="choose another folder"):
        prepare(dataset, tmp_path / "images", SIZE, progress=False)
    assert len(os.listdir(tmp_path / "images")) == 6
    prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    with pytest.raises(DataError, match="holds the cache of dots"):
        prepare(dataclasses.replace(dataset, name="b"), tmp_path / "cache", SIZE, progress=False)
    (tmp_path / "empty").mkdir()
    prepare(dataset, tmp_path / "empty", SIZE, progress=False)
    load_prepared(tmp_path / "empty")


def break_images(dataset: Dataset) -> Dataset:
    """The second test image is cut off, the third has a box without area; both pairs lose an object."""
    path = dataset.splits["test"].objects[1].path
    path.write_bytes(path.read_bytes()[:200])
    return edit(dataset, "test", 2, box=(200.0, 10.0, 30.0, 30.0))


def test_unreadable_images_are_skipped_and_named(tmp_path: Path) -> None:
    dataset = break_images(make_dataset(tmp_path / "images"))
    words = r"2 of 6 objects of dots were skipped, and 2 pairs with them; the first: .*image3\.png"
    with pytest.warns(UserWarning, match=words):
        report = prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    assert (report.objects, len(report.skipped), report.dropped_pairs) == (4, 2, 2)
    assert "image3.png" in report.skipped[0]
    assert "(200.0, 10.0, 30.0, 30.0)" in report.skipped[1]
    assert "image5.png" in report.skipped[1]
    split = load_prepared(tmp_path / "cache")["test"]
    assert [item.image for item in split.objects] == ["image1.png"]
    assert split.pairs is not None
    assert split.pairs.shape == (0, 2)
    check_dots(split)
    again = prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    assert (again.objects, again.skipped, again.dropped_pairs) == (report.objects, report.skipped, 2)


def test_pairs_are_renumbered(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "images")
    dataset.splits["test"].objects[0].path.unlink()
    with pytest.warns(UserWarning, match="1 of 6 objects"):
        report = prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    split = load_prepared(tmp_path / "cache")["test"]
    assert report.dropped_pairs == 1
    assert [item.image for item in split.objects] == ["image3.png", "image5.png"]
    np.testing.assert_array_equal(split.pairs, [[0, 1]])
    check_dots(split)


def test_strict_names_the_file(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "images")
    dataset.splits["test"].objects[1].path.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"image3\.png"):
        prepare(dataset, tmp_path / "cache", SIZE, progress=False, strict=True)
    assert not (tmp_path / "cache").exists()
    with pytest.warns(UserWarning, match="1 of 6 objects"):
        prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    with pytest.raises(DataError, match=r"image3\.png"):  # also where a cache without it is there already
        prepare(dataset, tmp_path / "cache", SIZE, progress=False, strict=True)


def test_nothing_to_prepare(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "images")
    with pytest.raises(DataError, match="no objects"):
        prepare(Dataset("dots", "nmt", {"train": Split(())}), tmp_path / "cache", SIZE, progress=False)
    with pytest.raises(DataError, match="size"):
        prepare(dataset, tmp_path / "cache", 0, progress=False)
    shutil.rmtree(tmp_path / "images")
    with pytest.raises(DataError, match=r"No image of dots can be used.*image0\.png"):
        prepare(dataset, tmp_path / "cache", SIZE, progress=False)
    assert not (tmp_path / "cache").exists()


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(tmp_path / "images")
    open_file = Path.open

    def full(path: Path, mode: str = "r", **options: object) -> object:
        if mode == "wb":
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_file(path, mode, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(DataError, match=r"No space left on device; make room\.$"):
        prepare(dataset, tmp_path / "cache", SIZE, progress=False)


def test_singular_homography(tmp_path: Path) -> None:
    dataset = edit(make_dataset(tmp_path / "images"), "train", 0, homography=np.zeros((3, 3)))
    with pytest.raises(DataError, match=r"homography of .*image0\.png"):
        prepare(dataset, tmp_path / "cache", SIZE, progress=False, strict=True)


def test_progress_bar_shows_rate_and_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(make_dataset(tmp_path / "images"), tmp_path / "cache", SIZE)
    shown = capsys.readouterr()
    assert "6/6" in shown.err
    assert "objects/s" in shown.err
    assert shown.out == ""
