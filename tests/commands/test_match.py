"""`normmatch match` for two photographs: what it prints and writes, and one sentence for everything that is wrong."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from normmatch.matching.backends.torch import TorchBackend
from tests.command_line import run
from tests.matching.scene import photograph, write_scene


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with 0.png (7 points), 1.png (12), 2.png (none), 3.png (1)."""
    monkeypatch.chdir(write_scene(tmp_path, [7, 12, 0, 1]))
    return tmp_path


OPTIONS = ("--keypoints", "points.json", "--weights", "tiny.safetensors", "--device", "cpu")


def test_table_picture_and_json(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    more = ("--out", "out/matches.png", "--json", "out/matches.json", "--min-score", "0")
    code, out, _ = run(capsys, "match", "0.png", "1.png", *OPTIONS, *more)
    assert code == 0
    assert "0.png and 1.png" in out
    assert "7 of 7 points have a partner" in out
    assert "of the 7 points with a namesake were matched with it" in out
    with Image.open("out/matches.png") as picture:
        assert picture.width > 500
    found = json.loads(Path("out/matches.json").read_text())
    assert len(found["matches0"]) == len(found["matching_scores0"]) == 7
    assert len(found["matches1"]) == 12
    assert [len(row) for row in found["similarity"]] == [12] * 7
    for i, match in enumerate(found["matches"]):
        assert match["name0"] == f"p{i}"
        assert match["name1"] == f"p{found['matches0'][i]}"
        assert match["score"] == found["matching_scores0"][i]
        assert match["name1"] in out


def test_options_reach_the_matcher(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    def matches(*args: object) -> Any:
        assert run(capsys, "match", "1.png", "0.png", *OPTIONS, "--json", "m.json", *args)[0] == 0
        return json.loads(Path("m.json").read_text())

    assert sorted(j for j in matches("--one-to-one", "--min-score", 0)["matches0"] if j >= 0) == list(range(7))
    mutual = matches("--mutual", "--min-score", 0)
    assert all(mutual["matches1"][j] == i for i, j in enumerate(mutual["matches0"]) if j >= 0)
    assert matches("--min-score", 1)["matches"] == []
    whole, boxed = matches(), matches("--box0", 0, 0, 110, 80)
    assert whole["matching_scores0"] != boxed["matching_scores0"]


def test_keypoints_of_their_own(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    Path("first.csv").write_text("image,name,x,y\n0.png,eye,10,20\n0.png,nose,30,40\n")
    code, out, _ = run(
        capsys, "match", "0.png", "1.png", *OPTIONS, "--keypoints", "first.csv", "--keypoints1", "points.json"
    )
    assert code == 0
    assert "of 2 points" in out


@pytest.mark.parametrize(("image0", "image1"), [("0.png", "2.png"), ("2.png", "0.png"), ("2.png", "2.png")])
def test_no_points(capsys: pytest.CaptureFixture[str], scene: Path, image0: str, image1: str) -> None:
    code, out, err = run(capsys, "match", image0, image1, *OPTIONS, "--out", "m.png", "--json", "m.json")
    assert (code, err) == (0, "")
    assert "0 of" in out
    assert json.loads(Path("m.json").read_text())["matches"] == []


def test_one_point(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    assert "1 of 1 points" in run(capsys, "match", "3.png", "3.png", *OPTIONS, "--min-score", 0)[1]


def test_low_scores_are_said(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    """Of an untrained network the scores are what they are; a sure one is an image and itself, alone with its point."""
    code, _, err = run(capsys, "match", "0.png", "1.png", *OPTIONS)
    assert code == 0
    assert err == "The scores are low altogether: do both images show the same kind of object?\n"
    assert run(capsys, "match", "3.png", "3.png", *OPTIONS)[2] == ""


def test_a_large_photograph_is_drawn_small(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    Image.fromarray(photograph(0, 4000, 30)).save("0.png")
    assert run(capsys, "match", "0.png", "1.png", *OPTIONS, "--box0", 0, 0, 120, 30)[0] == 2  # points below it
    Path("points.csv").write_text("image,name,x,y\n0.png,a,3999,15\n1.png,a,60,40\n")
    code, _, err = run(capsys, "match", "0.png", "1.png", *OPTIONS, "--keypoints", "points.csv", "--out", "m.png")
    assert code == 0, err
    assert os.path.getsize("m.png") < 2_000_000


def spoil_image(how: str) -> str:
    """Make an image that cannot be matched, and name it."""
    path = Path("bad.png")
    if how == "text":
        path.write_text("hello")
    elif how == "truncated":
        Image.effect_noise((200, 200), 90).save(path)
        path.write_bytes(path.read_bytes()[:5000])
    elif how == "wide":
        Image.new("1", (40_000, 3000)).save(path)
    elif how == "1x1":
        Image.new("RGB", (1, 1)).save(path)
    elif how == "folder":
        path.mkdir()
    elif how == "url":
        return "https://example.org/bad.png"
    elif how == "empty":
        path.touch()
    return "bad.png"


SENTENCES = {
    "text": "bad.png is not a readable image",
    "truncated": "bad.png is damaged or cut off",
    "wide": "bad.png has 40000 x 3000 pixels, more than the 100,000,000 that can be read",
    "1x1": "bad.png has 1 x 1 pixels; expected at least 8 a side",
    "folder": "bad.png is a folder; expected an image file",
    "url": "is a web address; expected an image file on this computer",
    "missing": "The image bad.png does not exist",
    "empty": "bad.png is empty (0 bytes)",
}


def assert_one_sentence(result: tuple[int, str, str], sentence: str) -> None:
    code, _, err = result
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not Path("m.json").exists()


@pytest.mark.parametrize("how", SENTENCES)
def test_bad_images(capsys: pytest.CaptureFixture[str], scene: Path, how: str) -> None:
    image = spoil_image(how)
    points = '{"image": "bad.png", "keypoints": [{"name": "a", "x": 0.5, "y": 0.5}]}'
    Path("bad.json").write_text(f'{{"images": [{points}]}}')
    options = (*OPTIONS, "--keypoints1", "bad.json", "--json", "m.json")
    assert_one_sentence(run(capsys, "match", "0.png", image, *options), SENTENCES[how])


def test_permission_denied(capsys: pytest.CaptureFixture[str], scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    command = ("match", "0.png", "1.png", *OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", denied)
        assert_one_sentence(run(capsys, *command), "0.png cannot be opened: permission denied")
    monkeypatch.setattr(Path, "read_bytes", denied)
    assert_one_sentence(run(capsys, *command), "points.json cannot be read: Permission denied")


def with_point(**point: Any) -> str:
    return json.dumps({"images": [{"image": "1.png", "keypoints": [{"name": "a", "x": 1, "y": 1, **point}]}]})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "bad.json is empty"),
        ("{", "bad.json is not a JSON file"),
        (with_point(x=float("nan")), "nan is no pixel coordinate (of a)"),
        (with_point(x=1000), "The keypoint number 0 of 1.png is at (1000, 1), far outside the picture"),
        (with_point().replace("1.png", "other.png"), "bad.json has no keypoints of 1.png; it has those of other.png"),
        (with_point().replace('"y": 1}', '"y": 1}, {"name": "a", "x": 2, "y": 2}'), "a second 'a' in 1.png"),
        (
            json.dumps({"images": [{"image": "1.png", "keypoints": [{"x": 1, "y": 1}] * 3000}]}),
            "1.png has 3,000 keypoints; expected at most 2,048",
        ),
    ],
)
def test_bad_points(capsys: pytest.CaptureFixture[str], scene: Path, content: str, sentence: str) -> None:
    Path("bad.json").write_text(content)
    options = (*OPTIONS, "--keypoints1", "bad.json", "--json", "m.json")
    assert_one_sentence(run(capsys, "match", "0.png", "1.png", *options), sentence)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("0.png",), "expected two images, or --pairs and --out-dir; got one image."),
        ((), "expected two images, or --pairs and --out-dir; got neither."),
        (("0.png", "1.png", "3.png"), "expected two images, or --pairs and --out-dir; got 3 images."),
        (("0.png", "1.png", "--pairs", "pairs.csv"), "expected two images, or --pairs and --out-dir; got both."),
        (("0.png", "1.png", "--out-dir", "out"), "--pairs and --out-dir go together"),
        (("--pairs", "pairs.csv"), "--pairs and --out-dir go together"),
        (("--pairs", "pairs.csv", "--out-dir", "out", "--json", "m.json"), "--json is for two images"),
        (("0.png", "1.png", "--engine", "ray"), "--engine is for a list; it goes with --pairs."),
        (("0.png", "1.png", "--workers", "2"), "--workers is for a list; it goes with --pairs."),
        (("0.png", "1.png", "--format", "parquet"), "--format is for a list; it goes with --pairs."),
        (("--pairs", "pairs.csv", "--out-dir", "out", "--workers", "2"), "--workers is for --engine ray."),
        (("0.png", "1.png", "--min-score", "7"), "min_score is 7; expected a score from 0 to 1"),
        (("0.png", "1.png", "--device", "abacus"), "The device 'abacus' cannot be used here"),
        (("0.png", "1.png", "--weights", "nothing"), "weights nothing not found"),
        (("0.png", "1.png", "--json", "points.json/m.json"), "m.json cannot be written: "),
        (("0.png", "1.png", "--json", "m.json", "--out", "m.txt"), "m.txt has the ending '.txt'; expected one of .png"),
        (("nothing.png", "1.png"), "The image nothing.png does not exist"),
        (("0.png", "https://example.org/1.png"), "is a web address; expected an image file"),
        (("0.png", "."), ". is a folder; expected an image file"),
    ],
)
def test_bad_options(capsys: pytest.CaptureFixture[str], scene: Path, args: tuple[str, ...], sentence: str) -> None:
    code, _, err = run(capsys, "match", *OPTIONS, *args)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert not Path("m.json").exists()  # nothing is written before everything is known to be right


def test_a_device_that_is_not_here(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code, _, err = run(capsys, "match", "0.png", "1.png", *OPTIONS, "--device", "cuda")
    assert code == 2
    assert err == "The device 'cuda' cannot be used here; expected auto or cpu.\n"


def test_help_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "match", "--help")
    assert code == 0
    assert "None" not in out
    assert all(word in out for word in ("image0,image1", "--one-to-one", "--pairs PATH", "--out-dir PATH"))


def test_a_list_of_pairs(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    Path("pairs.csv").write_text("image0,image1\n0.png,1.png\n0.png,nothing.png\n1.png,3.png\n")
    command = ("match", "--pairs", "pairs.csv", *OPTIONS, "--out-dir", "out", "--format", "parquet")
    code, out, err = run(capsys, *command)
    assert code == 0
    assert f"2 of 3 pairs are matched in {Path('out/results.jsonl')}" in out
    assert "1 of 3 pairs could not be matched, see out/failed.jsonl: " in err
    assert "has no keypoints of" in err
    assert Path("out/results.parquet").is_file()
    Path("pairs.csv").write_text("image0,image1\n0.png,nothing.png\n")
    code, _, err = run(capsys, *command[:-2], "--out-dir", "other")
    assert code == 2
    assert "1 of 1 pairs could not be matched" in err


@pytest.mark.parametrize(
    ("args", "module"),
    [
        ("--pairs pairs.csv --out-dir out --engine ray", "ray"),
        ("--pairs pairs.csv --out-dir out --format parquet", "pyarrow"),
        ("0.png 1.png --json m.json --out m.png", "matplotlib"),
    ],
)
def test_an_extra_that_is_not_installed(
    capsys: pytest.CaptureFixture[str], scene: Path, args: str, module: str, monkeypatch: Any
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find_spec(name))
    code, out, err = run(capsys, "match", *args.split(), *OPTIONS)
    assert (code, out) == (2, "")  # before the work, not after it
    assert not Path("m.json").exists()
    assert f"This needs {module}; install it with: pip install 'normmatch[" in err


def test_points_are_read_once_and_photographs_decoded_once(
    capsys: pytest.CaptureFixture[str], scene: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a picture is drawn of them."""
    opened: list[str] = []

    def watch(owner: Any, name: str) -> None:
        plain = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda file, *a, **k: opened.append(str(file)) or plain(file, *a, **k))

    watch(Path, "read_bytes")
    watch(Image, "open")
    code, _, err = run(capsys, "match", "0.png", "1.png", *OPTIONS, "--out", "m.png")
    assert code == 0, err
    assert sorted(name for name in opened if name != "m.png") == ["0.png", "1.png", "points.json"]


def test_compile(capsys: pytest.CaptureFixture[str], scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    open_backend = TorchBackend.__init__

    def watched(self: TorchBackend, weights: Any, device: str, precision: str, compile: bool) -> None:
        asked.append(compile)
        open_backend(self, weights, device, precision, False)  # compiling takes a minute

    monkeypatch.setattr(TorchBackend, "__init__", watched)
    assert run(capsys, "match", "0.png", "1.png", *OPTIONS, "--compile")[0] == 0
    assert run(capsys, "match", "0.png", "1.png", *OPTIONS)[0] == 0
    assert asked == [True, False]


# ----------------------------------------------------------------------------------------------- what is written, where

TWO = ("match", "0.png", "1.png", *OPTIONS)


@pytest.mark.parametrize("option", ["--out", "--json"])
@pytest.mark.parametrize("path", ["0.png", "./1.png", "link.png", "points.json", "tiny.safetensors"])
def test_no_input_is_written_over(capsys: pytest.CaptureFixture[str], scene: Path, option: str, path: str) -> None:
    Path("link.png").symlink_to("0.png")
    before = {file.name: file.read_bytes() for file in scene.iterdir()}
    if option == "--out" and not path.endswith("png"):
        return  # no picture by its ending
    code, out, err = run(capsys, *TWO, option, path, "--overwrite")
    assert (code, out) == (2, "")
    assert "which this command reads; expected another file." in err
    assert {file.name: file.read_bytes() for file in scene.iterdir()} == before


def test_a_file_of_the_user_is_replaced_only_if_asked(capsys: pytest.CaptureFixture[str], scene: Path) -> None:
    Path("m.json").write_text('{"mine": 1}')
    Path("m.png").write_bytes(Path("0.png").read_bytes())
    for option in (("--json", "m.json"), ("--out", "m.png")):
        code, _, err = run(capsys, *TWO, *option)
        assert code == 2
        assert "exists and was not written by NormMatch; expected another name, or --overwrite." in err
        assert run(capsys, *TWO, *option, "--overwrite")[0] == 0
        assert run(capsys, *TWO, *option)[0] == 0  # ours now
    assert next(iter(json.loads(Path("m.json").read_text()))) == "made_by"


def shell(command: str) -> subprocess.CompletedProcess[bytes]:
    words = f"{sys.executable} -m normmatch {' '.join(TWO)}"
    return subprocess.run(["bash", "-c", f"set -o pipefail; {command.format(words)}"], capture_output=True, check=False)


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("{} --out m.png --json m.json | true", (0, 1)),
        ("{} --out m.png --json m.json >&-", (0,)),
        ("{} --out m.png --json m.json >&- 2>&-", (0,)),
        pytest.param("{} --out m.png --json m.json > /dev/full", (2,), marks=needs_full),
        ("PYTHONIOENCODING=ascii {} --out m.png --json m.json", (0,)),
        ("{} --out m.png --json - > m.json", (0,)),
    ],
)
def test_files_are_there_whatever_becomes_of_the_words(scene: Path, command: str, codes: tuple[int, ...]) -> None:
    Path("points.json").write_text(Path("points.json").read_text().replace('"p1"', '"\u00e9\u4e2d"'))
    done = shell(command)
    assert done.returncode in codes, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
    assert json.loads(Path("m.json").read_text())["matches0"]
    with Image.open("m.png") as picture:
        picture.load()


def test_standard_output_has_the_json_alone(scene: Path) -> None:
    done = shell("{} --json -")
    assert json.loads(done.stdout)["matches0"]
    assert b"points have a partner" in done.stderr
    done = shell("{} --json - >&-")
    assert (done.returncode, b"--json - is standard output, which is closed." in done.stderr) == (2, True)
    done = shell("{} --json - | true")
    assert done.returncode in (0, 1)
    assert b"Traceback" not in done.stderr
