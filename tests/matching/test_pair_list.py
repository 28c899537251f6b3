"""Thousands of pairs: the same results however they are computed, resumed where a run stopped, bad pairs listed."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from normmatch.config import MatchOptions
from normmatch.errors import DataError, InputError
from normmatch.io import locked
from normmatch.matching import pair_list
from normmatch.matching.backends.torch import TorchBackend
from normmatch.matching.matcher import Matcher
from normmatch.matching.pair_list import Summary, match_list
from normmatch.outputs import made_by_us
from tests.matching.scene import photograph, points, write_scene

PAIRS = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_scene(tmp_path, [5, 7, 6, 0])
    write_pairs(tmp_path, [f"{i}.png,{j}.png" for i, j in PAIRS])
    monkeypatch.setattr("normmatch.matching.backends.torch.PAIRS_ON_CPU", 2)
    monkeypatch.setattr(pair_list, "HANDED_OUT", 2)
    return tmp_path


def write_pairs(folder: Path, lines: list[str]) -> None:
    (folder / "pairs.csv").write_text("\n".join(["image0,image1", *lines]) + "\n")


def run(scene: Path, *, chosen: MatchOptions | None = None, min_score: float = 0.0, **options: Any) -> Summary:
    chosen = chosen or MatchOptions(str(scene / "tiny.safetensors"), "cpu", min_score=min_score)
    return match_list(scene / "pairs.csv", scene / "points.json", scene / "out", chosen, progress=False, **options)


def results(scene: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (scene / "out/results.jsonl").read_text().splitlines()]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of pairs that are matched from now on."""
    seen: list[int] = []
    match_crops = Matcher.match_crops

    def counted(self: Matcher, pairs: Any, **options: Any) -> Any:
        seen.append(len(pairs))
        return match_crops(self, pairs, **options)

    monkeypatch.setattr(Matcher, "match_crops", counted)
    return seen


def test_every_pair_is_matched(scene: Path) -> None:
    assert run(scene) == Summary(5, ())
    matcher = Matcher(scene / "tiny.safetensors", device="cpu")
    counts = (5, 7, 6, 0)
    for row, (record, (i, j)) in enumerate(zip(results(scene), PAIRS, strict=True)):
        assert record["row"] == row
        assert (Path(record["image0"]).name, Path(record["image1"]).name) == (f"{i}.png", f"{j}.png")
        expected = matcher.match(
            scene / f"{i}.png", scene / f"{j}.png", points(i, counts[i]), points(j, counts[j]), min_score=0
        )
        assert record["matches0"] == expected["matches0"].tolist()
        assert record["matching_scores1"] == pytest.approx(expected["matching_scores1"], abs=1e-4)
    assert not (scene / "out/failed.jsonl").exists()


def test_a_run_that_was_killed_goes_on(scene: Path, batches: list[int]) -> None:
    run(scene)
    whole = results(scene)
    results_file = scene / "out/results.jsonl"
    lines = results_file.read_text().splitlines(keepends=True)
    results_file.write_text("".join(lines[:2]) + lines[2][:40])  # it died in the midst of a line
    batches.clear()
    assert run(scene).matched == 5
    assert sum(batches) == 3
    assert results(scene) == whole
    batches.clear()
    assert run(scene).matched == 5  # nothing is left to do
    assert batches == []


def test_an_interrupt_keeps_what_is_done(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        match_crops = Matcher.match_crops
        calls: list[int] = []

        def interrupted(self: Matcher, pairs: Any, **options: Any) -> Any:
            calls.append(len(pairs))
            if len(calls) == 2:
                raise KeyboardInterrupt
            return match_crops(self, pairs, **options)

        patch.setattr(Matcher, "match_crops", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(scene)
    assert [record["row"] for record in results(scene)] == [0, 1]
    assert run(scene).matched == 5


def test_an_image_is_read_and_encoded_once(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it stands in the list, if its box is the same."""
    read: list[str] = []
    encoded: list[int] = []
    make_crop, encode = pair_list.make_crop, TorchBackend.encode

    def counted_square(image: str, *arguments: Any) -> Any:
        read.append(Path(image).name)
        return make_crop(image, *arguments)

    def counted_encode(self: TorchBackend, images: Any) -> Any:
        encoded.append(len(images))
        return encode(self, images)

    monkeypatch.setattr(pair_list, "make_crop", counted_square)
    monkeypatch.setattr(pair_list, "ahead", lambda look, tasks, _: map(look, tasks))  # two threads may read it at once
    monkeypatch.setattr(TorchBackend, "encode", counted_encode)
    run(scene)
    assert sorted(read) == ["0.png", "1.png", "2.png", "3.png"]
    assert sum(encoded) == 3  # the fourth has no points


def test_images_are_read_while_the_network_works(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = threading.Event()
    make_crop, match_crops = pair_list.make_crop, Matcher.match_crops

    def reported(image: str, *arguments: Any) -> Any:
        crop = make_crop(image, *arguments)
        if Path(image).name == "3.png":  # of the second two pairs
            later.set()
        return crop

    def waiting(self: Matcher, pairs: Any, **options: Any) -> Any:
        assert later.wait(20)
        return match_crops(self, pairs, **options)

    monkeypatch.setattr(pair_list, "make_crop", reported)
    monkeypatch.setattr(Matcher, "match_crops", waiting)
    assert run(scene).matched == 5


def test_a_pair_that_the_network_refuses(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    match_crops = Matcher.match_crops

    def refusing(self: Matcher, pairs: Any, **options: Any) -> Any:
        if any(len(second.keypoints) == 6 for _, second in pairs):  # rows 1 and 4
            raise InputError("too much")
        return match_crops(self, pairs, **options)

    monkeypatch.setattr(Matcher, "match_crops", refusing)
    assert [(record["row"], record["error"]) for record in run(scene).failed] == [(1, "too much"), (4, "too much")]
    assert [record["row"] for record in results(scene)] == [0, 2, 3]


def test_a_bad_pair_is_skipped_listed_and_tried_again(scene: Path) -> None:
    image = (scene / "2.png").read_bytes()
    (scene / "2.png").write_bytes(image[:60])
    write_pairs(scene, ["0.png,1.png", "1.png,2.png", "missing.png,0.png", "0.png,0.png"])
    summary = run(scene)
    assert summary.matched == 2
    assert [record["row"] for record in results(scene)] == [0, 3]
    failed = [json.loads(line) for line in (scene / "out/failed.jsonl").read_text().splitlines()]
    assert [record["row"] for record in failed] == [1, 2]
    assert "2.png is damaged or cut off" in failed[0]["error"]
    assert "has no keypoints of" in failed[1]["error"]
    (scene / "2.png").write_bytes(image)
    assert [record["row"] for record in run(scene).failed] == [2]
    assert sorted(record["row"] for record in results(scene)) == [0, 1, 3]


def test_another_run_is_not_mixed_with_it(scene: Path) -> None:
    run(scene)
    with pytest.raises(DataError, match="out holds results of a run with other min_score; give another folder"):
        run(scene, min_score=0.5)
    write_pairs(scene, ["0.png,1.png"])
    with pytest.raises(DataError, match="a run with other pairs"):
        run(scene)
    (scene / "out/run.json").write_text("{")
    with pytest.raises(DataError, match=r"run.json cannot be read"):
        run(scene)
    (scene / "out/run.json").unlink()
    with pytest.raises(DataError, match=r"holds results.jsonl but no run.json"):
        run(scene)


def test_nothing_is_mixed_where_nothing_was_done(scene: Path) -> None:
    write_pairs(scene, ["0.png,nothing.png"])
    assert len(run(scene).failed) == 1
    write_pairs(scene, ["0.png,1.png"])
    assert run(scene, min_score=0.5) == Summary(1, ())


def test_results_that_are_not_ours(scene: Path) -> None:
    run(scene)
    with (scene / "out/results.jsonl").open("a") as file:
        file.write('{"row": 99}\n')
    with pytest.raises(DataError, match=r"results.jsonl line 6 is no result of this run"):
        run(scene)


def test_two_runs_at_once(scene: Path) -> None:
    (scene / "out").mkdir()
    with locked(scene / "out/.lock"), pytest.raises(DataError, match="Another run is writing to"):
        run(scene)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", r"pairs.csv line 1: the columns are none; expected image0,image1\.$"),
        ("image0,image1\n", "has no pair"),
        ("a,b\n1,2\n", r"the columns are a,b; expected image0,image1\.$"),
        ("image0,image1\n0.png,\n", "line 2: the value of `image1` is empty"),
        ("image0,image1\n0.png\n", "line 2: there are more or fewer values"),
    ],
)
def test_a_bad_list(scene: Path, content: str, sentence: str) -> None:
    (scene / "pairs.csv").write_text(content)
    with pytest.raises(DataError, match=sentence):
        run(scene)
    assert not (scene / "out").exists()


def test_parquet(scene: Path) -> None:
    from pyarrow import parquet

    run(scene, format="parquet")
    table = parquet.read_table(scene / "out/results.parquet").to_pylist()
    assert table == results(scene)


def test_lines_longer_than_pyarrow_expects(scene: Path) -> None:
    """Two lines of 1.2 MB, as of two images with 2,000 points of long names."""
    from pyarrow import parquet

    lines = [json.dumps({"row": row, "names0": ["n" * 600] * 2000}) + "\n" for row in range(2)]
    (scene / "results.jsonl").write_text("".join(lines))
    pair_list._write_parquet(scene / "results.jsonl", scene / "results.parquet")
    assert parquet.read_table(scene / "results.parquet")["row"].to_pylist() == [0, 1]


@pytest.fixture
def local_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray with two workers and as little else as it can be told to do without."""
    import ray

    for name, value in {"prestart_worker_first_driver": "0", "enable_metrics_collection": "0"}.items():
        monkeypatch.setenv(f"RAY_{name}", value)
    for last in (False, False, True):
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
            break
        except Exception:  # it gives itself 30 seconds, too few where many tests run at once
            ray.shutdown()
            if last:
                raise
    yield
    ray.shutdown()


def test_ray_gives_the_same(scene: Path, exported_folder: Path, local_ray: None) -> None:
    """On a local Ray with two workers; one pair is bad, one was done before. By onnx, as torch takes long to load."""
    import ray

    chosen = MatchOptions(str(exported_folder), "cpu", "onnx", min_score=0.0)
    (scene / "2.png").write_bytes((scene / "2.png").read_bytes()[:60])
    failed, expected = run(scene, chosen=chosen).failed, results(scene)
    (scene / "out/results.jsonl").write_text(json.dumps(expected[0]) + "\n")
    assert run(scene, chosen=chosen, engine="ray", workers=2).failed == failed
    assert ray.is_initialized()  # it is the caller's
    assert [record["row"] for record in failed] == [1, 2, 4]
    for record, other in zip(results(scene), expected, strict=True):
        assert [match["name1"] for match in record.pop("matches")] == [match["name1"] for match in other.pop("matches")]
        for key, value in other.items():
            assert record[key] == (pytest.approx(value, abs=1e-5) if "scores" in key else value)


def test_images_that_have_changed_are_noticed(scene: Path) -> None:
    run(scene)
    Image.fromarray(photograph(9)).save(scene / "1.png")
    with pytest.raises(DataError, match=r"1.png has changed since it was read for .*out; give another folder"):
        run(scene)


def test_an_image_that_could_not_be_matched_may_be_mended(scene: Path) -> None:
    whole = (scene / "2.png").read_bytes()
    (scene / "2.png").write_bytes(whole[:60])
    assert run(scene).matched == 2
    (scene / "2.png").write_bytes(whole)
    assert run(scene) == Summary(5, ())


@pytest.mark.parametrize("name", ["run.json", "failed.jsonl", "results.parquet", ".lock"])
def test_nothing_of_the_user_is_replaced(scene: Path, name: str) -> None:
    (scene / "out").mkdir()
    (scene / "out" / name).write_text("mine")
    if name == ".lock":
        run(scene)  # it is locked, and stays
    else:
        with pytest.raises(InputError, match=f"--out-dir .*{name} exists and was not written by NormMatch"):
            run(scene, format="parquet")
        assert [path.name for path in (scene / "out").iterdir()] == [name]
    assert (scene / "out" / name).read_text() == "mine"


def test_files_of_ours_are_replaced(scene: Path) -> None:
    write_pairs(scene, ["0.png,1.png", "0.png,nothing.png"])
    for _ in range(2):
        assert run(scene, format="parquet").matched == 1
    assert {path.name for path in (scene / "out").iterdir() if made_by_us(path)} == {"run.json", "results.parquet"}


def test_results_do_not_go_onto_the_list(scene: Path) -> None:
    (scene / "out").mkdir()
    (scene / "pairs.csv").rename(scene / "out" / "failed.jsonl")
    (scene / "pairs.csv").symlink_to(scene / "out" / "failed.jsonl")
    with pytest.raises(InputError, match="which this command reads"):
        run(scene, overwrite=True)
