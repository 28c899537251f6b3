"""Afterwards: our TPS and CSV in ktch and pandas, our COCO in pycocotools, as people go on with them."""

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest

from normmatch import annotations
from tests.annotations.test_suspicions import labels


def test_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    items = labels(6)
    annotations.write(tmp_path / "long.csv", items)
    annotations.write(tmp_path / "wide.csv", items, "wide")
    table = pandas.read_csv(tmp_path / "long.csv").pivot(index="image", columns="name", values=["x", "y"])
    assert table.loc["3.jpg", ("x", "tail")] == items[3].keypoints[5, 0]
    wide = pandas.read_csv(tmp_path / "wide.csv", index_col="image")
    np.testing.assert_array_equal(wide.to_numpy().reshape(6, -1, 2), [item.keypoints for item in items])


def test_ktch(tmp_path: Path) -> None:
    ktch_io = pytest.importorskip("ktch.io")
    landmark = pytest.importorskip("ktch.landmark")
    items = labels(6)
    annotations.write(tmp_path / "a.tps", items, "tps")
    data = ktch_io.read_tps(tmp_path / "a.tps")
    shapes = np.stack([one.to_numpy() if hasattr(one, "to_numpy") else np.asarray(one.landmarks) for one in data])
    np.testing.assert_allclose(shapes[:, :, 0], [item.keypoints[:, 0] for item in items], atol=1e-4)
    np.testing.assert_allclose(900 - shapes[:, :, 1], [item.keypoints[:, 1] for item in items], atol=1e-4)
    aligned = landmark.GeneralizedProcrustesAnalysis().fit_transform(shapes.reshape(6, -1))
    assert np.isfinite(aligned).all()


def test_pycocotools(tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    annotations.write(tmp_path / "a.json", labels(4), "coco")
    with contextlib.redirect_stdout(io.StringIO()):
        data = coco.COCO(str(tmp_path / "a.json"))
    (one,) = data.loadAnns(data.getAnnIds(imgIds=[2]))
    np.testing.assert_array_equal(np.reshape(one["keypoints"], (-1, 3))[:, :2], labels(4)[1].keypoints)
    assert data.loadCats(data.getCatIds())[0]["keypoints"][5] == "tail"
