"""The sample photographs are in the package, free, small, and their hand-made annotations make sense."""

import json
from pathlib import Path

import pytest
from PIL import Image

from normmatch.errors import InputError
from normmatch.matching import samples
from normmatch.matching.samples import Sample, copy_samples, find_samples, get_sample

ALL = find_samples()
MAX_BYTES = 300_000  # all of them together


def test_what_there_is() -> None:
    assert [sample.title for sample in ALL] == ["cat", "raccoon", "astronaut"]
    assert sum(sample.path.stat().st_size for sample in ALL) <= MAX_BYTES


def test_each_photograph_has_its_points_and_its_rights() -> None:
    entries = json.loads(samples.POINTS.read_text())["images"]
    files = {path.name for path in Path(samples.FOLDER).iterdir()}
    assert files == {"points.json", "README.md", *(entry["image"] for entry in entries)}
    table = (samples.FOLDER / "README.md").read_text()
    for entry in entries:
        (row,) = (line for line in table.splitlines() if f"`{entry['image']}`" in line)
        assert "CC0" in row or "public domain" in row


@pytest.mark.parametrize("sample", ALL, ids=[sample.title for sample in ALL])
def test_points_lie_on_the_object(sample: Sample) -> None:
    with Image.open(sample.path) as image:
        width, height = image.size
    x, y, w, h = sample.points.box or (0, 0, width, height)
    assert x >= 0 <= y
    assert x + w <= width
    assert y + h <= height
    inside = (sample.points.keypoints > (x, y)) & (sample.points.keypoints < (x + w, y + h))
    assert inside.all()


@pytest.mark.parametrize("sample", ALL, ids=[sample.title for sample in ALL])
def test_left_is_its_own_left(sample: Sample) -> None:
    """They look at us, so that their left is on our right; eyes are above the nose, and that above the chin."""
    place = dict(zip(sample.points.names, sample.points.keypoints.tolist(), strict=True))
    assert place["L_Eye"][0] > place["Nose"][0] > place["R_Eye"][0]
    assert max(place["L_Eye"][1], place["R_Eye"][1]) < place["Nose"][1] < place["Chin"][1]
    ears = sorted(name for name in place if "Ear" in name)
    assert place[ears[0]][0] > place["L_Eye"][0] > place["R_Eye"][0] > place[ears[1]][0]


def test_an_unknown_title_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="no sample photograph 'tiger'; expected one of cat, raccoon, astronaut"):
        get_sample("tiger")


def test_copies_never_replace_a_different_file(tmp_path: Path) -> None:
    for _ in range(2):
        copy_samples(ALL[:2], tmp_path)
    assert next(iter(json.loads((tmp_path / "points.json").read_text()))) == "made_by"
    (tmp_path / "pairs.csv").write_text("mine")
    with pytest.raises(InputError, match=r"pairs.csv is there already and differs; expected another folder"):
        copy_samples(ALL[:2], tmp_path)
    assert (tmp_path / "pairs.csv").read_text() == "mine"
