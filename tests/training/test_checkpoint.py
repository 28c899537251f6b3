"""Checkpoints come back as they were, and a failing write leaves the last good one."""

from pathlib import Path

import pytest
import torch

from normmatch.errors import WeightsError
from normmatch.training import checkpoint


def test_round_trip_of_an_optimizer_state(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(3, 2))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    state = {"step": 7, "seconds": 1.5, "optimizer": optimizer.state_dict(), "weights": {"a.b": weight.detach()}}
    checkpoint.save(tmp_path / "step-0000007.safetensors", state, keep=2)
    loaded = checkpoint.load(tmp_path / "step-0000007.safetensors")
    assert loaded["step"] == 7
    assert loaded["seconds"] == 1.5
    assert torch.equal(loaded["weights"]["a.b"], weight)
    fresh = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3, 2))], lr=0.5)
    fresh.load_state_dict(loaded["optimizer"])
    assert fresh.param_groups[0]["lr"] == 0.1
    for key, value in optimizer.state[weight].items():
        assert torch.equal(fresh.state[fresh.param_groups[0]["params"][0]][key], value)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 20, 100):
        checkpoint.save(tmp_path / f"step-{step:07d}.safetensors", {"step": step}, keep=2)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "step-0000020.safetensors",
        "step-0000100.safetensors",
    ]
    assert checkpoint.find_newest(tmp_path) == tmp_path / "step-0000100.safetensors"


def test_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    assert checkpoint.find_newest(tmp_path) is None
    for step in (5, 20):
        checkpoint.save(tmp_path / f"step-{step:07d}.safetensors", {"step": step}, keep=2)
    newest = tmp_path / "step-0000020.safetensors"
    newest.write_bytes(newest.read_bytes()[:20])
    with pytest.warns(UserWarning, match=r"step-0000020\.safetensors cannot be read .* goes on from step-0000005"):
        found = checkpoint.find_newest(tmp_path)
    assert found is not None
    assert checkpoint.load(found)["step"] == checkpoint.read_values(found)["step"] == 5
    (tmp_path / "step-0000005.safetensors").unlink()
    with pytest.raises(WeightsError, match="cannot be read"):
        checkpoint.find_newest(tmp_path)


def test_a_failing_write_leaves_the_last_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step-0000001.safetensors"
    checkpoint.save(path, {"step": 1}, keep=1)

    def full_disk(tensors: object, target: Path, metadata: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full_disk)
    with pytest.raises(WeightsError, match="No space"):
        checkpoint.save(path, {"step": 2}, keep=1)
    monkeypatch.undo()
    assert checkpoint.load(path)["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_file_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-0000001.safetensors").write_bytes(b"nonsense")
    with pytest.raises(WeightsError, match=r"step-0000001\.safetensors cannot be read"):
        checkpoint.load(tmp_path / "step-0000001.safetensors")
