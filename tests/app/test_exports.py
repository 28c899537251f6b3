"""What a project gives: every format reads again as it was, and pictures show what is in it."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations.formats import OUTPUTS
from normmatch.annotations.project import Landmark, Photograph, Point, Project
from normmatch.annotations.reading import Reading
from normmatch.app import exports
from normmatch.app.photographs import Photographs
from normmatch.app.suspects import Suspects
from normmatch.errors import DataError
from tests.app.client import wait_for

MEAN = np.array([[0, 0], [40, -10], [80, 0], [90, 40], [60, 70], [20, 60], [-10, 30], [35, 25]], dtype=float)
NAMES = ("left eye", "nose", "right eye", "d", "e", "f", "g", "h")
PAIRS = {"left eye": "right eye", "right eye": "left eye"}


def draw(count: int, seed: int) -> np.ndarray:
    """Shapes (R, K, 2) of one kind, turned and sized at random, in the pixels of photographs."""
    rng = np.random.default_rng(seed)
    angle, size = rng.uniform(0, 2 * np.pi, count), rng.uniform(0.5, 8, count)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
    return size[:, None, None] * ((MEAN + rng.normal(0, 1, (count, *MEAN.shape))) @ turn.transpose(0, 2, 1))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Sixteen photographs, all but the last reviewed; in the third the eyes are exchanged, in the fifth one is off."""
    photographs = {}
    places = draw(16, seed=4)
    places[2, [0, 2]] = places[2, [2, 0]]
    places[4, 6] += 0.3 * np.ptp(places[4], 0).max()
    for number, xy in enumerate(places - places.min((1, 2), keepdims=True) + 5):
        file = f"{number}.jpg"
        width, height = (int(side) + 20 for side in xy.max(0))
        Image.new("RGB", (width, height), "#7799aa").save(tmp_path / file)
        points = {n: Point("person", (float(x), float(y))) for n, (x, y) in zip(NAMES, xy, strict=True)}
        photographs[file] = Photograph(file, width, height, points, reviewed=number < 15)
    absent = {**photographs["1.jpg"].points, "h": Point("person", absent=True)}
    photographs["1.jpg"] = replace(photographs["1.jpg"], points=absent, scale={"per_pixel": 0.1, "unit": "cm"})
    landmarks = tuple(Landmark(name, None, PAIRS.get(name)) for name in NAMES)
    return Project("My beetles", landmarks, photographs, (("nose", "d"),))


@pytest.fixture
def photographs(tmp_path: Path, project: Project) -> Photographs:
    return Photographs(tmp_path, project.photographs)


@pytest.mark.parametrize("what", sorted(OUTPUTS))
def test_every_format_reads_again(tmp_path: Path, project: Project, photographs: Photographs, what: str) -> None:
    name, content = exports.export(project, photographs, what, everything=False)
    assert name.startswith("My beetles")
    place = tmp_path / name
    place.write_bytes(content)
    if name.endswith(".zip"):
        zipfile.ZipFile(io.BytesIO(content)).extractall(tmp_path)
        place = tmp_path / "My beetles"
    items = annotations.read(place, how=Reading(images=tmp_path))
    assert len(items) == 15
    reviewed = {Path(one.file).stem: one for one in project.reviewed}
    for item in items:
        one = reviewed.pop(Path(item.image).stem)
        expected = project.keypoints(one)
        expected = expected[np.isfinite(expected).all(1)]
        np.testing.assert_allclose(item.keypoints, expected, atol=0.01)
    with_all = exports.export(project, photographs, what, everything=True)[1]
    assert with_all != content


def test_what_there_is_is_listed(project: Project, photographs: Photographs) -> None:
    listed = {item["format"]: item for item in exports.listed()}
    assert set(OUTPUTS) <= set(listed)
    assert "names" in listed["tps"]["note"]
    for what in listed:
        name, content = exports.export(project, photographs, what, everything=False)
        assert Path(name).suffix
        assert content
    with pytest.raises(KeyError):
        exports.export(project, photographs, "doc", everything=False)
    nothing = Project("p", project.landmarks, {"0.jpg": Photograph("0.jpg", 60, 40)})
    with pytest.raises(DataError, match="nothing to export"):
        exports.export(nothing, photographs, "coco", everything=True)


def test_a_contact_sheet_shows_all_photographs(project: Project, photographs: Photographs, tmp_path: Path) -> None:
    (tmp_path / "3.jpg").unlink()  # that page has an empty frame then
    _, content = exports.export(project, photographs, "sheet.png", everything=True)
    sheet = np.asarray(Image.open(io.BytesIO(content))).astype(int)
    assert (np.abs(sheet - (0x77, 0x99, 0xAA)).max(2) < 4).mean() > 0.04
    name, content = exports.export(project, photographs, "sheet.pdf", everything=False)
    assert (Path(name).suffix, content[:5]) == (".pdf", b"%PDF-")


def test_the_mean_shape_and_what_is_far_from_it(project: Project, photographs: Photographs) -> None:
    told = json.loads(exports.export(project, photographs, "shape.json", everything=False)[1])
    assert set(told["mean"]) == set(told["deviation"]) == set(NAMES)
    places = np.array(list(told["mean"].values()))
    assert np.ptp(places, 0).max() == pytest.approx(1, abs=1e-4)
    found = {(item["photograph"], item["landmark"], item["kind"]) for item in told["outliers"]}
    assert {("4.jpg", "g", "far"), ("2.jpg", "left eye", "exchanged")} <= found
    picture = Image.open(io.BytesIO(exports.export(project, photographs, "shape.png", everything=False)[1]))
    assert len(picture.getcolors(1 << 20) or ()) > 8
    few = Project("p", project.landmarks, dict(list(project.photographs.items())[:3]))
    with pytest.raises(DataError, match="at least 5"):
        exports.export(few, photographs, "shape.json", everything=False)


def test_suspects_follow_what_changes(project: Project) -> None:
    suspects = Suspects()

    def kinds(project: Project, file: str) -> list[tuple[str, str]]:
        return [(one["kind"], one["landmark"]) for one in suspects.of(project).get(file, [])]

    assert suspects.of(project) == {}  # nobody waits for it
    wait_for(lambda: kinds(project, "2.jpg") == [("exchanged", "left eye")])
    assert suspects.of(project)["2.jpg"][0]["other"] == "right eye"
    assert ("far", "g") in kinds(project, "4.jpg")
    changed = replace(project, photographs=with_eyes_exchanged(project, "15.jpg"))
    mended = replace(changed, photographs=with_eyes_exchanged(changed, "2.jpg"))
    wait_for(lambda: kinds(mended, "15.jpg") == [("exchanged", "left eye")])  # though nobody has reviewed it
    assert kinds(mended, "2.jpg") == []
    few = replace(project, photographs=dict(list(project.photographs.items())[:4]))
    wait_for(lambda: suspects.of(few) == {})


def with_eyes_exchanged(project: Project, file: str) -> dict[str, Photograph]:
    one = project.photographs[file]
    points = {**one.points, "left eye": one.points["right eye"], "right eye": one.points["left eye"]}
    return {**project.photographs, file: replace(one, points=points)}
