"""Synthetic homographies: valid maps of the stated size, keypoints that move with the pixels, stable seeds."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from normmatch.datasets import warped
from normmatch.datasets.crops import read_crop
from normmatch.errors import DataError
from tests.datasets import layouts


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    layouts.make_photos(tmp_path / "photos")
    return tmp_path / "photos"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), width=st.integers(16, 2000), height=st.integers(16, 2000))
def test_random_homography_is_valid(seed: int, width: int, height: int) -> None:
    size, magnitude = (width, height), warped.MAGNITUDE[1]
    found = warped.random_homography(size, np.random.default_rng(seed))
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=float)
    moved = warped.project(found, corners)
    half = np.array(size) / 2
    assert (np.abs(moved - corners) <= magnitude * half * (1 + 1e-6) + 1e-6).all()
    assert np.linalg.det(found) > 0
    inside = np.random.default_rng(0).uniform(0, 1, (50, 2)) * size
    depth = np.column_stack([inside, np.ones(50)]) @ found[2]
    assert (depth > 0).all(), "a point of the image is behind the camera"
    jacobian = np.linalg.det(found) / depth**3  # of the map at each point: positive keeps left and right
    assert (jacobian > 0).all()


def test_magnitude_is_a_range() -> None:
    rng = np.random.default_rng(0)
    corners = warped.grid_points((200, 100), 2) * 2 - np.array([100, 50])
    spread = []
    for _ in range(200):
        moved = warped.project(warped.random_homography((200, 100), rng), corners)
        spread.append(np.abs((moved - corners) / (100, 50)).max())
    assert 0.6 < max(spread) <= 0.75
    assert 0.3 < np.mean(spread) < 0.6


def test_points_behind_the_camera_are_nowhere() -> None:
    horizon = np.array([[1.0, 0, 0], [0, 1, 0], [-0.02, 0, 1]])  # x = 50 goes to infinity
    moved = warped.project(horizon, np.array([[25.0, 10.0], [75.0, 10.0]]))
    np.testing.assert_allclose(moved[0], [50, 20])
    assert np.isnan(moved[1]).all()
    assert warped.projected_object(Path("x.png"), "x", (100, 100), moved).names == ("0",)


def test_pairs_of_each_image_with_its_copies(photos: Path) -> None:
    dataset = warped.load(photos)
    assert (dataset.name, list(dataset.splits)) == ("synthetic", ["train", "val"])
    images = {key: {obj.path.name for obj in split.objects} for key, split in dataset.splits.items()}
    assert (len(images["train"]), len(images["val"])) == (5, 1)
    assert not images["train"] & images["val"]
    for split in dataset.splits.values():
        assert split.pairs is not None
        assert len(split.pairs) == 4 * len({obj.image for obj in split.objects})
        for index0, index1 in split.pairs:
            plain, copy = split.objects[index0], split.objects[index1]
            assert plain.image == copy.image
            assert plain.homography is None
            assert plain.names == tuple(map(str, range(36)))
            moved = warped.project(copy.homography, plain.keypoints[[int(n) for n in copy.names]])
            np.testing.assert_allclose(copy.keypoints, moved, rtol=1e-4, atol=1e-3)
            assert ((copy.keypoints >= 0) & (copy.keypoints <= (80, 60))).all()
            assert len(copy.names) >= warped.FEWEST_INSIDE


def test_warps_stay_whatever_else_is_in_the_folder(photos: Path) -> None:
    def warps() -> dict[str, np.ndarray]:
        objects = [obj for split in warped.load(photos).splits.values() for obj in split.objects]
        return {obj.path.name: obj.homography for obj in objects if obj.homography is not None}

    before = warps()
    layouts.make_image(photos / "a_new_one.png")
    after = warps()
    assert len(after) == len(before) + 1
    for name, found in before.items():
        np.testing.assert_array_equal(found, after[name])
    assert not np.allclose(before["photo_0.jpg"], before["photo_1.png"])


def test_keypoints_move_with_the_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A white dot is painted on one grid point; after the warp it is where the moved keypoint says."""
    for name, value in {"MAGNITUDE": (0.2, 0.4), "COPIES": 12, "GRID": 3}.items():
        monkeypatch.setattr(warped, name, value)
    size, grid = (160, 120), 3
    centre = warped.grid_points(size, grid)[4]
    columns, rows = np.meshgrid(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5)  # (120, 160) each
    dot = np.hypot(columns - centre[0], rows - centre[1]) < 5
    Image.fromarray(dot.astype(np.uint8) * 255).save(tmp_path / "dot.png")
    checked = 0
    for obj in warped.load(tmp_path).splits["train"].objects:
        if "4" not in obj.names:
            continue
        weight = np.asarray(read_crop(obj)[0].convert("L"), dtype=float)
        found = np.array([(weight * columns).sum(), (weight * rows).sum()]) / weight.sum()
        assert np.abs(found - obj.keypoints[obj.names.index("4")]).max() < 0.25  # half a pixel would show
        checked += 1
    assert checked > 8


def test_exif_rotation_counts(tmp_path: Path) -> None:
    image = Image.new("RGB", (80, 60))
    exif = image.getexif()
    exif[0x0112] = 6  # shown turned by a quarter
    image.save(tmp_path / "turned.jpg", exif=exif)
    points = warped.load(tmp_path).splits["train"].objects[0].keypoints
    assert points[:, 0].max() < 60 < points[:, 1].max()


def test_bad_files_are_skipped_and_counted(photos: Path) -> None:
    (photos / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (photos / "notes.txt").write_text("no image")
    layouts.make_image(photos / "tiny.png", (4, 4))
    with pytest.warns(UserWarning, match=r"left out: 1 images that cannot be read \(first: photos/cut\.png\)\.$"):
        dataset = warped.load(photos)
    assert dict(dataset.skipped) == {"images that cannot be read": 1, "images that are too small": 1}
    assert sum(len(split.pairs) for split in dataset.splits.values() if split.pairs is not None) == 24


def test_errors_are_one_sentence(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        warped.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no readable image"):
        warped.load(tmp_path / "empty")
