"""`normmatch eval` from the command line, on drawn figures with networks that have learnt nothing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from normmatch import PRESETS, NormMatch
from normmatch.commands import main
from normmatch.datasets import drawn
from normmatch.datasets.catalog import open_dataset
from normmatch.evaluation.calibration import file_to_calibrate
from normmatch.outputs import made_by_us
from normmatch.weights import read_config
from tests.datasets import layouts


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figures and two networks."""
    folder = tmp_path_factory.mktemp("eval")
    drawn.write(folder / "figures", 8, 96, seed=0)
    for seed in (0, 1):
        torch.manual_seed(seed)
        NormMatch(PRESETS["tiny"]).save_pretrained(folder / f"run{seed}", bits=16)
    return folder


def options(place: Path, *more: object) -> list[str]:
    return ["--root", str(place / "figures"), "--split", "val", "--pairs", "5", *map(str, more)]


def fails(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The one line that a command ends with."""
    with pytest.raises(SystemExit) as error:
        main(["eval", *arguments])
    assert error.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert not any("Traceback" in line for line in lines)
    return lines[-1]  # a progress bar may stand before it


def test_predictions_are_scored_again_without_a_network(place: Path, tmp_path: Path) -> None:
    weights = [str(place / "run0"), str(place / "run1")]
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    main(["eval", *weights, "synthetic", *options(place, "--jitter", 3, "--out", tmp_path / "out", "--json", first)])
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [
        f"run{i}-{i}-synthetic-val-nmt{jitter}.safetensors" for i in (0, 1) for jitter in ("-jitter3", "")
    ]
    markdown = tmp_path / "tables.md"
    main(["eval", "--predictions", *map(str, files), "--json", str(second), "--markdown", str(markdown)])
    asked, scored = (json.loads(file.read_text()) for file in (first, second))
    assert asked == scored
    assert {"commit", "command", "hardware", "date", "torch"} <= asked["results"][0]["made_with"].keys()
    assert asked["summary"][0]["deviation"] > 0
    assert "| 3 px |" in markdown.read_text()


def test_gray_pictures_show_the_places_of_the_points_alone(place: Path, tmp_path: Path) -> None:
    """Figures painted over with anything give the same answers; without --gray they do not."""
    shutil.copytree(place / "figures", tmp_path / "figures")
    shutil.rmtree(tmp_path / "figures" / "prepared", ignore_errors=True)
    for file in (tmp_path / "figures" / "images" / "val").iterdir():
        Image.effect_noise((96, 96), 90).convert("RGB").save(file)
    answers = {}
    for folder in (place, tmp_path):
        for gray in ("--gray", "--no-gray"):
            out = tmp_path / f"{folder.name}{gray}"
            result = out / "r.json"
            main(["eval", str(place / "run0"), "synthetic", *options(folder, gray, "--out", out, "--json", result)])
            (file,) = out.glob("*.safetensors")
            assert (
                file.stem.endswith("-gray")
                == (gray == "--gray")
                == json.loads(result.read_text())["results"][0]["gray"]
            )
            answers[folder, gray] = load_file(file)["scores0"]
    assert torch.equal(answers[place, "--gray"], answers[tmp_path, "--gray"])
    assert not torch.equal(answers[place, "--no-gray"], answers[tmp_path, "--no-gray"])


def test_calibration_writes_the_threshold_and_nothing_else(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes((place / "run0" / "model.safetensors").read_bytes())
    before, result = load_file(file), tmp_path / "r.json"
    main(["eval", str(file), "synthetic", *options(place, "--seed", 4, "--calibrate", "--json", result)])
    (found,) = json.loads(result.read_text())["calibrations"]
    assert 0 < found["threshold"] < 1
    calibrated = {"min_score": found["threshold"], "calibration": tuple(found["probabilities"])}
    assert read_config(file) == replace(read_config(place / "run0" / "model.safetensors"), **calibrated)
    assert len(found["calibration_error"]["val"]) == 2  # before and after
    after = load_file(file)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[key], value) and after[key].dtype == value.dtype for key, value in before.items())
    assert found["with"]["val"]["mean"]["f1"] >= found["without"]["val"]["mean"]["f1"]
    NormMatch.from_pretrained(file)


def test_weights_that_saw_every_object_are_not_calibrated(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scores of a network on objects that it was trained on say nothing about others."""
    file = tmp_path / "model.safetensors"
    with safe_open(place / "run0" / "model.safetensors", "pt") as opened:
        about = opened.metadata()
    save_file(load_file(place / "run0" / "model.safetensors"), file, metadata=about | {"held_out": "false"})
    before = file.read_bytes()
    sentence = fails(capsys, [str(file), "synthetic", *options(place, "--calibrate")])
    assert f"weights {file} were trained without held-out objects" in sentence
    assert file.read_bytes() == before
    for said in ({"held_out": "true"}, {}):
        save_file(load_file(place / "run0" / "model.safetensors"), file, metadata=about | said)
        assert file_to_calibrate(str(file)) == file


def test_what_cannot_be_is_one_sentence(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    weights = str(place / "run0")
    ask = [weights, "synthetic", *options(place)]
    assert "jitter is (-2.0,)" in fails(capsys, [*ask, "--jitter", "-2"])
    assert "calibrate needs pictures" in fails(capsys, [*ask, "--gray", "--calibrate"])
    assert "pairs is 0" in fails(capsys, [*ask, "--pairs", "0"])
    assert "no objects for the split 'tset'" in fails(capsys, [*ask, "--split", "tset"])
    assert "cannot be written" in fails(capsys, [*ask, "--json", str(tmp_path / "file" / "x.json")])
    assert "is a folder; expected a file" in fails(capsys, [*ask, "--markdown", str(tmp_path)])
    assert "expected one of pascal-voc" in fails(capsys, [weights])
    assert "expected each once" in fails(capsys, [weights, *ask])
    assert "names something twice" in fails(capsys, [*ask, "--protocol", "nmt", "nmt"])
    assert "no protocol 'bbgm'" in fails(capsys, [*ask, "--protocol", "bbgm"])
    assert "not found" in fails(capsys, ["nothing.safetensors", *ask[1:]])
    assert "worst is -1" in fails(capsys, [*ask, "--worst", "-1"])
    assert "only predictions" in fails(capsys, ["--calibrate", "--predictions", "x"])


def test_worst_pairs_are_drawn_from_saved_predictions(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["eval", str(place / "run0"), "synthetic", *options(place, "--out", tmp_path, "--worst", 1)])
    (folder,) = tmp_path.glob("worst-*")
    assert len(list(folder.glob("*.png"))) == 1
    (file,) = tmp_path.glob("*.safetensors")
    rescore = ["eval", "--predictions", str(file), "--worst", "2", "--out", str(tmp_path), "--root"]
    main([*rescore, str(place / "figures")])
    assert len(list(folder.glob("*.png"))) == 2
    drawn.write(tmp_path / "others", 9, 96, seed=1)
    assert "are not those of the predictions" in fails(capsys, [*rescore[1:], str(tmp_path / "others")])


def test_predictions_of_another_dataset(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", str(place / "run0"), "synthetic", *options(place, "--out", tmp_path)])
    (file,) = tmp_path.iterdir()
    sentence = fails(capsys, ["willow", "--predictions", str(file)])
    assert "are for synthetic, expected willow" in sentence


def test_weights_of_another_network(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    NormMatch(replace(PRESETS["tiny"], image_size=64)).save_pretrained(tmp_path)
    sentence = fails(capsys, [str(place / "run0"), str(tmp_path), "synthetic", *options(place)])
    assert f"weights {tmp_path} are of another network" in sentence


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "--help"])
    out = capsys.readouterr().out
    assert all(word in out for word in ("--protocol", "--jitter", "--calibrate", "--predictions", "pascal-voc"))
    assert "None" not in out


def test_hpatches(place: Path, tmp_path: Path) -> None:
    layouts.make_hpatches(tmp_path)
    result = tmp_path / "r.json"
    arguments = ["eval", str(place / "run0"), "hpatches", "--root", str(tmp_path)]
    main([*arguments, "--json", str(result)])
    (found,) = json.loads(result.read_text())["results"]
    assert set(found["mma"]) == {"1", "3", "5"}
    assert found["mma"]["1"]["illumination"] > 0.9  # equal images
    assert found["mma"]["1"]["overall"] < 0.9


def test_two_protocols_in_one_call_encode_once(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts.make_voc(tmp_path)
    seen = []
    encode = NormMatch.encode
    monkeypatch.setattr(NormMatch, "encode", lambda self, image: seen.append(len(image)) or encode(self, image))
    result, markdown = tmp_path / "r.json", tmp_path / "r.md"
    arguments = ["eval", str(place / "run0"), "pascal-voc", "--root", str(tmp_path), "--pairs", "6", "--jitter", "2"]
    main([*arguments, "--protocol", "nmt", "thinkmatch", "--json", str(result), "--markdown", str(markdown)])
    nmt, thinkmatch, *noisy = json.loads(result.read_text())["results"]
    assert [found["jitter"] for found in noisy] == [2, 2]
    assert (nmt["protocol"], thinkmatch["protocol"]) == ("nmt", "thinkmatch")
    assert (nmt["one_to_one"], thinkmatch["one_to_one"]) == (False, True)
    assert nmt["objects"] != thinkmatch["objects"]  # which keeps the point outside of its crop
    splits = open_dataset("pascal-voc", tmp_path).splits
    assert sum(seen) <= len(splits["test"].objects)
    text = markdown.read_text()
    assert text.index("protocol nmt") < text.index("protocol thinkmatch")
    assert "| 2 px |" in text


def test_only_files_of_ours_are_replaced(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"--json": tmp_path / "r.json", "--markdown": tmp_path / "r.md"}
    command = [str(place / "run0"), "synthetic", *options(place, "--worst", 1, "--out", tmp_path / "out")]
    command += [str(word) for item in files.items() for word in item]
    for _ in range(2):
        main(["eval", *command])
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 4
    assert all(map(made_by_us, written))
    for path in written:
        before = path.read_bytes()
        path.write_bytes(b"mine")
        assert "was not written by NormMatch; expected another name, or --overwrite." in fails(capsys, command)
        assert path.read_bytes() == b"mine"
        path.write_bytes(before)
    weights = place / "run0" / "model.safetensors"
    command[command.index("--json") + 1] = str(weights)
    assert "which this command reads" in fails(capsys, [*command, "--overwrite"])


def test_standard_output_has_the_json_alone(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["eval", str(place / "run0"), "synthetic", *options(place, "--json", "-")])
    out, err = capfd.readouterr()
    assert json.loads(out)["results"]
    assert "accuracy in %" in err
