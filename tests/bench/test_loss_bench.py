"""The benchmark from end to end on tiny batches: rows, failures, files."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contune.bench import memory, timing
from contune.bench.batch import make_batch
from contune.bench.contestants import BASELINE, Contestant, matrices, own_contestants, transcribed_contestants
from contune.bench.loss import run_loss_bench
from contune.bench.plot import _spread
from contune.bench.timing import Runner, summarise
from contune.errors import UserError

CPU = torch.device("cpu")
PNG_START = b"\x89PNG"


def baseline(loss: str = "tcl") -> Contestant:
    return next(c for c in own_contestants(CPU, compiled=False) if c.name == BASELINE and c.loss == loss)


def only_above(num: int, error: Exception) -> Callable[[Tensor, Tensor], Tensor]:
    """Right, until the batch is larger than `num`."""

    def loss(z: Tensor, labels: Tensor) -> Tensor:
        if len(z) > num:
            raise error
        return baseline().function(z, labels)

    return loss


def fake(name: str, function: Callable[[Tensor, Tensor], Tensor], footprint: float = 0) -> Contestant:
    return Contestant(name=name, loss="tcl", function=function, source="a test", footprint=matrices(footprint))


def bench(tmp_path: Path, contestants: list[Contestant], sizes: tuple[int, ...] = (8, 16), **more: Any) -> Any:
    out = tmp_path / "new" / "loss.json"
    return run_loss_bench(
        sizes=sizes, dims=[4], num_classes=3, device="cpu", seconds=0.001, out=out, contestants=contestants, **more
    )


def test_the_whole_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contestants = [baseline(loss) for loss in ("tcl", "supcon", "ntxent")] + transcribed_contestants(CPU)
    result = bench(tmp_path, contestants)
    rows = result["rows"]
    assert len(rows) == 2 * len(contestants)
    for row in rows:
        assert row["status"] == "timed"
        assert 0 < row["ms_q1"] <= row["ms"] <= row["ms_q3"]
        assert row["rounds"] >= 5
        assert row["warmups"] >= 2
        assert row["peak_bytes"] is None
        assert row["ratio"] == 1 if row["name"] == BASELINE else row["ratio"] > 0
    assert {item["verdict"] for item in result["checks"]} == {"equal"}
    for key in ("hardware", "processor", "versions", "torch_threads", "command", "dtype", "temperature", "finished"):
        assert result[key]
    assert json.loads((tmp_path / "new" / "loss.json").read_text()) == result
    assert (tmp_path / "new" / "loss.png").read_bytes().startswith(PNG_START)
    printed = capsys.readouterr().out
    assert "N = 16, d = 4" in printed
    assert "TCL paper's form" in printed


def test_who_is_wrong_is_named_and_not_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = fake("half of it", lambda z, labels: 0.5 * baseline().function(z, labels))
    result = bench(tmp_path, [baseline(), wrong])
    assert {row["name"] for row in result["rows"]} == {BASELINE}
    assert [item["verdict"] for item in result["checks"]] == ["equal", "disagrees"]
    assert "not timed, disagrees: off by 5.0e-01" in capsys.readouterr().out


def test_who_is_wrong_on_a_large_batch_only_is_not_timed_there(tmp_path: Path) -> None:
    wrong = fake("wrong later", lambda z, labels: baseline().function(z, labels) * (1.1 if len(z) == 200 else 1))
    rows = bench(tmp_path, [baseline(), wrong], sizes=(8, 200))["rows"]
    status = {row["n"]: row["status"] for row in rows if row["name"] == "wrong later"}
    assert status[8] == "timed"
    assert status[200].startswith("disagrees at this size")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory. Tried"), MemoryError()])
def test_out_of_memory_is_a_row_and_the_others_go_on(tmp_path: Path, error: Exception) -> None:
    rows = bench(tmp_path, [baseline(), fake("hungry", only_above(192, error))], sizes=(8, 200))["rows"]
    status = {(row["name"], row["n"]): row["status"] for row in rows}
    assert status["hungry", 8] == "timed"
    assert status["hungry", 200] == "out of memory"
    assert status[BASELINE, 200] == "timed"
    hungry = next(row for row in rows if (row["name"], row["n"]) == ("hungry", 200))
    assert hungry["ms"] is None
    assert hungry["ratio"] is None


def test_what_cannot_fit_is_not_tried(tmp_path: Path) -> None:
    tried: list[int] = []

    def loss(z: Tensor, labels: Tensor) -> Tensor:
        tried.append(len(z))
        return baseline().function(z, labels)

    rows = bench(tmp_path, [baseline(), fake("huge", loss, footprint=1e12)], sizes=(8,))["rows"]
    assert rows[1]["status"].startswith("would not fit: about ")
    assert 8 not in tried


def test_a_crash_is_a_row_with_its_first_line(tmp_path: Path) -> None:
    error = RuntimeError("the kernel broke\nand a long story")
    rows = bench(tmp_path, [baseline(), fake("fragile", only_above(192, error))], sizes=(200,))["rows"]
    assert rows[1]["status"] == "failed: the kernel broke"


def test_without_contune_there_are_times_but_no_ratios(tmp_path: Path) -> None:
    row, _ = bench(tmp_path, [fake("alone", baseline().function)])["rows"]
    assert row["ms"] > 0
    assert row["ratio"] is None


def test_two_lengths_give_two_drawings(tmp_path: Path) -> None:
    out = tmp_path / "loss.json"
    run_loss_bench(sizes=[8], dims=[4, 6], device="cpu", seconds=0.001, out=out, contestants=[baseline()])
    assert (tmp_path / "loss-d4.png").exists()
    assert (tmp_path / "loss-d6.png").exists()


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write to"):
        run_loss_bench(sizes=[8], dims=[4], device="cpu", out=tmp_path / "file" / "loss.json")
    with pytest.raises(UserError, match="is a folder; name a file with --out"):
        run_loss_bench(sizes=[8], dims=[4], device="cpu", out=tmp_path)


@pytest.mark.parametrize(
    ("name", "there", "words"),
    [
        ("notes.json", '{"mine": 1}', "is not what this command writes"),
        ("train.json", '{"bench": "train"}', "is not what this command writes"),
        ("drawn.png", "a picture", "drawn.png, where the drawing goes, is there already"),
    ],
)
def test_nothing_of_others_is_written_over(name: str, there: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(there)
    out = (tmp_path / name).with_suffix(".json")
    with pytest.raises(UserError, match=words):
        run_loss_bench(sizes=[8], dims=[4], device="cpu", seconds=0.001, out=out, contestants=[baseline()])
    assert (tmp_path / name).read_text() == there


def test_a_benchmark_is_written_over_by_its_like(tmp_path: Path) -> None:
    out = tmp_path / "loss.json"
    for _ in range(2):
        run_loss_bench(sizes=[8], dims=[4], device="cpu", seconds=0.001, out=out, contestants=[baseline()])
    with pytest.raises(UserError, match=r"is written as \.json"):
        run_loss_bench(sizes=[8], dims=[4], device="cpu", out=tmp_path / "loss.png")


def test_the_ratio_is_taken_round_by_round() -> None:
    first = Runner(contestant=baseline(), ms={0: 1.0, 1: 10.0, 2: 2.0, 3: 2.0})
    second = Runner(contestant=fake("b", baseline().function), ms={0: 3.0, 1: 30.0, 2: 6.0})
    summary = summarise(second, [first, second])
    assert summary.ratio == 3.0
    assert (summary.ms, summary.rounds) == (6.0, 3)


def test_slow_ones_leave_after_their_time_and_fast_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"slow": 500.0, "fast": 10.0}
    order: list[str] = []

    def call(runner: Runner, batch: object) -> tuple[float, Tensor]:
        order.append(runner.contestant.name)
        return cost[runner.contestant.name], torch.zeros(())

    monkeypatch.setattr(timing, "_fresh_call", call)
    runners = [Runner(contestant=fake(name, baseline().function)) for name in cost]
    batch = make_batch("tcl", 8, 4, num_classes=2, device=CPU, dtype="float32")
    timing.race(runners, batch, seconds=1.0, on_round=lambda index: None)
    assert [len(runner.ms) for runner in runners] == [5, 100]
    assert {tuple(order[i : i + 2]) for i in range(0, 10, 2)} == {("slow", "fast"), ("fast", "slow")}


def test_what_was_recorded_is_what_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def function(z: Tensor, labels: Tensor) -> Tensor:
        calls.append("called")
        return baseline().function(z, labels)

    class Replayed:
        def __init__(self, contestant: Contestant, batch: object) -> None:
            calls.append(f"{contestant.name} recorded")

        def __call__(self) -> Tensor:
            calls.append("replayed")
            return torch.tensor(7.0)

    monkeypatch.setattr(timing, "RecordedPass", Replayed)
    runner = Runner(contestant=fake("it", function), recorded=True)
    batch = make_batch("tcl", 8, 4, num_classes=2, device=CPU, dtype="float32")
    assert timing.warm_up(runner, batch) is None
    assert runner.value == 7.0, "that of the recording is compared with the others'"
    timing.race([runner], batch, seconds=1e-6, on_round=lambda index: None)
    assert calls[:3] == ["called", "called", "it recorded"]
    assert set(calls[3:]) == {"replayed"}
    assert len(runner.ms) == 5


@pytest.mark.gpu
def test_a_recording_has_the_numbers_of_a_call(tmp_path: Path) -> None:
    out = tmp_path / "loss.json"
    names = ["contune", "SupContrast"]
    result = run_loss_bench(sizes=[256], dims=[32], device="cuda", seconds=0.05, only=names, recorded=True, out=out)
    assert {row["status"] for row in result["rows"]} == {"timed"}


def test_memory_of_a_process_of_its_own() -> None:
    """SupContrast's form holds several matrices of 1024×1024, 4 MiB each."""
    supcontrast = next(c for c in transcribed_contestants(CPU) if c.name == "SupContrast form")
    peak = memory.cpu_peak_bytes(supcontrast, 1024, 8, num_classes=10, dtype="float32")
    assert isinstance(peak, int)
    assert 3 * 4 * 2**20 < peak < 14 * 4 * 2**20


def test_labels_are_moved_apart_and_stay_in_the_panel() -> None:
    placed = _spread([0.5, 0.5, 0.51, 0.99, 1.0], 0.0, 1.0)
    gaps = [b - a for a, b in pairwise(placed)]
    assert min(gaps) > 0.05
    assert placed[-1] <= 1.0
    assert placed[0] < 0.5 < placed[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"sizes": [7], "dims": [4]}, "even sizes"),
        ({"sizes": [], "dims": [4]}, "sizes must hold"),
        ({"sizes": [8], "dims": [0]}, "dims must hold"),
        ({"sizes": [8], "dims": [4], "dtype": "int8"}, "unknown dtype 'int8'"),
        ({"sizes": [8], "dims": [4], "num_classes": 1}, "no negatives"),
        ({"sizes": [8], "dims": [4], "seconds": 0}, "above 0"),
        ({"sizes": [8], "dims": [4], "device": "meta"}, "cpu and cuda only"),
        ({"sizes": [8], "dims": [4], "device": "cpu", "recorded": True}, "only a CUDA device records passes"),
    ],
)
def test_bad_requests_are_told_so(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        run_loss_bench(**arguments)
