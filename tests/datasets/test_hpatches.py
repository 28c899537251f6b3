"""HPatches: the grid, its projections inside the other image only, and the real structures under them."""

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import map_coordinates

from normmatch.annotations import Annotation
from normmatch.datasets import hpatches
from normmatch.datasets.warped import project
from normmatch.errors import DataError
from tests.datasets import layouts


@pytest.fixture
def root(tmp_path: Path) -> Path:
    layouts.make_hpatches(tmp_path)
    return tmp_path


@pytest.mark.parametrize("ending", [".ppm", ".png", ".JPG"])
def test_pairs_of_image_1_with_the_others(tmp_path: Path, ending: str) -> None:
    layouts.make_hpatches(tmp_path, ending)
    dataset = hpatches.load(tmp_path / "hpatches-sequences-release", grid=4)
    split = dataset.splits["test"]
    assert set(dataset.splits) == {"test"}
    assert split.pairs is not None
    for index0, index1 in split.pairs:
        first, other = split.objects[index0], split.objects[index1]
        assert first.path.stem == "1" != other.path.stem
        assert first.path.parent == other.path.parent
        assert first.label == other.label == {"v": "viewpoint", "i": "illumination"}[first.path.parent.name[0]]
        assert first.names == tuple(map(str, range(16)))
    # the sequence shifts by 20 of 80 pixels an image, so the fifth image has nothing of the first left
    assert [len(obj.names) for obj in split.objects if obj.label == "viewpoint"] == [16, 12, 8, 4]
    assert [len(obj.names) for obj in split.objects if obj.label == "illumination"] == [16] * 6
    assert dict(dataset.skipped) == {"images with fewer than 2 keypoints inside": 2}


def test_grid_and_projection_in_pixels(root: Path) -> None:
    split = hpatches.load(root, grid=4).splits["test"]
    first, second = [obj for obj in split.objects if obj.label == "viewpoint"][:2]
    np.testing.assert_allclose(first.keypoints[:5], [[10, 7.5], [30, 7.5], [50, 7.5], [70, 7.5], [10, 22.5]])
    assert second.names[:4] == ("0", "1", "2", "4")  # the fourth column has left the image
    np.testing.assert_allclose(second.keypoints[:3], [[30, 7.5], [50, 7.5], [70, 7.5]])


def test_homography_turns_about_pixel_centres(tmp_path: Path) -> None:
    """Scaling by 2 in the files' convention keeps the centre of the first pixel, which is (0.5, 0.5) here."""
    np.savetxt(tmp_path / "H_1_2", 3.0 * np.diag([2.0, 2.0, 1.0]))  # and any multiple is the same map
    homography = hpatches.read_homography(tmp_path / "H_1_2")
    np.testing.assert_allclose(project(homography, np.array([[0.5, 0.5], [1.5, 2.5]])), [[0.5, 0.5], [2.5, 4.5]])


def test_bad_files_are_skipped_and_counted(root: Path) -> None:
    top = root / "hpatches-sequences-release"
    (top / "i_still" / "2.ppm").unlink()
    (top / "i_still" / "3.ppm").write_bytes(b"P6 cut")
    (top / "i_still" / "H_1_4").write_text("1 0 0\n0 1")
    (top / "i_still" / "H_1_5").write_text("0 0 0\n0 0 0\n0 0 0")
    layouts.make_image(top / "i_still" / "6.png")
    layouts.make_image(top / "v_empty" / "2.ppm")
    (top / "v_file").write_text("not a folder")
    sentence = "images that are missing or broken, or whose homography is"
    with pytest.warns(UserWarning, match=rf"10 {sentence} \(first: i_still/2\.ppm\)"):
        dataset = hpatches.load(root, grid=4)
    assert dataset.skipped[sentence] == 4 + 6  # of the sequence without a first image all are
    assert len([obj for obj in dataset.splits["test"].objects if obj.label == "illumination"]) == 2


def test_errors_are_one_sentence(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        hpatches.load(tmp_path / "nowhere")
    for path in root.rglob("H_1_*"):
        path.unlink()
    with pytest.raises(DataError, match="has no sequence"):
        hpatches.load(root)
    shutil.rmtree(root / "hpatches-sequences-release")
    with pytest.raises(DataError, match="There is no"):
        hpatches.load(root)


@pytest.fixture(scope="module")
def real(shared_datasets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hpatches")
    with tarfile.open(shared_datasets / "hpatches-400.tar") as archive:
        archive.extractall(root, filter="data")
    return root


def correlations(first: Annotation, other: Annotation, shift: float) -> list[float]:
    """Normalised correlation of the patch about each keypoint with the warped one about its (shifted) projection."""
    image0, image1 = (np.asarray(Image.open(obj.path).convert("L"), dtype=float) for obj in (first, other))
    homography = hpatches.read_homography(other.path.parent / f"H_1_{other.path.stem}")
    steps = np.arange(-10.0, 11.0)
    around = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)  # (441, 2)
    position = dict(zip(other.names, other.keypoints, strict=True))
    found = []
    for name, point in zip(first.names, first.keypoints, strict=True):
        if name not in position:
            continue
        patch0 = point + around
        patch1 = project(homography, patch0) - project(homography, point[None]) + position[name] + (shift, 0.0)
        if (patch1 < 0).any() or (patch1 > image1.shape[::-1]).any():
            continue
        values = [map_coordinates(i, (p - 0.5).T[::-1], order=1) for i, p in ((image0, patch0), (image1, patch1))]
        if values[0].std() > 8 and values[1].std() > 4:  # a flat patch says nothing
            found.append(float(np.corrcoef(values)[0, 1]))
    return found


def test_real_projections_lie_on_the_same_structures(real: Path) -> None:
    dataset = hpatches.load(real)
    split = dataset.splits["test"]
    assert split.pairs is not None
    assert len({obj.path.parent for obj in split.objects}) == 98
    assert len(split.pairs) == 98 * 5
    assert not dataset.skipped
    for label in ("viewpoint", "illumination"):
        pairs = [p for p in split.pairs if split.objects[p[0]].label == label][::11]
        true, shifted = (
            [c for a, b in pairs for c in correlations(split.objects[a], split.objects[b], s)] for s in (0.0, 8.0)
        )
        assert len(true) > 500
        assert np.median(true) > 0.8
        assert np.median(true) > np.median(shifted) + 0.4
