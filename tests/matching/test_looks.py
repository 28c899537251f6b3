"""Looking once, and twice."""

import numpy as np
import pytest

from normmatch.matching.looks import fit_first, fit_second
from normmatch.matching.sight import Photograph, Sight, cut, encode, into
from tests.matching.locating_scene import FakeEncoder, photograph, points


def test_unlabelled_photographs_join_in_without_harm() -> None:
    encoder = FakeEncoder()
    image = photograph(1)
    places = into(points(1, 8), (0, 0, 240, 200))
    whole = [cut(image, (x, 0, 240, 200), 126) for x in range(0, 12, 3)]
    cells = encode(encoder, whole)
    model = fit_first(cells[:1], places[None], cells)
    found = model.read(cells[2])[1].mean[:8]
    np.testing.assert_allclose(found, places - (6 / 240, 0), atol=0.08)


def test_near_landmarks_share_a_crop() -> None:
    place = np.array([[50.0, 50.0], [52.0, 51.0], [150.0, 150.0], [np.nan, np.nan]])
    photographs = [Photograph.of(photograph(2), "two")] * 2
    second = fit_second(Sight(FakeEncoder()), photographs, [place, np.where(np.isnan(place), 90.0, place)], [100.0] * 2)
    assert sorted(sorted(group.tolist()) for group in second.groups) == [[0, 1], [2], [3]]
    boxes = second.boxes(np.nan_to_num(place, nan=90.0), 100.0)
    assert all(box[2] == pytest.approx(25.0) for box in boxes)
