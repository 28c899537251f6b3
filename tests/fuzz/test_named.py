"""What was found by name: each ended in a foreign exception or in a wrong answer once."""

import functools
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import Matcher, ModelConfig, NormMatch, NormMatchError, match_pair
from normmatch.annotations import read
from normmatch.annotations.names import swap_left_right
from normmatch.config import AugmentConfig
from normmatch.matching import run_folder
from normmatch.training import checkpoint
from normmatch.training import run as training
from tests.command_line import run
from tests.fuzz.test_api import check_sentence
from tests.fuzz.values import deep
from tests.matching.scene import photograph, points, tiny_model, write_scene

TINY = ("--weights", "tiny.safetensors", "--device", "cpu")


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(tiny_model(), device="cpu", precision="float32")


def refused(call: Any) -> str:
    with pytest.raises(NormMatchError) as caught:
        call()
    check_sentence(caught.value)
    return str(caught.value)


def test_match_many_takes_a_generator_and_match_batch_says_what_a_pair_is(matcher: Matcher) -> None:
    images, places = [photograph(i) for i in range(3)], [points(i, 3) for i in range(3)]
    expected = matcher.match_many(images, places)
    found = matcher.match_many((image for image in images), iter(places), boxes=itertools.repeat(None, 3))
    assert found.keys() == expected.keys()
    assert "1 has 2 parts" in refused(
        lambda: matcher.match_batch([(images[0], images[1], places[0], places[1]), (images[0], images[1])])
    )
    assert "number 0 is 'abcd'" in refused(lambda: matcher.match_batch(["abcd"]))  # type: ignore[list-item]
    assert "number 0 is {}" in refused(lambda: matcher.match_batch([{}]))  # type: ignore[list-item]


@pytest.mark.parametrize("flag", ["abc", "", 0, 1, None, [], np.float32(1)])
def test_flags_are_booleans(matcher: Matcher, flag: Any) -> None:
    image, xy = photograph(0), points(0, 3)
    for name in ("one_to_one", "mutual"):
        assert f"{name} is " in refused(lambda name=name: matcher.match(image, image, xy, xy, **{name: flag}))
    assert "compile is " in refused(lambda: Matcher(tiny_model(), compile=flag))


@pytest.mark.parametrize(
    "xy",
    [np.zeros((5, 0)), [[]], [["1_0", "2"]], [["1", "2"]], [[1 + 2j, 3]], [[True, False]], [[10**400, 1]], np.ma.masked_equal([[1, 2]], 2)],
    ids=str,
)  # fmt: skip
def test_points_that_are_none(matcher: Matcher, xy: Any) -> None:
    image = photograph(0)
    assert "keypoints of image0" in refused(lambda: matcher.match(image, image, xy, points(0, 3)))


@pytest.mark.parametrize(
    "score", [True, "0.5", 10**400, 10**5000, 1j, np.array([0.5]), "", float("nan")], ids=lambda v: type(v).__name__
)
def test_scores_that_are_none(matcher: Matcher, score: Any) -> None:
    image, xy = photograph(0), points(0, 3)
    assert "min_score is " in refused(lambda: matcher.match(image, image, xy, xy, min_score=score))


@pytest.mark.parametrize(
    "options",
    [{"device": "meta"}, {"device": 5}, {"device": []}, {"precision": []}, {"precision": 16}, {"backend": []}, {"cache": 0.5}, {"cache": True},
     {"cache": 10**400}, {"cache": "1_0"}, {"cache": float("inf")}, {"weights": ""}, {"weights": "a" * 300}, {"weights": "\0"}, {"weights": "."}],
    ids=str,
)  # fmt: skip
def test_options_that_are_none(options: dict[str, Any]) -> None:
    refused(lambda: Matcher(**{"weights": tiny_model(), **options}))
    if "cache" not in options and "precision" not in options:
        image, xy = photograph(0), points(0, 3)
        refused(lambda: match_pair(image, image, xy, xy, **{"weights": "tiny", **options}))


@pytest.mark.parametrize(
    "settings",
    [{"dim": 4_000_000_000}, {"num_layers": 10**7}, {"sinkhorn_rounds": 10**30}, {"sinkhorn_rounds": 1e30}, {"sinkhorn_epsilon": 1e-300},
     {"image_size": 10**9}, {"image_size": 0}, {"image_size": -5}, {"mlp_ratio": 10**6}, {"num_heads": 10**400}, {"spline_kernel": 10**5},
     {"dim": 16_000}, {"num_layers": 256}, {"backbone_layers": (0, 10**9)}, {"sinkhorn_epsilon": 10**400}, {"backbone": "x" * 10**6},
     {"dim": 8000, "num_heads": 4, "num_layers": 4}, {"min_score": float("nan")}],
    ids=lambda settings: " ".join(f"{k}" for k in settings),
)  # fmt: skip
def test_weights_that_ask_for_absurd_sizes(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Refused at once, before memory is taken."""
    file = tiny_model().save_pretrained(tmp_path / "tiny.safetensors")
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    changed = json.loads(header["__metadata__"]["config"]) | settings
    text = json.dumps({**header, "__metadata__": {"config": json.dumps(changed)}}).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "tiny.safetensors" in refused(lambda: NormMatch.from_pretrained(file))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_settings_of_other_kinds() -> None:
    refused(lambda: ModelConfig(dim=10**5000))
    refused(lambda: ModelConfig(backbone="\ud800" * 400, dim="x" * 10**6))  # type: ignore[arg-type]
    refused(lambda: AugmentConfig(rotation=float("nan")))


def test_results_that_no_run_wrote(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for row in ("0.9", '"1_0"', "Infinity", "NaN", "true", "null", "-1", "9" * 5000, "[" * 100_000, "1e999"):
        file.write_text(f'{{"row": {row}}}\n')
        assert "line 1 is no result of this run" in refused(lambda: run_folder.read_done(file, 20))
    (tmp_path / "run.json").write_text("[" * 100_000)
    refused(lambda: run_folder.check_run(tmp_path, {"weights": 1}))
    refused(lambda: training.read_json(tmp_path / "run.json"))
    refused(lambda: checkpoint.read_values(tmp_path / "run.json"))


@pytest.mark.parametrize(
    ("key", "value"),
    [("class", []), ("class", 0), ("class", False), ("split", []), ("split", {}), ("box", [1, 2, "3_0", 4]), ("box", [True, 0, 9, 9])],
)  # fmt: skip
def test_files_that_say_nonsense(tmp_path: Path, key: str, value: Any) -> None:
    entry = {"image": "a.png", "keypoints": [{"name": "eye", "x": 1, "y": 2}], key: value}
    (tmp_path / "a.json").write_text(json.dumps({"images": [entry]}))
    refused(lambda: read(tmp_path / "a.json"))
    if key == "split":
        coco = {"images": [{"id": 1, "file_name": "a.png", "split": value}], "categories": [{"id": 1, "name": "cat"}]}
        coco["annotations"] = [{"id": 1, "image_id": 1, "category_id": 1}]
        (tmp_path / "a.json").write_text(json.dumps(coco))
        refused(lambda: read(tmp_path / "a.json"))


@pytest.mark.parametrize(
    "x", ["1_0", "\u0661", "0x1", "", None, True, deep(900), "9" * 5000, "infinity"], ids=lambda x: str(x)[:9]
)
def test_coordinates_that_are_no_numbers(tmp_path: Path, x: Any) -> None:
    entry = {"image": "a.png", "keypoints": [{"name": "eye", "x": x, "y": 2}]}
    (tmp_path / "a.json").write_text(json.dumps({"images": [entry]}))
    refused(lambda: read(tmp_path / "a.json"))


def test_command_lines_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_scene(tmp_path, [3, 4]))
    odd = "\udcff.png"  # a name that is no UTF-8
    for name in ("-dash.jpg", odd, "$\\bad{$.png"):
        Image.fromarray(photograph(0)).save(name, "PNG")
    named = [{"name": "$\\bad{$", "x": 5, "y": 6}, {"name": "b", "x": 50, "y": 40}]
    names = ("0.png", "1.png", "-dash.jpg", odd, "$\\bad{$.png")
    Path("points.json").write_text(json.dumps({"images": [{"image": name, "keypoints": named} for name in names]}))
    Path("pairs.csv").write_text("image0,image1\n0.png,-dash.jpg\n")
    for code, words in (
        (0, ["match", "./-dash.jpg", "1.png", *TINY]),
        (0, ["match", odd, "$\\bad{$.png", "--out", "out.png", "--json", "out.json", *TINY]),
        (0, ["match", "--pairs", "pairs.csv", "--out-dir", "out", *TINY]),
        (2, ["match", "-dash.jpg", "1.png", *TINY]),
        (2, ["match", "0.png", "1.png", "--weights", "tiny.safetensors", "--device", "meta"]),
        (2, ["match", "0.png", "1.png", *TINY, "--min-score", "7"]),
        (2, ["match", "0.png", "1.png", *TINY, "--box0", "0", "0", "x", "80"]),
        (2, ["match", "0.png", "", *TINY]),
        (2, ["match", "0.png", ".", *TINY]),
        (2, ["match", "0.png", "a" * 300, *TINY]),
        (2, ["eval", "tiny.safetensors", "folder", "--out", "a" * 300]),
        (2, ["match", "--pairs", "pairs.csv", "--out-dir", "out", "--engine", "ray", "--workers", "-3", *TINY]),
    ):
        done, out, err = run(capsys, *words, *(["--keypoints", "points.json"] if words[0] == "match" else []))
        assert done == code, (words, out, err)
        assert "Traceback" not in out + err
        assert (code == 0) or err.strip(), words
    assert "-3" in err


def test_workers_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(photograph(0)).save("a.png")
    Image.fromarray(photograph(1)).save("b.png")
    rows = [
        f"{name}.png,cat,{point},{9 * k + 5},{7 * k + 9}"
        for name in "ab"
        for k, point in enumerate(("eye", "nose", "ear"))
    ]
    Path("points.csv").write_text("\n".join(["image,class,name,x,y", *rows]))
    for count in ("-3", "0", "9" * 50):
        code, _, err = run(capsys, "data", "prepare", "folder", "--root", ".", "--size", count)
        assert code == 2, (count, err)


def test_names_that_are_no_text_are_left_alone() -> None:
    assert swap_left_right("$\\bad{$") == "$\\bad{$"


@pytest.mark.skipif(os.name == "nt", reason="signals are others there")
@pytest.mark.parametrize("module", ["tyro", "rich", "numpy"])
def test_control_c_while_the_program_starts(tmp_path: Path, module: str) -> None:
    """The interrupt comes in the middle of an import; Python would print a trace of twenty lines."""
    (tmp_path / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "normmatch", "samples", "--out", str(tmp_path / "a.png")]
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False, preexec_fn=heard
    )
    assert done.returncode in (130, -2), (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
