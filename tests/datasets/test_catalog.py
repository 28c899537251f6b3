"""Opening datasets by name: the two meanings of synthetic, protocols, and splits that are prepared on the way."""

import re
from pathlib import Path

import pytest

from normmatch.datasets import drawn
from normmatch.datasets.catalog import load_splits, open_dataset, prepared_folder
from normmatch.errors import ConfigError, DataError
from tests.datasets import layouts


def write_folder(root: Path, images: int) -> Path:
    """A user's folder of one class."""
    lines = ["image,class,name,x,y"]
    for index in range(images):
        layouts.make_image(root / f"{index}.png", seed=index)
        lines += [f"{index}.png,cat,eye,{10 + index},20", f"{index}.png,cat,nose,30,{15 + index}"]
    (root / "annotations.csv").write_text("\n".join(lines))
    return root


def test_synthetic_is_told_by_its_marker(tmp_path: Path) -> None:
    drawn.write(tmp_path / "drawn", 2, 32, 0)
    assert all(item.homography is None for item in open_dataset("synthetic", tmp_path / "drawn").splits["val"].objects)
    own = write_folder(tmp_path / "own", 4)  # with an annotations.csv, too
    assert any(item.homography is not None for item in open_dataset("synthetic", own).splits["val"].objects)


@pytest.mark.parametrize("name", ["willow", "hpatches", "folder", "synthetic"])
def test_protocols_are_for_the_benchmarks_that_have_them(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} has no protocol 'bbgm'; only pascal-voc and spair-71k have.$"):
        open_dataset(name, tmp_path, "bbgm")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["pascal-voc", "spair-71k", "willow", "hpatches", "folder", "synthetic"])
def test_a_folder_that_cannot_be_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path))}.* cannot be read: Permission denied.$"):
        open_dataset(name, tmp_path)  # type: ignore[arg-type]


def test_load_splits_prepares_once_and_again_when_the_data_change(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 6)
    splits = load_splits("folder", root, size=32)
    assert {name: split.images.shape for name, split in splits.items()} == {
        "train": (4, 32, 32, 3),
        "val": (2, 32, 32, 3),
    }
    made = (prepared_folder("folder", root, size=32) / "images.npy").stat()
    load_splits("folder", root, size=32)
    assert (prepared_folder("folder", root, size=32) / "images.npy").stat().st_mtime_ns == made.st_mtime_ns
    write_folder(root, 7)
    assert len(load_splits("folder", root, size=32)["train"].objects) == 5


def test_load_splits_is_strict_with_own_data_alone(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "own", 6)
    (root / "1.png").write_bytes((root / "1.png").read_bytes()[:60])
    with pytest.raises(DataError, match=r"1\.png"):
        load_splits("folder", root, size=32)
    layouts.make_voc(tmp_path / "voc", train_images=4, test_images=2)
    image = next(iter(sorted((tmp_path / "voc").rglob("*.jpg"))))
    image.write_bytes(image.read_bytes()[:60])
    with pytest.warns(UserWarning, match="2 of 24 objects of pascal-voc were skipped"):
        splits = load_splits("pascal-voc", tmp_path / "voc", "bbgm", size=32)
    assert sum(len(split.objects) for split in splits.values()) == 2 * 2 * 6 - 2


def test_load_splits_says_what_is_missing(tmp_path: Path) -> None:
    layouts.make_hpatches(tmp_path / "patches")
    with pytest.raises(DataError, match="^hpatches has no training objects; it is for evaluation.$"):
        load_splits("hpatches", tmp_path / "patches", size=32)
    assert list(load_splits("hpatches", tmp_path / "patches", size=32, needed=["test"])) == ["test"]
    root = write_folder(tmp_path / "own", 2)
    with pytest.raises(DataError, match="too few objects for a validation split; expected at least two images more"):
        load_splits("folder", root, size=32)
    with pytest.raises(DataError, match=r"two images more of a class, or --data\.no-validation-split\.$"):
        load_splits("folder", root, size=32)
    with pytest.raises(DataError, match=r"two images more of a class\.$"):  # in an evaluation
        load_splits("folder", root, size=32, needed=["val"])
    assert not (root / "prepared").exists()
    assert len(load_splits("folder", root, size=32, needed=["train"])["train"].objects) == 2
    with pytest.raises(DataError, match="no objects for the split 'test'; it has train"):
        load_splits("folder", root, size=32, needed=["test"])


def test_a_size_of_0_is_not_the_protocol_s(tmp_path: Path) -> None:
    assert prepared_folder("folder", tmp_path, size=0).name == "folder-nmt-0"
    with pytest.raises(DataError, match="size of the prepared images is 0"):
        load_splits("folder", write_folder(tmp_path, 6), size=0)
