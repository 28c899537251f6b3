"""`normmatch eval --task locate`."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.errors import NormMatchError
from normmatch.evaluation import locating
from normmatch.evaluation.config import EvalConfig
from normmatch.evaluation.locating import evaluate_locating
from tests.matching.locating_scene import FakeEncoder, photograph, points

NAMES = ("left", "right", "top", "low", "middle", "tip")
PLACES = points(0, 6, 200, 160)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four photographs of one thing, one of which lacks a landmark, and as many of another kind."""
    monkeypatch.setattr(locating, "Matcher", lambda *_, **__: SimpleNamespace(backend=FakeEncoder()))
    monkeypatch.setattr(locating, "find_weights", lambda name: Path(name))
    (tmp_path / "images").mkdir()
    sets = []
    for number in range(8):
        kind, i = divmod(number, 4)
        image = photograph(50 + number, 260, 200, 4)
        image[8 * i : 8 * i + 160, 10 * i : 10 * i + 200] = photograph(kind, 200, 160)
        Image.fromarray(image).save(tmp_path / "images" / f"{number}.png")
        names, xy = NAMES[i == 3 :], (PLACES + np.array((10 * i, 8 * i)))[i == 3 :]
        sets.append(Annotation(f"images/{number}.png", names, xy, None, ("fish", "wing")[kind]))
    annotations.write(tmp_path / "all.json", sets)
    return tmp_path


def settings(data: Path, **change: Any) -> EvalConfig:
    given: dict[str, Any] = {"task": "locate", "references": (1, 2), "draws": 2, "looks": 1, "out": data / "out"}
    return EvalConfig(**given | change)


def test_any_annotated_photographs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = evaluate_locating([str(data / "all.json")], settings(data, boxes=True, json=data / "report.json"))
    one, two = report["results"]
    assert (one["references"], one["photographs"], two["photographs"]) == (1, 2 * 2 * 3, 2 * 2 * 2)
    assert set(one["classes"]) == {"fish", "wing"}
    assert one["pck 0.1"] > 0.9
    assert one["pck 0.01"] <= one["pck 0.05"] <= one["pck 0.2"]
    assert one["sides confused"] == 0
    assert json.loads((data / "report.json").read_text())["results"] == json.loads(json.dumps(report["results"]))
    out = capsys.readouterr().out
    assert "located within a share of the object" in out
    assert "mean of classes" in out


def test_predictions_are_scored_again_without_a_network(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = evaluate_locating([str(data / "all.json")], settings(data))
    monkeypatch.setattr(locating, "Matcher", None)
    again = evaluate_locating([], settings(data, predictions=(data / "out/located.jsonl",), out=None))
    assert json.dumps(again["results"]) == json.dumps(first["results"])
    (data / "bad.jsonl").write_text('{}\n{"class": 1}\n')
    with pytest.raises(NormMatchError, match="holds no predictions of locating"):
        evaluate_locating([], settings(data, predictions=(data / "bad.jsonl",)))


def test_a_list_of_pairs(data: Path) -> None:
    words = [
        ";".join(f"{v:.3f}" for v in (PLACES + np.array(move))[:, axis] - 0.5)
        for move in (0, (10, 8))
        for axis in (0, 1)
    ]
    (data / "pairs.csv").write_text(
        f"source_image,target_image,class,XA,YA,XB,YB\nimages/0.png,images/1.png,3,{','.join(words)}\n"
    )
    (result,) = evaluate_locating([str(data / "pairs.csv")], settings(data, references=()))["results"]
    assert list(result["classes"]) == ["bird"]
    assert result["pck 0.05"] == 1
    _, row = map(json.loads, (data / "out/located.jsonl").read_text().splitlines())
    assert row["size"] == 260  # of the image, as is usual there
    np.testing.assert_allclose(row["truth"], PLACES + np.array((10, 8)), atol=0.01)


@pytest.mark.parametrize(
    ("what", "change", "says"),
    [
        ([], {}, "expected a dataset or a keypoints file"),
        (["all.json"], {"references": ()}, "has no pairs of its own; expected --references"),
        (["nowhere.json"], {}, "nowhere.json cannot be read"),
    ],
)
def test_one_sentence_for_what_is_wrong(data: Path, what: list[str], change: dict[str, Any], says: str) -> None:
    with pytest.raises(NormMatchError, match=says):
        evaluate_locating([str(data / one) for one in what], settings(data, **change))


def test_settings_that_do_not_go_together() -> None:
    for change, says in (({"references": (0,)}, "references"), ({"gray": True}, "is for matching")):
        with pytest.raises(NormMatchError, match=says):
            EvalConfig(task="locate", **change)  # type: ignore[arg-type]
