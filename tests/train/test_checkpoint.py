"""Checkpoints: one of two files is always complete, and a damaged one is noticed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from contune.errors import UserError
from contune.train.log import load_checkpoint, read_checkpoint, save_checkpoint

CPU = torch.device("cpu")
WEIGHTS = torch.arange(1000.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With checkpoints of steps 1 and 2."""
    for step in (1, 2):
        save_checkpoint(tmp_path, {"step": step, "weights": WEIGHTS * step})
    return tmp_path


def step_of(folder: Path) -> int:
    found = load_checkpoint(folder, CPU)
    assert found is not None
    assert torch.equal(found["weights"], WEIGHTS * found["step"])
    return int(found["step"])


def flipped(content: bytes) -> bytes:
    """One bit in the middle of the weights, which torch itself would not notice."""
    spot = content.index((WEIGHTS * 2).numpy().tobytes()) + 2001
    return content[:spot] + bytes([content[spot] ^ 1]) + content[spot + 1 :]


DAMAGES: list[Callable[[bytes], bytes]] = [
    flipped, lambda content: content[: len(content) // 3], lambda content: b"", lambda content: content[:-1],
    lambda content: bytes(len(content)), lambda content: b"PK\x03\x04 a broken archive",
]  # fmt: skip


def test_the_newest_is_loaded_and_the_previous_kept(folder: Path) -> None:
    assert step_of(folder) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.previous.pt", "checkpoint.pt"]
    assert torch.equal(torch.load(folder / "checkpoint.pt")["weights"], WEIGHTS * 2), "a file of torch's"
    assert load_checkpoint(folder / "empty", CPU) is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_previous(
    damage: Callable[[bytes], bytes], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "checkpoint.pt"
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)
    assert step_of(folder) == 1
    assert "damaged" in capsys.readouterr().out
    (folder / "checkpoint.previous.pt").write_bytes(damaged)
    with pytest.raises(UserError, match="cannot be read"):
        load_checkpoint(folder, CPU)


def test_a_checkpoint_of_the_sealed_format_is_still_read(folder: Path) -> None:
    """contune 0.1 wrote a line with a checksum after the archive."""
    with (folder / "checkpoint.pt").open("ab") as file:
        file.write(b"\ncontune-sha256 " + b"0" * 64 + b"\n")
    assert step_of(folder) == 2


def test_code_in_a_checkpoint_is_not_run(folder: Path) -> None:
    torch.save({"step": Path("anything but numbers")}, folder / "checkpoint.pt")
    assert read_checkpoint(folder / "checkpoint.pt", CPU) is None
    torch.save([1, 2], folder / "checkpoint.pt")
    assert read_checkpoint(folder / "checkpoint.pt", CPU) is None


@pytest.mark.parametrize("moment", ["while writing", "between the two renames"])
def test_dying_while_saving_leaves_a_complete_checkpoint(folder: Path, moment: str) -> None:
    if moment == "while writing":
        (folder / "checkpoint.pt.part").write_bytes(b"half of it")
    else:
        (folder / "checkpoint.pt").rename(folder / "checkpoint.previous.pt")
    assert step_of(folder) == 2
    save_checkpoint(folder, {"step": 3, "weights": WEIGHTS * 3})
    assert step_of(folder) == 3
