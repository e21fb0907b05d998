"""The benchmark of augmentation from end to end on a few tiny images: rows, failures, files."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contune.bench import augment
from contune.bench.augment import ROUNDS, run_augment_bench
from contune.bench.augment_field import baseline, everyone
from contune.bench.augment_task import Contestant, Started, Task, fastest
from contune.errors import UserError

CPU = torch.device("cpu")
PNG_START = b"\x89PNG"
FORKING = "ignore:This process .* is multi-threaded:DeprecationWarning"  # what loaders with workers do


def task(policy: str, num_views: int = 6) -> Task:
    return Task(policy=policy, num_views=num_views, image_size=16, device=CPU)


def fake(name: str, views: Tensor, policy: str = "crop-flip", **more: Any) -> Contestant:
    @contextmanager
    def start(task: Task) -> Iterator[Started]:
        yield Started(call=lambda: views, **more)

    return Contestant(name=name, policy=policy, source="a test", start=start)


def own(policy: str) -> Contestant:
    return next(c for c in everyone([policy], CPU)[0] if c.name == baseline(CPU))


def bench(tmp_path: Path, policies: list[str], **more: Any) -> Any:
    out = tmp_path / "new" / "augment.json"
    return run_augment_bench(
        policies=policies, num_views=6, image_size=16, device="cpu", seconds=0.001, out=out, **more
    )


@pytest.mark.filterwarnings(FORKING)
def test_the_whole_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = bench(tmp_path, ["autoaugment", "crop-flip"])
    rows = result["rows"]
    assert {row["status"] for row in rows} == {"timed"}
    for row in rows:
        assert row["views_per_second"] > 0
        assert 0 < row["ms_q1"] <= row["ms"] <= row["ms_q3"]
        assert row["rounds"] == ROUNDS
        assert row["ratio"] == 1 if row["name"] == result["baseline"] else row["ratio"] > 0
    names = {row["name"] for row in rows if row["policy"] == "autoaugment"}
    assert names == {"contune torch", "torchvision (one process)", "torchvision (workers)"}
    for key in ("hardware", "processor", "versions", "torch_threads", "command", "finished", "sources"):
        assert result[key]
    assert json.loads((tmp_path / "new" / "augment.json").read_text()) == json.loads(json.dumps(result))
    assert (tmp_path / "new" / "augment.png").read_bytes().startswith(PNG_START)
    printed = capsys.readouterr().out
    assert "torchvision (workers)" in printed
    assert "quartiles" in printed


@pytest.mark.filterwarnings(FORKING)
@pytest.mark.parametrize("policy", ["autoaugment", "simaugment", "crop-flip"])
def test_everyone_does_the_same_work(policy: str) -> None:
    """Means and deviations of many views are about the same, so nobody leaves a step out."""
    moments = {}
    for contestant in everyone([policy], CPU)[0]:
        with contestant.start(task(policy, num_views=64)) as started:
            views = torch.cat([started.call() for _ in range(6)])
            started.pause()
        moments[contestant.name] = (views.mean().item(), views.std().item())
    mean, std = moments[baseline(CPU)]
    for name, (other_mean, other_std) in moments.items():
        assert abs(other_mean - mean) < 0.15, name
        assert abs(other_std - std) < 0.15, name


def test_a_policy_without_peers_is_measured_alone(tmp_path: Path) -> None:
    rows = bench(tmp_path, ["autoaugment-authors"])["rows"]
    assert [row["name"] for row in rows] == ["contune torch"]


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        (torch.zeros(5, 3, 16, 16), "failed: made (5, 3, 16, 16)"),
        (torch.zeros(6, 3, 16, 16, dtype=torch.uint8), "failed: made (6, 3, 16, 16) torch.uint8"),
        (torch.full((6, 3, 16, 16), torch.nan), "failed: made numbers that are not finite"),
    ],
)
def test_who_does_something_else_is_not_timed(tmp_path: Path, views: Tensor, reason: str) -> None:
    rows = bench(tmp_path, ["crop-flip"], contestants=[own("crop-flip"), fake("other", views)])["rows"]
    assert rows[0]["status"] == "timed"
    assert rows[1]["status"].startswith(reason)
    assert rows[1]["views_per_second"] is None


def test_who_breaks_down_later_is_out_and_the_others_go_on(tmp_path: Path) -> None:
    calls = 0

    @contextmanager
    def start(task: Task) -> Iterator[Started]:
        def call() -> Tensor:
            nonlocal calls
            calls += 1
            if calls > 4:
                raise RuntimeError("tired\nand a long story")
            return torch.zeros(6, 3, 16, 16)

        yield Started(call=call)

    tired = Contestant(name="tired", policy="crop-flip", source="a test", start=start)
    rows = bench(tmp_path, ["crop-flip"], contestants=[tired, own("crop-flip")])["rows"]
    assert [row["status"] for row in rows] == ["failed: tired", "timed"]


def test_what_is_stopped_leaves_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laps = 0
    lap = augment._lap

    def stopping(*arguments: Any) -> float:
        nonlocal laps
        laps += 1
        if laps > 3:
            raise KeyboardInterrupt
        return lap(*arguments)

    monkeypatch.setattr(augment, "_lap", stopping)
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path, ["crop-flip"], contestants=[own("crop-flip")])
    written = json.loads((tmp_path / "new" / "augment.json").read_text())
    assert written["rows"][0]["rounds"] == 2


def test_results_made_ahead_are_not_timed_and_others_are_paused(tmp_path: Path) -> None:
    log: list[str] = []
    views = torch.zeros(6, 3, 16, 16)

    def call() -> Tensor:
        log.append("call")
        return views

    @contextmanager
    def start(task: Task) -> Iterator[Started]:
        yield Started(call=call, pause=lambda: log.append("pause"), ahead=3)
        log.append("closed")

    contestant = Contestant(name="ahead", policy="crop-flip", source="a test", start=start)
    (row,) = bench(tmp_path, ["crop-flip"], contestants=[contestant])["rows"]
    assert row["calls_a_lap"] >= 3
    assert log.count("pause") == 1 + ROUNDS
    assert log.count("call") >= 2 + 6 * (1 + ROUNDS)
    assert log[-1] == "closed"


def test_only_those_who_are_named_take_part(tmp_path: Path) -> None:
    rows = bench(tmp_path, ["crop-flip"], only=["contune"])["rows"]
    assert [row["name"] for row in rows] == ["contune torch"]
    with pytest.raises(UserError, match=r"unknown contestant 'kornja'"):
        bench(tmp_path, ["crop-flip"], only=["kornja"])


def test_the_fastest_form_is_found() -> None:
    assert fastest({"slow": lambda: sum(range(100_000)), "fast": lambda: None}) == "fast"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"policies": []}, "nothing to measure"),
        ({"policies": ["autoagument"]}, "unknown augmentation 'autoagument'; did you mean autoaugment"),
        ({"policies": ["crop-flip"], "num_views": 0}, "batch=0 is out of range"),
        ({"policies": ["crop-flip"], "image_size": 4}, "image_size=4 is out of range"),
        ({"policies": ["crop-flip"], "seconds": 0}, "seconds must be above 0"),
        ({"policies": ["crop-flip"], "device": "meta"}, "cpu and cuda only"),
    ],
)
def test_bad_requests_are_told_so(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        run_augment_bench(**arguments)


def test_on_a_gpu_the_kernels_take_part_and_the_recorded_one_is_compared_with() -> None:
    names = [c.name for c in everyone(["autoaugment"], torch.device("cuda"))[0]]
    assert {"contune torch", "contune fused", "contune fused (graph)"} <= set(names)
    assert baseline(torch.device("cuda")) in names
