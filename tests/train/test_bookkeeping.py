"""Meter, metrics.jsonl, checkpoints and devices."""

import json
import subprocess
from pathlib import Path

import pytest
import torch

import contune
from contune.device import choose_autocast, choose_device, hardware_name
from contune.errors import UserError
from contune.train.checkpoint import load_checkpoint, save_checkpoint
from contune.train.log import MetricsLog, log_interval, read_metrics
from contune.train.meter import Meter
from contune.train.result import git_revision, versions

CPU = torch.device("cpu")


def test_the_meter_takes_means_since_they_were_last_taken() -> None:
    meter = Meter()
    for loss, top1 in ((1.0, 0.0), (2.0, 1.0), (6.0, 0.5)):
        meter.add({"loss": torch.tensor(loss, requires_grad=True), "top1": torch.tensor(top1)})
    assert meter.take().wait() == {"loss": 3.0, "top1": 0.5}
    meter.add({"loss": torch.tensor(5.0, dtype=torch.bfloat16)})
    assert meter.take({"now": torch.tensor(0.25)}).wait() == {"loss": 5.0, "now": 0.25}
    meter.add({"loss": torch.tensor(2.0)})
    meter.add({"loss": torch.tensor(4.0)})
    assert meter.take({"now": torch.tensor(0.5)}).wait() == {"loss": 3.0, "now": 0.5}, "of this moment, not a mean"


def test_each_mean_is_over_the_values_that_there_were() -> None:
    """As where a run goes on with another `run.on_nan`, which logs one more."""
    meter, goes_on = Meter(), Meter()
    meter.add({"loss": torch.tensor(2.0)})
    goes_on.load_state_dict(meter.state_dict())
    goes_on.add({"loss": torch.tensor(4.0), "skipped": torch.tensor(1.0)})
    assert goes_on.take().wait() == {"loss": 3.0, "skipped": 1.0}


@pytest.mark.parametrize(
    ("asked", "num_steps", "expected"),
    [(None, 6, 1), (None, 99, 1), (None, 280, 5), (None, 999, 19), (None, 1000, 20), (None, 10**6, 20), (None, 0, 1),
     (7, 6, 7), (1, 10**6, 1), (20, 28, 20)],
)  # fmt: skip
def test_a_short_run_has_a_curve_and_who_asks_is_obeyed(asked: int | None, num_steps: int, expected: int) -> None:
    assert log_interval(asked, num_steps) == expected


def test_metrics_are_lines_of_json_that_are_there_at_once(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, resume_step=0, tensorboard=False) as log:
        log.write(1, {"loss": 2.0})
        assert read_metrics(tmp_path) == [{"step": 1, "loss": 2.0}]
        log.write(2, {"loss": 1.5})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}]


def test_a_resumed_log_keeps_what_the_checkpoint_knows(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    with MetricsLog(tmp_path, resume_step=2, tensorboard=False) as log:
        log.write(3, {"loss": 0.5})
    assert read_metrics(tmp_path) == [{"step": 1}, {"step": 2}, {"step": 3, "loss": 0.5}]


def test_a_folder_without_metrics_has_none(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []


def test_tensorboard_gets_the_same_values(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]  # no stubs

    with MetricsLog(tmp_path, resume_step=0, tensorboard=True) as log:
        log.write(4, {"loss": 2.0, "lr": 0.25})
        log.write(8, {"loss": 1.0, "lr": 0.5})
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(4, 2.0), (8, 1.0)]
    assert [event.value for event in events.Scalars("lr")] == [0.25, 0.5]


def test_the_checkpoint_before_is_kept(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path, CPU) is None
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, {"step": step, "weights": torch.full((2,), step)})
    newest = load_checkpoint(tmp_path, CPU)
    assert newest is not None
    assert (newest["step"], newest["weights"].tolist()) == (3, [3, 3])
    (tmp_path / "checkpoint.pt").unlink()
    previous = load_checkpoint(tmp_path, CPU)
    assert previous is not None
    assert previous["step"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.previous.pt"]


@pytest.mark.parametrize("moment", ["while writing", "between the two renames"])
def test_dying_while_saving_leaves_a_whole_checkpoint(tmp_path: Path, moment: str) -> None:
    save_checkpoint(tmp_path, {"step": 1})
    if moment == "while writing":
        (tmp_path / "checkpoint.pt.part").write_bytes(b"half of it")
    else:
        (tmp_path / "checkpoint.pt").rename(tmp_path / "checkpoint.previous.pt")
    found = load_checkpoint(tmp_path, CPU)
    assert found is not None
    assert found["step"] == 1
    save_checkpoint(tmp_path, {"step": 2})
    found = load_checkpoint(tmp_path, CPU)
    assert found is not None
    assert found["step"] == 2


def test_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type in ("cpu", "cuda")
    for wrong in ("gpu", "cuda:99"):
        with pytest.raises(UserError, match=f"run.device={wrong} is not to be had here .*; use run.device=auto"):
            choose_device(wrong)
    for num, name in ((1, "cpu, 1 thread"), (2, "cpu, 2 threads")):
        monkeypatch.setattr(torch, "get_num_threads", lambda num=num: num)
        assert hardware_name(CPU) == name


def test_every_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch, "empty", lambda *shape, device: None)
    for name in ("auto", "cuda", "cuda:3"):
        choose_device(name)
    assert [str(device) for device in chosen] == ["cuda:1", "cuda:1", "cuda:3"]


def test_bfloat16_is_for_those_who_ask_on_a_cpu() -> None:
    x = torch.ones(2, 2)
    dtypes = {}
    for precision in ("auto", "fp32", "bf16"):
        with choose_autocast(precision, CPU)():
            dtypes[precision] = (x @ x).dtype
    assert dtypes == {"auto": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16}


def test_versions_and_revision() -> None:
    assert versions()["torch"] == torch.__version__
    revision = git_revision()
    assert revision is None or revision.rstrip("+").isalnum()


def test_the_revision_of_another_project_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / ".venv" / "contune"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    (tmp_path / "theirs.py").write_text("")
    monkeypatch.delenv("CONTUNE_REVISION", raising=False)
    monkeypatch.setattr(contune, "__file__", str(installed / "__init__.py"))

    def git(*command: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *command], check=True)

    git("init", "-q")
    git("add", "theirs.py")
    git("commit", "-qm", "theirs")
    assert git_revision() is None
    git("add", "-f", ".venv")
    git("commit", "-qm", "ours")
    assert git_revision() is not None
