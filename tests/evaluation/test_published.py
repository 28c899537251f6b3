"""The paper's numbers are copied right."""

import numpy as np
import pytest

from normmatch.evaluation.published import HPATCHES, MEAN, PASCAL_VOC, published_rows


@pytest.mark.parametrize("method", PASCAL_VOC)
def test_the_mean_is_that_of_the_classes(method: str) -> None:
    row = PASCAL_VOC[method]
    assert len(row) == 21
    assert np.mean([value for label, value in row.items() if label != MEAN]) == pytest.approx(row[MEAN], abs=0.15)


def test_overall_is_between_the_kinds() -> None:
    for row in HPATCHES.values():
        assert row["viewpoint"] < row["overall"] < row["illumination"]


def test_rows_stand_beside_their_own_protocol_only() -> None:
    assert list(published_rows("pascal-voc", "nmt")) == ["NMT", "COMMON", "BBGM"]
    assert published_rows("spair-71k", "nmt")["NMT"] == {MEAN: 86.7}
    assert list(published_rows("spair-71k", "bbgm")) == ["BBGM"]
    assert published_rows("pascal-voc", "thinkmatch") == {}
    assert published_rows("willow", "bbgm") == {}
