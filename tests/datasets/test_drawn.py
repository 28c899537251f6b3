"""The drawn figures: reproducible, disjoint splits, keypoints where the parts are, left on the figure's own left."""

import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch.datasets import drawn
from normmatch.datasets.catalog import open_dataset
from normmatch.datasets.figures import FIGURES, MIN_GAP, WHITE, sketch
from normmatch.errors import DataError, InputError

SIZE = 64


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures without noise and occluders, so that pixels and keypoints can be compared."""
    monkeypatch.setattr(drawn, "GRAIN", 0.0)
    monkeypatch.setattr(drawn, "OCCLUSION", 0.0)


@pytest.mark.parametrize("label", drawn.LABELS)
def test_a_figure_is_a_function_of_its_seed(label: str) -> None:
    image, names, keypoints = drawn.draw_figure(3, label, SIZE)
    again, names_again, keypoints_again = drawn.draw_figure(3, label, SIZE)
    other, _, _ = drawn.draw_figure(4, label, SIZE)
    assert np.array_equal(image, again)
    assert names == names_again
    assert np.array_equal(keypoints, keypoints_again)
    assert not np.array_equal(image, other)


@pytest.mark.parametrize("label", drawn.LABELS)
def test_shapes_names_and_places(label: str) -> None:
    vocabulary: set[str] = set()
    for seed in range(25):
        image, names, keypoints = drawn.draw_figure(seed, label, SIZE)
        assert image.shape == (SIZE, SIZE, 3)
        assert image.dtype == np.uint8
        assert keypoints.shape == (len(names), 2)
        assert keypoints.dtype == np.float32
        assert len(set(names)) == len(names) >= 4
        assert list(names) == sorted(names)  # one order a class, whatever the view
        assert (keypoints > 0).all()
        assert (keypoints < SIZE).all()
        vocabulary |= set(names)
    assert len(vocabulary) >= 8


@pytest.mark.parametrize("label", drawn.LABELS)
@pytest.mark.usefixtures("plain")
def test_size_scales_image_and_keypoints_together(label: str) -> None:
    small, _, keypoints = drawn.draw_figure(7, label, SIZE)
    large, _, keypoints_large = drawn.draw_figure(7, label, 2 * SIZE)
    np.testing.assert_allclose(keypoints_large, 2 * keypoints, atol=1e-3)
    reduced = np.asarray(Image.fromarray(large).reduce(2), dtype=float)
    assert np.abs(reduced - small).mean() < 12  # edges of lines and dots only


@pytest.mark.parametrize("label", drawn.LABELS)
@pytest.mark.usefixtures("plain")
def test_eyes_are_drawn_at_their_keypoints(label: str) -> None:
    """The pupil is the darkest, the ring around it white: a shift of two pixels would leave it."""
    size, found = 192, 0
    for seed in range(8):
        image, names, keypoints = drawn.draw_figure(seed, label, size)
        for name, (x, y) in zip(names, keypoints, strict=True):
            if name.endswith("_eye"):
                window = image[int(y) - 5 : int(y) + 6, int(x) - 5 : int(x) + 6].astype(int)
                assert image[int(y), int(x)].max() < 120
                assert (np.abs(window - WHITE).max(axis=-1) < 60).any()
                found += 1
    assert found


def cross(a: np.ndarray, b: np.ndarray) -> float:
    return float(a[0] * b[1] - a[1] * b[0])


def test_left_is_the_figures_own_left() -> None:
    """Seen with y down: left is counter-clockwise of where a beetle goes; a person seen from the front is swapped."""
    rng, views = np.random.default_rng(0), set()
    for _ in range(20):
        points = {name: np.array(xy) for name, xy in sketch("beetle", rng).keypoints.items()}
        ahead = points["neck"] - points["tail"]
        for name in ("left_antenna", "left_hind_foot", "left_eye"):
            assert cross(ahead, points[name] - points["tail"]) < 0
            assert cross(ahead, points[name.replace("left", "right")] - points["tail"]) > 0
        points = {name: np.array(xy) for name, xy in sketch("person", rng).keypoints.items()}
        front = "left_eye" in points
        views.add(front)
        for part in ("shoulder", "hand", "foot"):
            assert (points[f"left_{part}"][0] > points[f"right_{part}"][0]) == front
    assert views == {True, False}


@pytest.mark.parametrize("label", drawn.LABELS)
def test_keypoints_of_a_figure_never_fall_together(label: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        xy = np.array(list(sketch(label, rng).keypoints.values()))
        gaps = np.linalg.norm(xy[:, None] - xy[None], axis=-1) + 9 * np.eye(len(xy))
        assert gaps.min() >= MIN_GAP


def test_covered_keypoints_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the picture with an occluder differs from the one without, no keypoint is annotated; elsewhere all are."""
    monkeypatch.setattr(drawn, "GRAIN", 0.0)
    dropped = 0
    for seed in range(20):
        monkeypatch.setattr(drawn, "OCCLUSION", 0.0)
        bare, names, keypoints = drawn.draw_figure(seed, "beetle", SIZE)
        monkeypatch.setattr(drawn, "OCCLUSION", 1.0)
        covered, seen, _ = drawn.draw_figure(seed, "beetle", SIZE)
        assert len(seen) >= drawn.MIN_VISIBLE
        changed = (bare != covered).any(axis=-1)
        for name, (x, y) in zip(names, keypoints, strict=True):
            around = changed[max(int(y) - 1, 0) : int(y) + 2, max(int(x) - 1, 0) : int(x) + 2]
            if around.all():
                assert name not in seen
                dropped += 1
            elif not around.any():
                assert name in seen
    assert dropped > 5


def test_an_occluder_that_would_hide_the_figure_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "OCCLUSION", 1.0)
    monkeypatch.setattr(drawn, "COVER", (0.5, 0.6))
    assert all(len(drawn.draw_figure(seed, "person", 32)[1]) >= drawn.MIN_VISIBLE for seed in range(10))


def test_the_background_tells_nothing_of_class_or_view() -> None:
    """Mean colour of the border, by class and by view: no difference beyond chance."""
    split = drawn.make(40, 32, 0)
    border = np.concatenate([split.images[:, 0], split.images[:, -1]], axis=1).mean(axis=1)  # (n, 3)
    labels = np.array([item.label for item in split.objects])
    spread = border.std(axis=0) / np.sqrt(40)
    for label in drawn.LABELS:
        assert (np.abs(border[labels == label].mean(axis=0) - border.mean(axis=0)) < 4 * spread).all()


def test_make_gives_every_class_and_disjoint_splits() -> None:
    train, val = drawn.make(4, 32, 5, "train"), drawn.make(4, 32, 5, "val")
    assert train.images.shape == (4 * len(FIGURES), 32, 32, 3)
    assert [item.label for item in train.objects] == [label for label in FIGURES for _ in range(4)]
    assert train.crop_sizes()[0].tolist() == [32, 32]
    everything = [image.tobytes() for image in (*train.images, *val.images, *drawn.make(4, 32, 6).images)]
    assert len(set(everything)) == len(everything)
    longer = drawn.make(6, 32, 5, "train")  # more figures, the same first ones
    assert np.array_equal(longer.images[:4], train.images[:4])


def test_write_is_read_by_the_folder_loader(tmp_path: Path) -> None:
    root = tmp_path / "figures"
    root.mkdir()  # an empty folder will do
    drawn.write(root, 16, 48, 1)
    dataset = open_dataset("synthetic", root)
    assert dataset.name == "synthetic"
    assert {name: len(split.objects) for name, split in dataset.splits.items()} == {"train": 32, "val": 8}
    for split in ("train", "val"):
        made = drawn.make(16 if split == "train" else 4, 48, 1, split)
        for read, item, image in zip(dataset.splits[split].objects, made.objects, made.images, strict=True):
            assert (read.label, read.names) == (item.label, item.names)
            np.testing.assert_allclose(read.keypoints, item.keypoints, atol=1e-3)
            assert np.array_equal(np.asarray(Image.open(read.path)), image)


def test_write_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full_disk)
    with pytest.raises(DataError, match="No space left"):
        drawn.write(tmp_path / "figures", 2, 32, 0)
    assert not list((tmp_path / "figures").iterdir())


def test_a_folder_that_cannot_be_written_is_told_before_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(drawn, "draw_split", lambda *_: pytest.fail("nothing must be drawn"))
    for root in (tmp_path, tmp_path / "new"):
        with pytest.raises(DataError, match="cannot be written to .*: Permission denied"):
            drawn.write(root, 2, 32, 0)


def test_write_into_an_empty_folder_leaves_it_empty_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full_disk)
    with pytest.raises(DataError, match="No space left"):
        drawn.write(tmp_path, 2, 32, 0)
    assert list(tmp_path.iterdir()) == []


def test_write_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "annotations.csv").write_text("mine")
    with pytest.raises(DataError, match="holds annotations.csv; expected a new or empty folder"):
        drawn.write(tmp_path, 2, 32, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["annotations.csv"]
    assert (tmp_path / "annotations.csv").read_text() == "mine"


@pytest.mark.parametrize(("seed", "label", "size"), [(0, "dragon", 64), (-1, "person", 64), (0, "person", 8)])
def test_what_cannot_be_drawn(seed: int, label: str, size: int) -> None:
    with pytest.raises(InputError, match="expected"):
        drawn.draw_figure(seed, label, size)


@pytest.mark.parametrize(("count", "seed", "split"), [(0, 0, "train"), (1, -1, "train"), (1, 0, "test")])
def test_what_cannot_be_made(count: int, seed: int, split: str) -> None:
    with pytest.raises(InputError, match="expected"):
        drawn.make(count, 32, seed, split)  # type: ignore[arg-type]


def test_drawing_is_fast() -> None:
    """A few milliseconds a figure; the bound is loose for busy machines."""
    start = time.process_time()
    drawn.make(10, 96, 0)
    assert (time.process_time() - start) / 20 < 0.05
