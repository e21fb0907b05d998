"""metrics.jsonl, the curves that result.json keeps, and the revision of the code."""

import subprocess
from math import inf, nan
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

import contune
from contune.config import Config
from contune.train.log import MetricsLog, build_result, downsampled, git_revision, log_interval, read_metrics, versions


@pytest.mark.parametrize(
    ("asked", "num_steps", "expected"),
    [(None, 6, 1), (None, 99, 1), (None, 280, 5), (None, 999, 19), (None, 1000, 20), (None, 10**6, 20), (None, 0, 1),
     (7, 6, 7), (1, 10**6, 1), (20, 28, 20)],
)  # fmt: skip
def test_the_interval_between_lines(asked: int | None, num_steps: int, expected: int) -> None:
    assert log_interval(asked, num_steps) == expected


def test_lines_are_on_disk_at_once_and_a_resumed_log_drops_what_the_checkpoint_does_not_know(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, resume_step=0, tensorboard=True) as log:
        log.write(1, {"loss": 2.0})
        assert read_metrics(tmp_path) == [{"step": 1, "loss": 2.0}]
        log.write(2, {"loss": 1.5})
        log.write(3, {"loss": 1.25})
    with MetricsLog(tmp_path, resume_step=2, tensorboard=False) as log:
        log.write(3, {"loss": 1.0})
    assert [line["loss"] for line in read_metrics(tmp_path)] == [2.0, 1.5, 1.0]
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in events] == [(1, 2.0), (2, 1.5), (3, 1.25)]


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


def test_the_result_names_the_best_linear_probe() -> None:
    config = Config().to_dict()
    scores = [{"name": name, "top1": top1, "top5": None, "protocol": name} for name, top1 in
              (("linear-fast", 90.0), ("knn", 80.0), ("linear", 91.0))]  # fmt: skip
    result = build_result(config, scores, hardware="cpu")
    assert (result["linear_top1"], result["linear_protocol"], result["knn_top1"]) == (91.0, "linear", 80.0)
    assert build_result(config, scores[:2], hardware="cpu")["linear_protocol"] == "linear-fast"
    assert "linear_top1" not in build_result(config, scores[1:2], hardware="cpu")
    assert "classifier_top1" not in result


def test_the_revision_is_that_of_this_code_and_of_no_other_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package is an untracked file in somebody else's repository."""
    assert versions()["torch"] == torch.__version__
    monkeypatch.delenv("CONTUNE_REVISION", raising=False)
    (tmp_path / "__init__.py").write_text("")
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("commit", "--allow-empty", "-qm", "theirs")):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(contune, "__file__", str(tmp_path / "__init__.py"))
    assert git_revision() is None
    monkeypatch.setenv("CONTUNE_REVISION", "abc")
    assert git_revision() == "abc"
