"""The sample photographs are found in installed packages, and their hand-made annotations make sense."""

import importlib.util
import json
from pathlib import Path

import pytest
from PIL import Image

from normmatch.errors import ConfigError, InputError
from normmatch.matching import samples
from normmatch.matching.samples import Sample, find_samples, get_sample

VOC_CAT = {"L_Eye", "R_Eye", "Nose", "L_EarBase", "R_EarBase", "Throat", "Withers", "TailBase"}
VOC_CAT |= {f"{side}_{end}_{part}" for side in "LR" for end in "FB" for part in ("Elbow", "Paw")}
VOC_MOTORBIKE = {"B_WheelCenter", "B_WheelEnd", "ExhaustPipeEnd", "F_WheelCenter", "F_WheelEnd", "HandleCenter"}
VOC_MOTORBIKE |= {"L_HandleTip", "R_HandleTip", "SeatBase", "TailLight"}
ALL = find_samples()


def test_all_are_installed_with_the_extra_demo() -> None:
    assert [sample.title for sample in ALL] == list(samples.TITLES.values())


@pytest.mark.parametrize("sample", ALL, ids=[sample.title for sample in ALL])
def test_points_lie_on_the_object(sample: Sample) -> None:
    with Image.open(sample.points.image) as image:
        width, height = image.size
    x, y, w, h = sample.points.box or (0, 0, width, height)
    assert x >= 0 <= y
    assert x + w <= width
    assert y + h <= height
    inside = (sample.points.keypoints > (x - 2, y - 2)) & (sample.points.keypoints < (x + w + 2, y + h + 2))
    assert inside.all()
    assert set(sample.points.names) <= {"cat": VOC_CAT, "motorbike": VOC_MOTORBIKE}[sample.points.label]


@pytest.mark.parametrize("title", ["cheetah", "lion", "cub", "cat"])
def test_left_is_the_animals_left(title: str) -> None:
    """They look at us, so that their left is on our right; ears are above eyes, and those above the nose."""
    points = get_sample(title).points
    place = dict(zip(points.names, points.keypoints.tolist(), strict=True))
    for part in ("Eye", "EarBase"):
        assert place[f"L_{part}"][0] > place["Nose"][0] > place[f"R_{part}"][0]
    for side in "LR":
        assert place[f"{side}_EarBase"][1] < place[f"{side}_Eye"][1] < place["Nose"][1]


def test_an_unknown_title_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="no sample photograph 'tiger'; expected one of cheetah, lion, cub"):
        get_sample("tiger")


def test_without_the_packages_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert find_samples() == []
    with pytest.raises(ConfigError, match=r"normmatch\[demo\]"):
        get_sample("lion")


def test_no_picture_is_in_the_repository() -> None:
    entries = json.loads(samples.POINTS.read_text())["images"]
    assert all(entry["image"].split("/")[0] in ("gradio", "skimage") for entry in entries)
    assert {path.suffix for path in Path(samples.POINTS).parent.iterdir()} <= {".py", ".json", ""}
