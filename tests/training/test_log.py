"""metrics.jsonl, the curves that result.json keeps, the revision of the code, and checkpoints."""

import sys
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, read_json
from command_line import contune as contune_command
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from contune.config import Config
from contune.errors import UserError
from contune.training.log import (
    MetricsLog,
    downsampled,
    load_checkpoint,
    read_metrics,
    save_checkpoint,
)


def test_lines_are_on_disk_at_once_and_a_resumed_log_drops_what_the_checkpoint_does_not_know(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, resume_step=0, loggers=["tensorboard"]) as log:
        log.write(1, {"loss": 2.0})
        assert read_metrics(tmp_path) == [{"step": 1, "loss": 2.0}]
        log.write(2, {"loss": 1.5})
        log.write(3, {"loss": 1.25})
    with MetricsLog(tmp_path, resume_step=2) as log:
        log.write(3, {"loss": 1.0})
    assert [line["loss"] for line in read_metrics(tmp_path)] == [2.0, 1.5, 1.0]
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in events] == [(1, 2.0), (2, 1.5), (3, 1.25)]


class Tracker:
    """Stands in for wandb or trackio: keeps what it is told."""

    __spec__ = "installed"

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.lines: list[tuple[int, dict[str, float]]] = []
        self.num_finished = 0

    def init(self, **about: Any) -> "Tracker":
        self.started.append(about)
        return self

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.lines.append((step, values))

    def finish(self) -> None:
        self.num_finished += 1


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_resumed_run_continues_in_the_tracker(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, name, tracker)
    folders = [tmp_path / "run", tmp_path / "run", tmp_path / "other" / "run"]
    folders[2].mkdir(parents=True)
    folders[0].mkdir()
    for step, folder in enumerate(folders):
        with MetricsLog(folder, resume_step=step, loggers=[name], config={"optim": {"lr": 0.5}}) as log:
            log.write(step + 1, {"loss": 2.0 - step})
    first, second, other = ({**about, "config": None} for about in tracker.started)
    assert first == second
    assert (first["resume"], first["name"].startswith("run-")) == ("allow", True)
    assert first["name"] != other["name"], "another folder is another run"
    assert first.get("id") != other.get("id") or name == "trackio"
    assert tracker.started[0]["config"] == {"optim": {"lr": 0.5}}
    assert tracker.lines == [(1, {"loss": 2.0}), (2, {"loss": 1.0}), (3, {"loss": 0.0})]
    assert tracker.num_finished == 3


def test_loggers_get_the_config_every_line_and_the_accuracies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    folder, run = tmp_path / "run", ("digits", "data.val_fraction=0.8", "optim.epochs=1", "eval.linear=none")
    outcome = contune_command("train", *run, *PLAIN[1:], "run.loggers=wandb,tensorboard", "--out", folder)
    assert outcome.code == 0, outcome.err
    assert tracker.started[0]["config"] == Config.load(folder / "config.json").to_dict()
    *lines, (last_step, scores) = tracker.lines
    assert [{"step": step, **values} for step, values in lines] == read_metrics(folder)
    knn = read_json(folder / "result.json")["knn_top1"]
    assert (last_step, scores["test/knn"]) == (lines[-1][0], knn)
    events = EventAccumulator(str(folder)).Reload()
    assert [event.value for event in events.Scalars("test/knn")] == pytest.approx([knn])
    assert events.Tensors("config/text_summary")


def test_a_logger_that_cannot_start_is_an_error_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)  # as if it were not installed
    for setting, word in (("run.loggers=trackio", ".[trackio]"), ("run.loggers=tensorbord", "tensorboard")):
        outcome = contune_command("train", setting, "--out", tmp_path / "run")
        assert (outcome.code, word in outcome.err) == (2, True), outcome.err
    assert not (tmp_path / "run").exists()
    old = Config().to_dict()
    old["run"]["tensorboard"] = old["run"].pop("loggers") != ()
    assert Config.from_dict(old) == Config(), "older runs can still be read"
    assert Config().override(["run.loggers=none"]).run.loggers == ()

    def refuse(**_: Any) -> None:
        raise ValueError("not logged in")

    tracker = Tracker()
    monkeypatch.setattr(tracker, "init", refuse)
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    with pytest.raises(UserError, match="not logged in"):
        MetricsLog(tmp_path, resume_step=0, loggers=["wandb"])


@pytest.mark.parametrize("damage", [b'{"ste', b"\xff\xfe\n", b"[3]\n", b'{"loss": 1}\n', b"\x00" * 20, b"[" * 100_000])
def test_damaged_metrics_end_where_the_damage_is(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + damage + b'\n{"step": 3}\n')
    assert read_metrics(tmp_path) == [{"step": 1}]


def test_curves_are_means_of_neighboring_lines() -> None:
    lines = [{"step": 1, "epoch": 0.5, "loss": 4.0, "lr": 0.1}, {"step": 2, "epoch": 1.0, "loss": 3.0, "lr": 0.1}]
    assert downsampled(lines) == {"epoch": [0.5, 1.0], "loss": [4.0, 3.0]}
    for num, points in ((100, 100), (101, 51), (1950, 98)):
        found = downsampled([{"epoch": float(n), "loss": 2.0 * n} for n in range(num)])
        assert len(found["epoch"]) == len(found["loss"]) == points
        assert found["loss"] == pytest.approx([2 * (x or 0) for x in found["epoch"]], rel=1e-4)
    gaps = [{"epoch": 1.0, "loss": nan}, {"epoch": 2.0, "loss": inf}, {"epoch": 3.0, "loss": 1.0}, {"epoch": 4.0}]
    assert downsampled(gaps, max_points=2) == {"epoch": [1.5, 3.5], "loss": [None, 1.0]}
    assert downsampled([]) == downsampled([{"epoch": 1.0, "lr": 0.1}]) == {}
    assert downsampled([{"epoch": 1 / 3, "theorem1_share": 0.123456789}])["theorem1_share"] == [0.12346]


# Checkpoints: one of two files is always complete, and a damaged one is noticed.

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
    flipped,
    lambda content: content[: len(content) // 3],
    lambda content: b"",
    lambda content: content[:-1],
    lambda content: bytes(len(content)),
    lambda content: b"PK\x03\x04 a broken archive",
]


def test_the_newest_is_loaded_and_the_previous_kept(folder: Path) -> None:
    assert step_of(folder) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.previous.pt", "checkpoint.pt"]
    assert torch.equal(torch.load(folder / "checkpoint.pt")["weights"], WEIGHTS * 2), "a file of torch's"
    assert load_checkpoint(folder / "empty", CPU) is None
    torch.save([1, 2], folder / "checkpoint.pt")
    assert step_of(folder) == 1, "a list is no checkpoint"


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


@pytest.mark.parametrize("moment", ["while writing", "between the two renames"])
def test_dying_while_saving_leaves_a_complete_checkpoint(folder: Path, moment: str) -> None:
    if moment == "while writing":
        (folder / "checkpoint.pt.part").write_bytes(b"half of it")
    else:
        (folder / "checkpoint.pt").rename(folder / "checkpoint.previous.pt")
    assert step_of(folder) == 2
    save_checkpoint(folder, {"step": 3, "weights": WEIGHTS * 3})
    assert step_of(folder) == 3
