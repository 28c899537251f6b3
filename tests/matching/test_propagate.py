"""Annotate once: where the reference's keypoints are found, as a COCO file that is read again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.config import MatchOptions
from normmatch.errors import DataError, InputError
from normmatch.matching.matcher import Matcher
from normmatch.matching.propagate import Propagated, propagate
from normmatch.outputs import made_by_us
from tests.matching.scene import photograph, points, tiny_model

NAMES = ("left_eye", "right_eye", "nose", "tail")


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """A reference beside the folder `images`, which holds two images with candidates and one without."""
    tiny_model().save_pretrained(tmp_path / "tiny.safetensors")
    Image.fromarray(photograph(0)).save(tmp_path / "cat.png")
    annotations.write(tmp_path / "reference.json", [Annotation("cat.png", NAMES, points(0, 4), None, "cat")])
    sets = []
    for i, name in ((1, "1.png"), (2, "more/2.png"), (3, "none.png")):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photograph(i)).save(path)
        xy = points(i, 3 * i)
        sets.append(Annotation(name, tuple(map(str, range(len(xy)))), xy, (0, 0, 115, 80) if i == 2 else None))
    annotations.write(tmp_path / "candidates.json", sets[:2])
    return tmp_path


def run(scene: Path, **change: Any) -> Propagated:
    options = MatchOptions(str(scene / "tiny.safetensors"), "cpu", one_to_one=True, min_score=change.pop("score", 0.0))
    names = {"reference": "reference.json", "images": "images", "candidates": "candidates.json", "out": "out.json"}
    paths = {key: scene / change.get(key, name) for key, name in names.items()}
    return propagate(**paths, options=options, progress=False)


def test_coco_with_scores(scene: Path) -> None:
    assert run(scene) == Propagated(3, ("none.png",), ())
    content = json.loads((scene / "out.json").read_text())
    assert content["categories"] == [{"id": 1, "name": "cat", "keypoints": list(NAMES), "skeleton": []}]
    assert [image["file_name"] for image in content["images"]] == ["../cat.png", "1.png", "more/2.png"]
    assert [(image["width"], image["height"]) for image in content["images"]] == [(120, 80)] * 3
    matcher = Matcher(scene / "tiny.safetensors", device="cpu")
    for i, annotation in enumerate(content["annotations"][1:], 1):
        image, box = content["images"][i], (0, 0, 115, 80) if i == 2 else None
        assert (annotation["image_id"], annotation["category_id"], annotation["iscrowd"]) == (image["id"], 1, 0)
        expected = matcher.match(
            scene / "cat.png", scene / "images" / image["file_name"], points(0, 4), points(i, 3 * i),
            box1=box, one_to_one=True, min_score=0,
        )  # fmt: skip
        triples = np.array(annotation["keypoints"]).reshape(4, 3)
        for triple, match in zip(triples, expected["matches0"], strict=True):
            np.testing.assert_allclose(triple, [*points(i, 3 * i)[match], 2] if match >= 0 else [0, 0, 0])
        assert annotation["num_keypoints"] == len(expected["matches"])
        assert annotation["keypoint_scores"] == pytest.approx(expected["matching_scores0"], abs=1e-4)
        assert annotation["score"] == pytest.approx(expected["scores"].mean(), abs=1e-4)
        x, y, width, height = annotation["bbox"]
        if box is None:
            seen = triples[triples[:, 2] > 0]
            np.testing.assert_allclose([x, y, x + width, y + height], [*seen.min(0)[:2], *seen.max(0)[:2]])
        else:
            assert tuple(annotation["bbox"]) == box
        assert annotation["area"] == pytest.approx(width * height)


def test_it_is_read_again(scene: Path) -> None:
    run(scene)
    reference, first, second = annotations.read(scene / "out.json")
    assert (reference.image, reference.names) == ("../cat.png", NAMES)
    np.testing.assert_allclose(reference.keypoints, points(0, 4))
    assert (first.image, first.label, len(first.names)) == ("1.png", "cat", 3)  # of 4 names, for 3 candidates
    assert (second.names, second.box) == (NAMES, (0, 0, 115, 80))


def test_keypoints_that_are_not_found(scene: Path) -> None:
    assert run(scene, score=1.0).objects == 3
    annotation = json.loads((scene / "out.json").read_text())["annotations"][1]
    assert (annotation["keypoints"], annotation["num_keypoints"], annotation["score"]) == ([0] * 12, 0, 0)
    assert annotation["bbox"] == [0, 0, 120, 80]


def test_the_reference_is_not_matched_with_itself(scene: Path) -> None:
    Image.fromarray(photograph(0)).save(scene / "images/cat.png")
    (scene / "cat.png").unlink()  # it lies among the images
    candidates = [*annotations.read(scene / "candidates.json"), Annotation("cat.png", NAMES, points(0, 4))]
    annotations.write(scene / "candidates.json", candidates)
    assert run(scene) == Propagated(3, ("none.png",), ())
    content = json.loads((scene / "out.json").read_text())
    assert [image["file_name"] for image in content["images"]] == ["cat.png", "1.png", "more/2.png"]
    annotation = content["annotations"][0]
    assert np.array(annotation["keypoints"]).reshape(4, 3)[:, :2] == pytest.approx(points(0, 4))
    assert (annotation["score"], annotation["keypoint_scores"], annotation["num_keypoints"]) == (1, [1] * 4, 4)


def test_bad_images_are_skipped(scene: Path) -> None:
    (scene / "images/1.png").write_text("hello")
    result = run(scene)
    assert result.objects == 2
    assert len(result.failed) == 1
    assert "1.png is not a readable image" in result.failed[0]
    assert len(json.loads((scene / "out.json").read_text())["images"]) == 2


def test_several_objects_in_an_image(scene: Path) -> None:
    sets = [Annotation("1.png", ("a", "b"), points(k, 2)) for k in (5, 6)]
    annotations.write(scene / "candidates.json", sets)
    assert run(scene).objects == 3
    content = json.loads((scene / "out.json").read_text())
    assert len(content["images"]) == 2
    assert [annotation["image_id"] for annotation in content["annotations"]] == [1, 2, 2]


def test_one_sentence_for_what_is_wrong(scene: Path) -> None:
    (scene / "empty").mkdir()
    annotations.write(scene / "two.json", [Annotation("cat.png", NAMES, points(0, 4))] * 2)
    annotations.write(scene / "zero.json", [Annotation("cat.png", (), np.zeros((0, 2)))])
    annotations.write(scene / "lost.json", [Annotation("dog.png", NAMES, points(0, 4))])
    annotations.write(scene / "other.json", [Annotation("other.png", NAMES, points(0, 4))])
    annotations.write(scene / "far.json", [Annotation("1.png", ("a",), np.array([[500.0, 5.0]]))])
    for change, sentence in (
        ({"reference": "two.json"}, r"two.json has 2 objects; expected one"),
        ({"reference": "zero.json"}, r"zero.json has no keypoint"),
        ({"reference": "lost.json"}, r"about dog.png, which is neither beside it nor in"),
        ({"reference": "missing.json"}, r"missing.json cannot be read"),
        ({"images": "nowhere"}, "nowhere is not a folder"),
        ({"images": "empty"}, "There is no image in"),
        ({"candidates": "other.json"}, "other.json has no candidates for the 3 images in"),
        ({"candidates": "far.json"}, r"No image could be matched: .*far outside the picture"),
        ({"out": "two.json/out.json"}, "out.json cannot be written"),
    ):
        with pytest.raises(ValueError, match=sentence) as caught:
            run(scene, **change)
        assert "\n" not in str(caught.value)
    assert not (scene / "out.json").exists()
    assert issubclass(DataError, ValueError)


@pytest.mark.parametrize("out", ["cat.png", "reference.json", "candidates.json", "images/1.png", "tiny.safetensors"])
def test_no_input_is_written_over(scene: Path, out: str) -> None:
    before = (scene / out).read_bytes()
    with pytest.raises(InputError, match="which this command reads"):
        run(scene, out=out)
    assert (scene / out).read_bytes() == before


def test_only_a_file_of_ours_is_replaced(scene: Path) -> None:
    (scene / "out.json").write_text("mine")
    with pytest.raises(InputError, match="was not written by NormMatch"):
        run(scene)
    (scene / "out.json").unlink()
    run(scene)
    run(scene)
    assert made_by_us(scene / "out.json")
