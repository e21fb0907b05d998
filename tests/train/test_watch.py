"""On a GPU what is logged comes over while the next steps are taken; here that is only made believe."""

from pathlib import Path

import pytest
import torch
from command_line import PLAIN, contune, read_lines, train

from contune.methods.tcl import TCL
from contune.train.sent import Sent

RUN = ("digits", "optim.epochs=2", "eval.linear=none", "data.val_fraction=0.6", "run.log_every=2")


@pytest.fixture
def slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are never there before somebody waits for them."""
    monkeypatch.setattr(Sent, "is_there", lambda self: False)


def test_what_comes_late_is_the_same(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    train(tmp_path / "at-once", *RUN)
    request.getfixturevalue("slow_way")
    train(tmp_path / "late", *RUN)
    assert len(read_lines(tmp_path / "late")) > 3
    assert read_lines(tmp_path / "late") == read_lines(tmp_path / "at-once")


@pytest.mark.usefixtures("slow_way")
def test_no_checkpoint_is_written_before_its_steps_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair_loss, calls = TCL.pair_loss, 0

    def spoil(self: TCL, z_ND: torch.Tensor, groups_N: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return pair_loss(self, z_ND, groups_N) * (float("nan") if calls == 5 else 1.0)

    monkeypatch.setattr(TCL, "pair_loss", spoil)
    outcome = contune("train", *RUN, "run.checkpoint_seconds=0", *PLAIN, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert "the loss became nan at step 5" in outcome.err
    assert torch.load(tmp_path / "run" / "checkpoint.pt")["step"] == 4


def test_numbers_arrive_as_they_were_sent() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, float("inf")]])
    sent = Sent(values)
    assert sent.is_there()
    assert sent.wait() == [[1.0, 2.0], [3.0, float("inf")]]


@pytest.mark.gpu
def test_on_a_gpu_they_are_those_of_the_moment_they_were_sent() -> None:
    values = torch.zeros(3, device="cuda")
    torch.cuda._sleep(100_000_000)
    values += 1
    sent = Sent(values)
    assert not sent.is_there(), "the host does not wait"
    values += 1
    assert sent.wait() == [1.0, 1.0, 1.0]
    assert sent.is_there()
