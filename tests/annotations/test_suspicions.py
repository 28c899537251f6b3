"""What is suspected: each kind of mistake is found by its name, clean labels are left alone, fixes undo it."""

from dataclasses import replace

import numpy as np
import pytest

from normmatch.annotations import Annotation, Landmarks
from normmatch.annotations.suspicions import Findings, corrected, sides, suspect
from tests.annotations.test_shapes import things

NAMES = ("nose", "left_eye", "right_eye", "left_ear", "right_ear", "tail", "left_hip", "right_hip")
SIDES = ((1, 2), (3, 4), (6, 7))


def labels(number: int = 40, seed: int = 0) -> list[Annotation]:
    points = things(number, len(NAMES), seed, 0.004)
    points += 100 - points.min(1, keepdims=True)
    return [Annotation(f"{k}.jpg", NAMES, xy, label="cow", size=(900, 900)) for k, xy in enumerate(points)]


def moved(items: list[Annotation], which: int, points: np.ndarray) -> list[Annotation]:
    return [replace(item, keypoints=points) if k == which else item for k, item in enumerate(items)]


def told(found: Findings, item: int) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.kind, one.landmarks) for one in found.suspicions if one.item == item and one.certainty > 0.5]


def test_clean_labels() -> None:
    assert [one for one in suspect(labels()).suspicions if one.certainty > 0.5] == []


def test_a_slip_and_where_it_should_be() -> None:
    items = labels()
    points = items[7].keypoints.copy()
    points[5] += 0.15 * np.ptp(points)
    found = suspect(moved(items, 7, points))
    worst = found.suspicions[0]
    assert (worst.item, worst.kind, worst.landmarks) == (7, "slip", ("tail",))
    assert np.linalg.norm(np.array(worst.expected) - items[7].keypoints[5]) < 25
    assert "of the object) from where the others say" in worst.why


def test_exchanged_names_are_told_once_and_can_be_undone() -> None:
    items = labels()
    order = [0, 1, 5, 3, 4, 2, 6, 7]
    wrong = moved(items, 3, items[3].keypoints[order])
    found = suspect(wrong)
    assert told(found, 3) == [("exchanged", ("right_eye", "tail"))]
    fixed, changed = corrected(wrong, found)
    assert changed == 1
    places = dict(zip(fixed[3].names, fixed[3].keypoints.tolist(), strict=True))
    assert places == dict(zip(NAMES, items[3].keypoints.tolist(), strict=True))
    assert [item.keypoints is old.keypoints for item, old in zip(fixed, wrong, strict=True)].count(False) == 1


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("by", [1, -1])
def test_a_shifted_order(start: int, by: int) -> None:
    items = labels()
    points = items[5].keypoints.copy()
    points[start:] = np.roll(points[start:], by, axis=0)
    wrong = moved(items, 5, points)
    found = suspect(wrong)
    assert told(found, 5) == [("shifted", NAMES[start:])]
    places = dict(zip((item := corrected(wrong, found)[0][5]).names, item.keypoints.tolist(), strict=True))
    assert places == dict(zip(NAMES, items[5].keypoints.tolist(), strict=True))


def test_left_and_right_mirrored_and_upside_down() -> None:
    items = labels()
    order = list(range(len(NAMES)))
    for a, b in SIDES:
        order[a], order[b] = b, a
    items = moved(items, 1, items[1].keypoints[order])
    items = moved(items, 2, items[2].keypoints * (-1, 1) + (900, 0))
    items = moved(items, 3, items[3].keypoints * (1, -1) + (0, 900))
    found = suspect(items)
    assert [told(found, k)[0][0] for k in (1, 2, 3)] == ["left and right", "mirrored", "upside down"]
    fixed, _ = corrected(items, found)
    np.testing.assert_array_equal(fixed[2].keypoints, items[2].keypoints)  # the photograph may be what is mirrored
    assert fixed[1].names != items[1].names or (fixed[1].keypoints != items[1].keypoints).any()


def test_rules() -> None:
    items = labels()
    points = items[0].keypoints.copy()
    points[1] = points[2]
    items = moved(items, 0, points)
    out = items[1].keypoints.copy()
    out[0] = (1000, 950)
    items = moved(items, 1, out)
    items[2] = replace(items[2], names=NAMES[:7], keypoints=items[2].keypoints[:7])
    items[3] = replace(items[3], names=NAMES[:7], keypoints=items[3].keypoints[:7], absent=NAMES[7:])
    found = suspect(items)
    assert ("same place", ("left_eye", "right_eye")) in told(found, 0)
    assert ("outside", ("nose",)) in told(found, 1)
    missing = [one for one in found.suspicions if one.kind == "missing"]
    assert [(one.item, one.landmarks) for one in missing] == [(2, ("right_hip",))]


def test_another_scale() -> None:
    items = [replace(item, scale=0.02) for item in labels()]
    items[4] = replace(items[4], scale=0.2)
    (one,) = [one for one in suspect(items).suspicions if one.kind == "scale"]
    assert (one.item, one.certainty > 0.5) == (4, True)
    assert "about 10 times as large" in one.why


def test_what_cannot_be_known_is_said() -> None:
    found = suspect(labels(3))
    assert found.suspicions == ()
    assert "The 3 objects of the class 'cow' have 8 landmarks: too few" in found.notes[0]
    assert "only 5 objects" in suspect(labels(5)).notes[0]
    assert suspect([Annotation("a.jpg", (), np.zeros((0, 2)))]).notes == ()


def test_sides_by_the_file_or_by_names() -> None:
    assert tuple(sides(labels(1), NAMES)) == SIDES
    item = replace(labels(1)[0], landmarks=Landmarks(NAMES, (), (("nose", "tail"),)))
    assert sides([item], NAMES) == [(0, 5)]
