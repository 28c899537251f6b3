"""Crops of photographs, and what is remembered of them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch.matching.sight import Photograph, Sight, back, cut, into
from tests.matching.locating_scene import FakeEncoder, photograph, points


def test_a_box_inside_is_cut_out_and_resized() -> None:
    image = photograph(0, 60, 40)
    np.testing.assert_array_equal(cut(image, (10, 5, 20, 20), 20), image[5:25, 10:30])
    assert cut(image, (10.3, 5.2, 17.5, 21.1), 32).shape == (32, 32, 3)


def test_outside_the_border_goes_on() -> None:
    image = photograph(0, 60, 40)
    crop = cut(image, (-10, -10, 20, 20), 20)
    np.testing.assert_array_equal(crop[:10, :10], np.broadcast_to(image[0, 0], (10, 10, 3)))
    np.testing.assert_array_equal(crop[10:, 10:], image[:10, :10])
    far = cut(image, (500, 500, 20, 20), 20)
    np.testing.assert_array_equal(far[5:, 5:], np.broadcast_to(image[-1, -1], (15, 15, 3)))


def test_shares_of_a_box_and_back() -> None:
    places = points(0, 5)
    np.testing.assert_allclose(back(into(places, (10, 20, 30, 50)), (10, 20, 30, 50)), places)
    np.testing.assert_allclose(into(np.array([[25.0, 45.0]]), (10, 20, 30, 50)), [[0.5, 0.5]])


def test_a_crop_is_encoded_once() -> None:
    encoder = FakeEncoder()
    sight, image = Sight(encoder), photograph(0)
    first, again = (sight.see(Photograph.of(image.copy(), "image"), (0, 0, 100, 100), 56) for _ in range(2))
    np.testing.assert_array_equal(first.features, again.features)
    assert encoder.seen == 1
    sight.see(Photograph.of(image, "image"), (0, 0, 100, 101), 56)
    sight.see(Photograph.of(photograph(1), "image"), (0, 0, 100, 100), 56)
    assert encoder.seen == 3


def test_a_large_jpeg_is_decoded_no_larger_than_a_crop_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.jpg"
    Image.fromarray(photograph(0, 120, 90)).resize((2400, 1800), Image.Resampling.BICUBIC).save(file, quality=95)
    one, whole, part = Photograph.of(file, "a"), (0.0, 0.0, 2400.0, 1800.0), (700.0, 300.0, 500.0, 400.0)
    exact = Sight(FakeEncoder())
    exact.array(one)  # all of it
    quick = Sight(FakeEncoder())
    for box, shape in ((whole, (225, 300)), (part, (900, 1200))):
        crops = [sight._cut(one, box, 140).astype(int) for sight in (exact, quick)]
        assert np.abs(crops[0] - crops[1]).mean() < 2
        assert quick.array(one, 8).shape[:2] == (225, 300)
        assert shape in [array.shape[:2] for array in quick._open._things.values()]
    assert exact.array(one).shape == (1800, 2400, 3)
    monkeypatch.setattr("normmatch.matching.sight.read_image", lambda *_, **__: pytest.fail("it was decoded again"))
    quick.see(one, whole, 140)


def test_the_least_recently_seen_are_forgotten() -> None:
    encoder = FakeEncoder()
    sight, image = Sight(encoder, 2), Photograph.of(photograph(0), "image")
    for x in (0, 1, 2, 0):
        sight.see(image, (x, 0, 100, 100), 56)
    assert encoder.seen == 4


def test_a_file_that_has_changed_is_another_photograph(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    Image.fromarray(photograph(0)).save(file)
    before = Photograph.of(file, "a")
    Image.fromarray(photograph(1, 100, 90)).save(file)
    after = Photograph.of(str(file), "a")
    assert before.key != after.key
    assert Sight(FakeEncoder()).size(after) == (100, 90)


def test_what_breaks_off_on_disk_is_encoded_anew(tmp_path: Path) -> None:
    image = Photograph.of(photograph(0), "image")
    first = Sight(FakeEncoder(), 0, tmp_path).see(image, (0, 0, 100, 100), 56)
    (file,) = (one for one in tmp_path.glob("*.npy") if one.stem != "probe")
    file.write_bytes(file.read_bytes()[:100])
    again = Sight(FakeEncoder(), 0, tmp_path).see(image, (0, 0, 100, 100), 56)
    np.testing.assert_array_equal(first.features, again.features)
