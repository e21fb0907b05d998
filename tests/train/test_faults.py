"""Disks and files that fail: one sentence, and a run folder that the same command goes on with."""

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, contune, last_line, read_lines, train
from pictures import write_classes
from torch import Tensor

from contune import files
from contune.config import Config
from contune.errors import UserError
from contune.files import whole_file, write_whole
from contune.run import RunFolder
from contune.train import checkpoint
from contune.train.checkpoint import load_checkpoint, save_checkpoint
from contune.train.log import read_metrics
from contune.train.trainer import Trainer

CPU = torch.device("cpu")
RUN = (
    "digits", "optim.epochs=2", "data.val_fraction=0.6", "eval.linear=none", "run.log_every=1",
    "run.checkpoint_seconds=0",
)  # fmt: skip


def two_checkpoints(folder: Path) -> Path:
    for step in (1, 2):
        save_checkpoint(folder, {"step": step, "weights": torch.arange(1000.0) * step})
    return folder


def cut(content: bytes) -> bytes:
    return content[: len(content) // 3]


def flipped(content: bytes) -> bytes:
    """One bit in the middle of the weights, which torch itself would not notice."""
    spot = content.index(torch.arange(1000.0).mul(2).numpy().tobytes()) + 2001
    return content[:spot] + bytes([content[spot] ^ 1]) + content[spot + 1 :]


def unsealed(content: bytes) -> bytes:
    return content[: -checkpoint._SEAL_LENGTH]


DAMAGES: list[Callable[[bytes], bytes]] = [
    cut, flipped, unsealed, lambda content: b"", lambda content: content[:-1], lambda content: content + b"x",
    lambda content: bytes(len(content)),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_a_sentence(
    damage: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = two_checkpoints(tmp_path) / "checkpoint.pt"
    newest = load_checkpoint(tmp_path, CPU)
    assert newest is not None
    assert newest["step"] == 2
    file.write_bytes(damage(file.read_bytes()))
    found = load_checkpoint(tmp_path, CPU)
    assert found is not None
    assert found["step"] == 1
    assert torch.equal(found["weights"], torch.arange(1000.0))
    said = f"checkpoint.pt in {tmp_path} is damaged; going on from the one before it, at step 1\n"
    assert capsys.readouterr().out == said


def test_torch_alone_would_have_taken_the_flipped_bit(tmp_path: Path) -> None:
    """Or the checksum would be for nothing."""
    file = two_checkpoints(tmp_path) / "checkpoint.pt"
    file.write_bytes(flipped(file.read_bytes()))
    assert not torch.equal(torch.load(file)["weights"], torch.arange(1000.0) * 2)


def test_a_checkpoint_is_still_torchs_own(tmp_path: Path) -> None:
    state = torch.load(two_checkpoints(tmp_path) / "checkpoint.pt")
    assert torch.equal(state["weights"], torch.arange(1000.0) * 2)


@pytest.mark.parametrize("damage", DAMAGES)
def test_both_damaged_is_an_error_that_names_the_way_out(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    damaged = damage((two_checkpoints(tmp_path) / "checkpoint.pt").read_bytes())
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (tmp_path / name).write_bytes(damaged)
    with pytest.raises(
        UserError, match=r"checkpoint\.pt and checkpoint\.previous\.pt in .* cannot be read; remove the"
    ):
        load_checkpoint(tmp_path, CPU)


@pytest.mark.parametrize(
    "state",
    [
        {"step": 3},
        {"step": "three", "seconds": 1.0, "skipped": 0, "random": torch.get_rng_state(), "method": {}},
        {"step": 3, "seconds": 0.0, "skipped": 0, "random": torch.zeros(3), "method": {"weight": torch.zeros(3)}},
    ],
)
def test_a_whole_checkpoint_of_something_else_is_a_sentence(state: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(folder, *RUN, "optim.epochs=0")
    (folder / "result.json").unlink()
    for _ in range(2):
        save_checkpoint(folder, state)
    outcome = contune("train", *RUN, "optim.epochs=0", *PLAIN, "--out", folder)
    assert outcome.code == 2
    assert f"contune: the checkpoint in {folder} is not one of this run" in outcome.err


@pytest.fixture
def failing_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, int], None]:
    """From the n-th time on, a file of that name cannot be synced to the disk."""

    def fail(name: str, times: int, number: int) -> None:
        sync, calls = files.sync, 0

        def failing(path: Path) -> None:
            nonlocal calls
            if path.name == name + files.PART:
                calls += 1
                if calls >= times:
                    raise OSError(number, os.strerror(number))
            sync(path)

        for module in (files, checkpoint):
            monkeypatch.setattr(module, "sync", failing)

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_failing_disk_stops_the_run_and_keeps_the_last_checkpoint(
    number: int, failing_after: Callable[[str, int, int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    failing_after("checkpoint.pt", 8, number)  # synced twice each, but for the first
    outcome = contune("train", *RUN, *PLAIN, "--out", folder)
    assert outcome.code == 2
    assert last_line(outcome.err).startswith(
        f"contune: cannot write to {folder} (checkpoint.pt): {os.strerror(number)}; "
    )
    found = load_checkpoint(folder, CPU)
    assert found is not None
    assert found["step"] == 4
    assert not list(folder.glob("*.part")), "what was half written takes no room"
    monkeypatch.undo()
    train(folder, *RUN)
    assert [line["step"] for line in read_lines(folder)] == list(range(1, 11))


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "encoder.safetensors", "result.json", "report.html"])
def test_every_file_of_a_run_is_written_whole_or_not_at_all(
    name: str, failing_after: Callable[[str, int, int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    settings = ("digits", "optim.epochs=0", "eval.linear=none", "run.tensorboard=false", "--out", folder)
    failing_after(name, 1, errno.ENOSPC)
    outcome = contune("train", *settings)
    assert outcome.code == 2
    assert last_line(outcome.err).startswith(
        f"contune: cannot write to {folder} ({name}): No space left on device; make room"
    )
    assert not (folder / name).exists()
    assert not list(folder.glob("*.part"))
    monkeypatch.undo()
    assert contune("train", *settings).code == 0
    assert (folder / name).exists()


LIMITED = """
import resource, sys
from contune.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
main()
"""


def test_a_disk_that_really_takes_no_more(tmp_path: Path) -> None:
    """A file of more than a megabyte cannot be written, and a checkpoint is more: the first one fails."""
    folder = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(2**20), "train", *RUN, *PLAIN, "--out", str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert last_line(done.stderr) == (
        f"contune: cannot write to {folder} (checkpoint.pt): File too large; "
        "make room there; what was written before is whole, and the same command goes on with it"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "metrics.jsonl", "trained_on.npz"]
    assert len(read_metrics(folder)) == 1
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2**20


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        outcome = contune("train", *RUN, *PLAIN, "--out", tmp_path / "run")
    finally:
        tmp_path.chmod(0o700)
    assert outcome.code == 2
    assert "Permission denied; see that it can be written to, or give another folder with --out" in outcome.err


def test_an_image_that_disappears_while_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos, folder = write_classes(tmp_path / "photos"), tmp_path / "run"
    take_step = Trainer.take_step

    def losing(self: Trainer, images: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        if self.step == 3:
            shutil.rmtree(photos / "class1")
        return take_step(self, images, labels_B)

    monkeypatch.setattr(Trainer, "take_step", losing)
    settings = (
        "data.resident_gib=0", "data.workers=0", "model.encoder=resnet-mini", "data.image_size=8",
        "optim.batch_images=8", "optim.epochs=4", "run.log_every=1", "run.checkpoint_seconds=0",
    )  # fmt: skip
    outcome = contune("train", "images", f"data.path={photos}", *settings, *PLAIN, "--out", folder)
    assert outcome.code == 2
    assert "No such file or directory" in last_line(outcome.err)
    assert "Traceback" not in outcome.err
    found = load_checkpoint(folder, CPU)
    assert found is not None
    assert found["step"] >= 3


def test_a_process_that_died_while_making_the_folder_is_no_obstacle(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    (folder.path / "config.json.part").write_text('{"da')
    folder.check(Config())
    (folder.path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        folder.check(Config())


def test_metrics_that_are_damaged_end_where_the_damage_is(tmp_path: Path) -> None:
    for damage in (b'{"ste', b"\xff\xfe\n", b"[3]\n", b'{"loss": 1}\n', b"\x00" * 20, b"[" * 100_000):
        (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + damage + b'\n{"step": 3}\n')
        assert read_metrics(tmp_path) == [{"step": 1}]


def test_what_was_there_stays_until_the_new_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_whole(file, "first")

    def fail_half_way() -> None:
        with whole_file(file) as part:
            part.write_text("seco")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_half_way()
    assert file.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_of_several_processes_the_one_that_knows_says_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    monkeypatch.setenv("RANK", "1")
    outcome = contune("train", "optim.lr=0")
    assert outcome.err == "contune: process 1: optim.lr must be above 0, got 0.0\n"
    assert waited == [3.0]
