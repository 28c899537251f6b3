"""Lists of pairs as PF-PASCAL and PF-WILLOW have them, with blank photographs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch.datasets.pf import is_list, read_list
from normmatch.errors import DataError


def blank(path: Path, size: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)


def test_pf_pascal(tmp_path: Path) -> None:
    for name in ("2008_000585", "2008_004704"):
        blank(tmp_path / f"PF-dataset-PASCAL/JPEGImages/{name}.jpg", (500, 375))
    file = tmp_path / "test_pairs.csv"
    file.write_text(
        "source_image,target_image,class,XA,YA,XB,YB\n"
        "PF-dataset-PASCAL/JPEGImages/2008_000585.jpg,PF-dataset-PASCAL/JPEGImages/2008_004704.jpg,1,"
        "144.5;266.2,177.0;199.5,63.1;320.3,249.7;158.5\n"
    )
    assert is_list(file)
    split = read_list(file, tmp_path)
    assert split.pairs is not None
    assert split.pairs.tolist() == [[0, 1]]
    assert split.objects[0].label == "aeroplane"
    np.testing.assert_allclose(split.objects[1].keypoints, [[63.6, 250.2], [320.8, 159.0]])
    assert split.objects[0].box == (0, 0, 500, 375)


def test_pf_willow(tmp_path: Path) -> None:
    columns = [f"{axis}{side}{i}" for side in "AB" for axis in "XY" for i in range(1, 11)]
    places = np.arange(40.0) * 3
    for name in ("car(G)/a.png", "car(M)/b.png"):
        blank(tmp_path / "PF-dataset" / name, (300, 200))
    file = tmp_path / "test_pairs.csv"
    file.write_text(
        f"imageA,imageB,{','.join(columns)}\nPF-dataset/car(G)/a.png,PF-dataset/car(M)/b.png,"
        f"{','.join(map(str, places))}\n"
    )
    first, second = read_list(file, tmp_path).objects
    np.testing.assert_allclose(first.keypoints[1], (3.5, 33.5))
    np.testing.assert_allclose(second.keypoints[0], (60.5, 90.5))
    assert first.box == (0.5, 30.5, 27, 27)


def test_one_sentence_for_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("source_image,target_image,class,XA,YA,XB,YB\na.png,b.png,1,1;2,3;4,x;6,7;8\n")
    with pytest.raises(DataError, match=r"a.png is not beside the list"):
        read_list(file, tmp_path)
    blank(tmp_path / "a.png", (9, 9))
    with pytest.raises(DataError, match="line 2 is not as"):
        read_list(file, tmp_path)
    file.write_text("image,name,x,y\n")
    assert not is_list(file)
